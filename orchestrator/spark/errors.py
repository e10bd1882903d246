"""What can go wrong with Spark as a whole, and with a load."""

from __future__ import annotations

from orchestrator.errors import IdivmError


class SparkError(IdivmError):
    """Spark, or the Java that it needs, cannot be found, started or used."""


class LoadError(IdivmError):
    """A load cannot be begun or ended; the table is as it was."""
