"""Run a stream: load what has arrived, batch after batch, until it is stopped.

A batch is a load. The transaction that moves its rows into the table also records the batch, so a stream that
is killed at any moment continues with the first batch that is not in the table.

Files in the formats of `idivm load` are listed and loaded by its own readers. Spark's Structured Streaming
reads all other sources.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from psycopg import Connection

from orchestrator.catalog import streams
from orchestrator.catalog.streams import Stream
from orchestrator.errors import UsageError
from orchestrator.frontend.statements import parse_name
from orchestrator.spark.loading import ledger
from orchestrator.spark.loading.effects import Decision
from orchestrator.spark.loading.load import carry_out, check, check_sources, sessions
from orchestrator.spark.loading.loader import Loader
from orchestrator.spark.loading.messages import public
from orchestrator.spark.loading.progress import Clock, Say
from orchestrator.spark.loading.report import LoadReport, TableLoad
from orchestrator.spark.loading.sources import FORMATS, format_of
from orchestrator.spark.streams import structured
from orchestrator.spark.streams.files import arrived, path_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class StreamOptions:
    """How a stream runs."""

    name: str | None = None
    """The name; by default made of the table and the sources."""
    interval: float = 1.0
    """The seconds between two looks at the source."""
    most_files: int = 1000
    """The maximum number of files in a batch."""
    once: bool = False
    """Whether to end when all that has arrived is loaded."""


@dataclass(frozen=True)
class StreamBatch:
    """A batch that is in the table."""

    stream: str
    number: int
    files: int
    report: LoadReport


Finished = Callable[[StreamBatch, Decision], None]


def run_stream(
    connection: Connection[Any],
    table: TableLoad,
    options: StreamOptions,
    finished: Finished,
    *,
    master: str | None,
    config: Mapping[str, object] | None,
    views: str,
    spark: SparkSession | None,
    say: Say,
    stop: threading.Event,
) -> None:
    """Load batches until `stop` is set; call `finished` after each batch."""
    if table.mode == "replace" or table.create:
        raise UsageError(
            "A stream adds to a table or changes its rows: mode replace and create do not apply."
        )
    by_spark = table.source.format not in ("auto", *FORMATS)
    check([table], views)
    if not by_spark:
        check_sources([table])
    if not by_spark and format_of(table.source) == "jdbc":
        raise UsageError(
            "A database is no stream: load it with idivm load, or read its changes from a queue."
        )
    target = ledger.target_named(connection, parse_name(table.into))
    ledger.require(target, create=False)
    listed = ", ".join(map(public, table.source.paths))
    name = options.name or f"{ledger.plain(target.name)} from {listed}"
    clock = Clock()
    stream = streams.start(connection, name, ledger.plain(target.name), listed)
    try:
        with sessions(spark, master, config, table.source.paths, clock, say) as (session, threads):

            def load(
                table: TableLoad, number: int, files: list[dict[str, Any]], checkpoint: Any = None
            ) -> None:
                job = Loader(connection, session, say, Clock(), threads)

                def record(loads: Any) -> None:
                    kept = checkpoint() if checkpoint else None
                    streams.advance(connection, stream, number, loads[0], files, kept)

                report, decision = carry_out(job, [table], views, True, True, record)
                finished(StreamBatch(name, number, len(files), report), decision)

            if by_spark:
                structured.follow(connection, session(), table, stream, options, load, stop)
            else:
                _follow_files(connection, session, table, stream, options, load, stop)
    finally:
        if not connection.closed:
            streams.unlock(connection, stream.id)


def _follow_files(
    connection: Connection[Any],
    session: Callable[[], SparkSession],
    table: TableLoad,
    stream: Stream,
    options: StreamOptions,
    load: Callable[..., None],
    stop: threading.Event,
) -> None:
    loaded = streams.files_loaded(connection, stream.id)
    number = stream.batch
    kind = format_of(table.source)
    while not stop.is_set():
        files = arrived(table.source.paths, loaded, session)[: options.most_files]
        if files:
            number += 1
            paths = tuple(path_of(file) for file in files)
            load(
                replace(table, source=replace(table.source, paths=paths, format=kind)),
                number,
                files,
            )
            loaded |= {file["file"] for file in files}
        elif options.once:
            return
        else:
            stop.wait(options.interval)
