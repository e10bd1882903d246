"""Loads of all types by all paths, compared with independent readers value by value."""
