"""Random tables, names and values."""
