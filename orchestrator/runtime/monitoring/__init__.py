"""What monitoring shows of a database: samples of the catalog, metrics and health."""
