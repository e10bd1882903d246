"""Errors of Spark as a whole, and of a load."""

from __future__ import annotations

from orchestrator.errors import IdivmError


class SparkError(IdivmError):
    """Spark, or the Java that it needs, cannot be found, started or used."""


class LoadError(IdivmError):
    """A load cannot start or finish; the table is unchanged."""
