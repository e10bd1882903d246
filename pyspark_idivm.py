"""Lets Spark find the data source of `spark.read.format("idivm")`: it looks for modules named pyspark_*."""

from __future__ import annotations

from orchestrator.spark.postgres_copy import PostgresCopy as DefaultSource

__all__ = ["DefaultSource"]
