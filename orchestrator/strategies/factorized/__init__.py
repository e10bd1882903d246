"""Results that are stored as views of a tree: their join, and the order in which readers get its rows."""
