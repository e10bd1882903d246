"""From SQL text to an algebra plan: split statements, analyze queries with PostgreSQL, build plans."""
