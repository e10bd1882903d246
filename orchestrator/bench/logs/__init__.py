"""Measure whether logs and catalogs stay small."""
