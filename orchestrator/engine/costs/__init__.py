"""The cost of a script, estimated from the statistics of the tables."""
