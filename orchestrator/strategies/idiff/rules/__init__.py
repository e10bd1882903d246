"""One module per operator: how diffs and bags of its inputs become those of its result."""
