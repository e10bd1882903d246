"""Immutable relational algebra: operators, schemas, keys and functional dependencies."""
