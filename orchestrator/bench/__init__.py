"""Measurements behind `idivm bench`."""
