"""Plans over the cases of heavy and light variables, and the search for their views."""
