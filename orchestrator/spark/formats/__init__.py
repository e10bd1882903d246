"""Readers of file formats and databases."""
