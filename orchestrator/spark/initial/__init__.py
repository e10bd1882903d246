"""First contents of views, computed by Spark."""
