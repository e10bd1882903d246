"""What a script costs by statistics of the tables."""
