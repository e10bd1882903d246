"""Heavy and light: view trees over parts of relations, so that skew in the data costs less."""
