"""The capture of changes: the source view, the log, the triggers that write it and what reads it."""
