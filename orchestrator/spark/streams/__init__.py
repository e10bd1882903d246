"""Streams: load what arrives in batches, each exactly once."""
