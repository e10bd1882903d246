"""Run a stream: load what has arrived, batch after batch, until it is stopped.

A batch is a load. The transaction that moves its rows into the table also records the batch, so a stream that
is killed at any moment continues with the first batch that is not in the table.

Files in the formats of `idivm load` are listed and loaded by its own readers. Spark's Structured Streaming
reads all other sources.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psycopg import Connection
from psycopg.sql import SQL, Identifier

from orchestrator.catalog import streams
from orchestrator.catalog.streams import Stream
from orchestrator.errors import UsageError
from orchestrator.frontend.facts import Relation
from orchestrator.frontend.statements import QualifiedName, parse_name
from orchestrator.runtime.stream_rows import has_read
from orchestrator.spark.loading import ledger
from orchestrator.spark.loading.effects import Decision
from orchestrator.spark.loading.load import carry_out, check, check_sources, sessions
from orchestrator.spark.loading.loader import Loader
from orchestrator.spark.loading.messages import public
from orchestrator.spark.loading.progress import Clock, Say, silent
from orchestrator.spark.loading.report import LoadReport, TableLoad
from orchestrator.spark.loading.sources import FORMATS, format_of
from orchestrator.spark.streams import structured
from orchestrator.spark.streams.batches import Batch, Pace, StreamBatch
from orchestrator.spark.streams.files import arrived, is_uri, path_of
from orchestrator.spark.streams.tables import load_of, refuse_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Finished = Callable[[StreamBatch, Decision], None]


def run_stream(
    connection: Connection[Any],
    table: TableLoad,
    options: Pace,
    finished: Finished,
    *,
    stop: threading.Event,
    master: str | None = None,
    config: Mapping[str, object] | None = None,
    views: str = "auto",
    spark: SparkSession | None = None,
    say: Say = silent,
) -> None:
    """Load batches until `stop` is set; call `finished` after each batch."""
    if table.mode == "replace" or table.create:
        raise UsageError(
            "A stream adds to a table or changes its rows: mode replace and create do not apply."
        )
    target = ledger.target_named(connection, parse_name(table.into))
    ledger.require(target, create=False)
    assert target.relation is not None
    refuse_stream(connection, target.relation)
    by_spark = table.source.format not in ("auto", *FORMATS)
    check([table], views)
    if not by_spark:
        check_sources([table])
    if not by_spark and format_of(table.source) == "jdbc":
        raise UsageError(
            "A database is no stream: load it with idivm load, or read its changes from a queue."
        )
    # The same source has the same name, however the command spells it.
    listed = ", ".join(
        public(path)
        if is_uri(path) or (by_spark and not Path(path).exists())
        else str(Path(path).absolute())
        for path in table.source.paths
    )
    name = options.name or f"{target.relation.qualified} from {listed}"
    where = (spark, master, config, table.source.paths, Clock(), say)
    with (
        streams.started(connection, name, target.relation.oid, listed) as stream,
        sessions(*where) as (session, threads),
    ):

        def load(batch: Batch) -> None:
            job = Loader(connection, session, say, Clock(), threads, resumable=False)
            _load(job, stream, batch, views, finished)

        if by_spark:
            structured.follow(connection, session(), table, stream, options, load, stop)
        else:
            _follow_files(connection, session, table, stream, options, load, say, stop)


def run_stream_table(
    connection: Connection[Any],
    name: QualifiedName,
    options: Pace,
    finished: Finished,
    *,
    stop: threading.Event,
    master: str | None = None,
    config: Mapping[str, object] | None = None,
    spark: SparkSession | None = None,
    say: Say = silent,
) -> None:
    """Load batches of a stream whose rows stay in files until `stop` is set; call `finished` after each batch.

    While no view reads the stream, its files are only recorded.
    """
    target = ledger.target_named(connection, name)
    ledger.require(target, create=False)
    relation = target.relation
    assert relation is not None
    stream_table = streams.stream_tables(connection, [relation.oid]).get(relation.oid)
    if stream_table is None:
        raise UsageError(
            f"{relation.qualified} is not a stream whose rows stay in files: load it by idivm load --stream."
        )
    if has_read(connection):
        raise UsageError("A stream cannot run while this object reads rows of streams.")
    table = load_of(stream_table, relation, stream_table.paths)
    check_sources([table])
    where = (spark, master, config, stream_table.paths, Clock(), say)
    with (
        streams.started(connection, stream_table.name, relation.oid, "") as stream,
        sessions(*where) as (session, threads),
    ):

        def load(batch: Batch) -> None:
            if _recorded(connection, relation, stream, batch):
                why = "no view reads the stream"
                report = LoadReport((), why)
                loaded = StreamBatch(
                    stream.name, batch.number, len(batch.files), batch.waiting, report
                )
                finished(loaded, Decision("leave", why))
                return
            job = Loader(connection, session, say, Clock(), threads, resumable=False)
            _load(job, stream, batch, "refresh", finished)

        _follow_files(connection, session, table, stream, options, load, say, stop)


def _load(job: Loader, stream: Stream, batch: Batch, views: str, finished: Finished) -> None:
    """Load a batch, and record it with its rows."""

    def record(loads: Sequence[int]) -> None:
        kept = batch.checkpoint() if batch.checkpoint else None
        streams.advance(job.connection, stream, batch.number, loads[0], batch.files, kept)

    report, decision = carry_out(job, [batch.table], views, False, True, record)
    loaded = StreamBatch(stream.name, batch.number, len(batch.files), batch.waiting, report)
    finished(loaded, decision)


def _recorded(
    connection: Connection[Any], relation: Relation, stream: Stream, batch: Batch
) -> bool:
    """Record the files of a batch, unless a view reads the stream; return whether that was enough."""
    if streams.is_captured(connection, relation.oid):
        return False
    with connection.transaction():
        # A view that is being created is captured after this lock, or reads the files recorded here.
        connection.execute(
            SQL("LOCK TABLE {} IN ROW EXCLUSIVE MODE").format(
                Identifier(relation.schema, relation.name)
            )
        )
        if streams.is_captured(connection, relation.oid):
            return False
        streams.register(connection, stream, batch.number, batch.files)
    return True


def _follow_files(
    connection: Connection[Any],
    session: Callable[[], SparkSession],
    table: TableLoad,
    stream: Stream,
    options: Pace,
    load: Callable[[Batch], None],
    say: Say,
    stop: threading.Event,
) -> None:
    loaded = streams.files_loaded(connection, stream.id)
    number = stream.batch
    kind = format_of(table.source)
    reported: set[str] = set()
    while not stop.is_set():
        arrivals = arrived(table.source.paths, loaded, options.most_files, session)
        for name in set(arrivals.changed) - reported:
            reported.add(name)
            say(
                f"{name} has changed since it was loaded: a stream loads each file once, so write new rows to "
                "new files",
                True,
            )
        if arrivals.batch:
            number += 1
            paths = tuple(path_of(file) for file in arrivals.batch)
            wanted = replace(table, source=replace(table.source, paths=paths, format=kind))
            load(Batch(wanted, number, arrivals.batch, arrivals.waiting))
            loaded |= {file["file"]: file["bytes"] for file in arrivals.batch}
        elif options.once:
            return
        else:
            stop.wait(options.interval)
