"""Change the database: migrations, installation, capture, refresh, log collection, checks."""
