"""`idivm load`: load sources into tables, in stages that can be interrupted and resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from psycopg import Connection

from orchestrator.errors import UsageError
from orchestrator.frontend.statements import parse_name
from orchestrator.spark.failures import failed
from orchestrator.spark.formats.jdbc import with_driver
from orchestrator.spark.formats.options import checked
from orchestrator.spark.loading import ledger
from orchestrator.spark.loading.effects import (
    CHOICES,
    Decision,
)
from orchestrator.spark.loading.here import threads_of
from orchestrator.spark.loading.progress import (
    Clock,
    Say,
    silent,
)
from orchestrator.spark.loading.report import LoadReport, TableLoad
from orchestrator.spark.loading.sources import format_of
from orchestrator.spark.session import active, default_master, derived, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from orchestrator.spark.loading.loader import Loader

MODES = ("append", "replace", "upsert")

ON_BAD_ROW = ("stop", "quarantine")

SETTINGS: dict[str, object] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.redaction.options.regex": "(?i)url|dsn|task|password|secret",
    # In every session, values that do not fit are errors.
    "spark.sql.ansi.enabled": True,
    "spark.sql.ansi.doubleQuotedIdentifiers": False,
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.variable.substitute": False,
    "spark.sql.files.ignoreCorruptFiles": False,
    "spark.sql.files.ignoreMissingFiles": False,
    # In every session, files have the same meaning.
    "spark.sql.orc.impl": "native",
    "spark.sql.parquet.binaryAsString": False,
    "spark.sql.parquet.inferTimestampNTZ.enabled": True,
    "spark.sql.parquet.int96TimestampConversion": False,
    "spark.sql.parquet.fieldId.read.enabled": False,
}
"""The settings that a session for loads needs in addition to the usual settings."""

_JAVA: dict[str, object] = {"spark.executor.defaultJavaOptions": "-Duser.timezone=UTC"}
"""The settings that Spark must be started with."""


def run(
    connection: Connection[Any],
    tables: Sequence[TableLoad],
    *,
    master: str | None = None,
    config: Mapping[str, object] | None = None,
    views: str = "auto",
    resume: bool = False,
    again: bool = False,
    spark: SparkSession | None = None,
    say: Say = silent,
) -> tuple[LoadReport, Decision]:
    """Load tables; all of them change in one transaction, and the caller updates the views."""
    _check(tables, views)
    # Report wrong names before Spark takes seconds to start.
    for table in tables:
        ledger.require(ledger.target_named(connection, parse_name(table.into)), table.create)
    clock = Clock()
    with ExitStack() as stack:
        if spark is None:
            frame = next((table.frame for table in tables if table.frame is not None), None)
            if frame is not None:
                spark = frame.sparkSession
        lent = spark is not None
        where = master or default_master()

        @cache
        def session() -> SparkSession:
            if spark is not None:
                return stack.enter_context(derived(spark, SETTINGS))
            with clock.stage("start of Spark"):
                say("starting Spark")
                urls = [path for table in tables for path in table.source.paths]
                settings = with_driver({**SETTINGS, **_JAVA, **(config or {})}, urls)
                own = stack.enter_context(spark_session(where, "idivm load", **settings))
                return stack.enter_context(active(own))

        threads = None if lent or config else threads_of(where)
        job = Loader(connection, session, say, clock, threads)
        try:
            report, decision = job.run(tables, views, resume, again)
        except Exception as error:
            # A session of our own raises this sentence itself, and knows whether its JVM has died.
            if lent and (sentence := failed(error)):
                raise sentence from error
            raise
        if decision.action == "rebuild":
            with clock.stage("initial states"):
                report = replace(report, initialised=job.rebuild(decision, views))
        return report, decision


def _check(tables: Sequence[TableLoad], views: str) -> None:
    if views not in CHOICES:
        raise UsageError(f"There is no --views {views}; take {', '.join(CHOICES)}.")
    for table in tables:
        if table.mode not in MODES:
            raise UsageError(f"There is no mode {table.mode}; take {', '.join(MODES)}.")
        if table.on_bad_row not in ON_BAD_ROW:
            raise UsageError(
                f"There is no --on-bad-row {table.on_bad_row}; take stop or quarantine."
            )
        if table.frame is None:
            checked(format_of(table.source), table.source.options)
    names = [str(parse_name(table.into)) for table in tables]
    if len(set(names)) < len(names):
        raise UsageError("A table is there twice: name all sources of a table in one place.")
