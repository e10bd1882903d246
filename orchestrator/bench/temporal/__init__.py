"""A window over the last hour, refreshed while the time passes."""
