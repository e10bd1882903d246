"""Loads in cases: their statements, their files, and what they must give."""
