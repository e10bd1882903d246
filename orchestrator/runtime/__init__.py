"""Effects in the database: migrations, installation, capture, refresh, collection, checking."""
