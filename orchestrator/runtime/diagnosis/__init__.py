"""Checks of contents and of installed objects."""
