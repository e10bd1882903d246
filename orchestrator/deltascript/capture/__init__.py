"""Capture of changes: the source view, the log, the triggers that write it, and its readers."""
