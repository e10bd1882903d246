"""Bulk loads and initial states by Spark."""
