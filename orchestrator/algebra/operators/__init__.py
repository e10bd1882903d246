"""The operators of the algebra, one module each, with schema, IDs, keys, dependencies and SQL."""
