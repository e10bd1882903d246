"""Enumerate the rows of views that are stored factorized."""
