"""Views over heavy and light parts."""
