"""Measure refreshes in several sessions at once."""
