"""Passes: each takes a plan and returns an equivalent plan."""
