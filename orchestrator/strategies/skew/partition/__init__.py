"""Degrees of values, and their division into heavy and light ones."""
