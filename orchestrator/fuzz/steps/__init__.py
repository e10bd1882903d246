"""Random changes of data and schema."""
