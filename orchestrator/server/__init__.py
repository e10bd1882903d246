"""The embedded PostgreSQL server and the search for PostgreSQL binaries."""
