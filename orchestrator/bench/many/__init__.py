"""Measure what many views cost, whether they change or not."""
