"""From a definition view in the database to its maintenance plan."""
