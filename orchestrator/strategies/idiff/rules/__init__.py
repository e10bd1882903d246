"""One module per operator: how diffs and bags of its inputs become diffs and bags of its result."""
