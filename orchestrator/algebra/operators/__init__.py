"""The operators, one module each: schema, IDs, keys, dependencies and SQL side by side."""
