"""Random schemas, views and changes, compared with the oracle after every refresh."""
