"""Random queries."""
