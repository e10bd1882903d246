"""Monitor a database: samples of the catalog, metrics and health."""
