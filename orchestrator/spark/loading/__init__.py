"""Bulk loads."""
