"""Views over a stream whose rows stay in files, beside the same views over a stored table."""
