"""Rows of views that are stored factorized."""
