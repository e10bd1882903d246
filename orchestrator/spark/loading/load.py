"""`idivm load`: load sources into tables, in stages that can be interrupted and resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from psycopg import Connection

from orchestrator.catalog.readers import spark_initialises
from orchestrator.errors import UsageError
from orchestrator.frontend.statements import parse_name
from orchestrator.spark.failures import failed
from orchestrator.spark.formats.jdbc import with_driver
from orchestrator.spark.formats.options import checked
from orchestrator.spark.loading import ledger
from orchestrator.spark.loading.copying import start_worker
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
from orchestrator.spark.local_files import is_small
from orchestrator.spark.session import Life, active, derived, spark_session
from orchestrator.spark.settings import default_master, is_local
from orchestrator.spark.streams.tables import refuse_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from orchestrator.spark.loading.loader import Loader

MODES = ("append", "replace", "upsert", "add")

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

OWN_SETTINGS: dict[str, object] = {
    **SETTINGS,
    "spark.executor.defaultJavaOptions": "-Duser.timezone=UTC",
}
"""The settings of a session for loads that idivm starts."""


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
    check(tables, views)
    check_sources(tables)
    # Report wrong names before Spark takes seconds to start.
    for table in tables:
        target = ledger.target_named(connection, parse_name(table.into))
        ledger.require(target, table.create)
        if target.relation is not None:
            refuse_stream(connection, target.relation)
    clock = Clock()
    frames = [table.frame for table in tables if table.frame is not None]
    if spark is None and frames:
        spark = frames[0].sparkSession
    urls = [path for table in tables for path in table.source.paths]

    def short() -> bool:
        return (
            not config
            and views != "rebuild"
            and all(table.frame is None and is_small(table.source.paths) for table in tables)
            and not spark_initialises(connection)
        )

    with sessions(spark, master, config, urls, clock, say, short) as (session, threads):
        job = Loader(connection, session, say, clock, threads)
        return carry_out(job, tables, views, resume, again)


def carry_out(
    job: Loader,
    tables: Sequence[TableLoad],
    views: str,
    resume: bool,
    again: bool,
    also: Callable[[Sequence[int]], None] = lambda _: None,
) -> tuple[LoadReport, Decision]:
    """Run a load, and let Spark recompute the views if this is cheaper than applying the changes."""
    report, decision = job.run(tables, views, resume, again, also)
    if decision.action == "rebuild":
        with job.clock.stage("initial states"):
            report = replace(report, initialised=job.rebuild(decision, views))
    return report, decision


@contextmanager
def sessions(
    spark: SparkSession | None,
    master: str | None,
    config: Mapping[str, object] | None,
    urls: Sequence[str],
    clock: Clock,
    say: Say,
    short: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Callable[[], SparkSession], int | None]]:
    """Yield a function that starts or derives a Spark session when needed, and the number of threads for copies.

    There are no threads if only Spark may read the source. `short` says whether the load takes only seconds; it is
    asked if Spark starts.
    """
    where = master or default_master()
    with ExitStack() as stack:

        @cache
        def session() -> SparkSession:
            if spark is not None:
                return stack.enter_context(derived(spark, SETTINGS))
            with clock.stage("start of Spark"):
                say("starting Spark")
                settings = with_driver({**OWN_SETTINGS, **(config or {})}, urls)
                own = stack.enter_context(
                    spark_session(where, "idivm load", Life(short(), archives=True), **settings)
                )
                if is_local(where):
                    stack.callback(start_worker(own).join)
                return stack.enter_context(active(own))

        try:
            yield session, None if spark is not None or config else threads_of(where)
        except Exception as error:
            # A session of our own raises this sentence itself, and knows whether its JVM has died.
            if spark is not None and (sentence := failed(error)):
                raise sentence from error
            raise


def check_sources(tables: Sequence[TableLoad]) -> None:
    """Refuse formats and options that no reader has."""
    for table in tables:
        if table.frame is None:
            checked(format_of(table.source), table.source.options)


def check(tables: Sequence[TableLoad], views: str) -> None:
    """Refuse unknown values of options."""
    if views not in CHOICES:
        raise UsageError(f"There is no --views {views}; take {', '.join(CHOICES)}.")
    for table in tables:
        if table.mode not in MODES:
            raise UsageError(f"There is no mode {table.mode}; take {', '.join(MODES)}.")
        if table.on_bad_row not in ON_BAD_ROW:
            raise UsageError(
                f"There is no --on-bad-row {table.on_bad_row}; take stop or quarantine."
            )
        if (table.op and table.mode not in ("upsert", "add")) or (
            table.order and table.mode != "upsert"
        ):
            raise UsageError(
                "op and order describe changes of rows: give the mode upsert, or add, which needs no order."
            )
    names = [str(parse_name(table.into)) for table in tables]
    if len(set(names)) < len(names):
        raise UsageError("A table is there twice: name all sources of a table in one place.")
