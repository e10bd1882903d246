"""First contents of views."""
