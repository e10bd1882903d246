"""Heavy and light: view trees over parts of relations, which make changes of skewed data cheaper."""
