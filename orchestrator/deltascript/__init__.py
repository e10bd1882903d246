"""The maintenance plan every strategy produces, and its emission as PostgreSQL SQL."""
