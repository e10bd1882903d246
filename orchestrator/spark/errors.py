"""What can go wrong with Spark as a whole."""

from __future__ import annotations

from orchestrator.errors import IdivmError


class SparkError(IdivmError):
    """Spark, or the Java that it needs, cannot be found, started or used."""
