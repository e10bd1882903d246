"""The benchmark `fresh`: views that are always fresh, by mode."""
