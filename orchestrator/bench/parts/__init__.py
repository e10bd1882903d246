"""The running example of papers/idivm.txt."""
