"""The loads of the Python interface: tables in bulk, and streams in batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psycopg
from psycopg.types.json import Jsonb

from orchestrator.api.statements import Statements
from orchestrator.catalog import relation_oid, streams
from orchestrator.catalog.search_path import path_of
from orchestrator.catalog.streams import StreamStatus
from orchestrator.errors import NotFoundError
from orchestrator.frontend.options import seconds
from orchestrator.frontend.statements import parse_name
from orchestrator.runtime.stream_rows import rows_read
from orchestrator.spark.options import (
    LoadOptions,
    RowOptions,
    RunOptions,
    RunStreamOptions,
    StreamOptions,
    TableOptions,
    check_names,
    chosen,
)
from orchestrator.spark.streams.files import is_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from typing_extensions import Unpack

    from orchestrator.spark.loading.effects import Decision
    from orchestrator.spark.loading.report import LoadReport
    from orchestrator.spark.streams.batches import StreamBatch


class Loads(Statements):
    """Loads files, databases, DataFrames and streams into tables."""

    def load(
        self,
        source: str | Path | Sequence[str | Path] | DataFrame,
        into: str | None = None,
        **options: Unpack[LoadOptions],
    ) -> LoadReport:
        """Load files, a database or a DataFrame into a table with Spark, each row exactly once.

        Without `into`, `source` is a load file (TOML) that names several tables. Spark runs at `master`, else
        at IDIVM_SPARK_MASTER, else on all cores of this machine. `LoadOptions` lists the options.
        """
        from orchestrator.spark.loading.job import tables_of
        from orchestrator.spark.loading.load import run

        check_names(options, LoadOptions, "load")
        tables = tables_of(source, into, chosen(options, TableOptions))
        with self._ours("Loading"):
            report, decision = run(
                self.connection,
                tables,
                resume=options.get("resume", False),
                again=options.get("again", False),
                **self._run_options(options),
            )
        return self._with_views(report, decision)

    def load_stream(
        self,
        source: str | Path | Sequence[str | Path],
        into: str,
        **options: Unpack[StreamOptions],
    ) -> None:
        """Load files as they arrive, or a streaming source of Spark, in batches, each row exactly once.

        Each batch ends with the views that read the table. The call returns when `stop` is set or, with
        `once`, when all that has arrived is loaded. The database records which batches are in the table, so a
        stream of the same name continues where the last one ended, whatever ended it. `StreamOptions` lists
        the options.
        """
        from orchestrator.spark.loading.job import tables_of
        from orchestrator.spark.streams.run import run_stream

        check_names(options, StreamOptions, "load_stream")
        (table,) = tables_of(source, into, chosen(options, RowOptions))
        self._follow_batches(partial(run_stream, self.connection, table), options)

    def create_stream(
        self,
        name: str,
        columns: str,
        *paths: str | Path,
        format: str = "auto",  # noqa: A002
        options: Mapping[str, str] | None = None,
        op: str | None = None,
        where: str | None = None,
        select: str | None = None,
    ) -> None:
        """Create a table whose rows stay in files: views over it follow the files that `run_stream` finds.

        `columns` are the columns as in CREATE TABLE, `paths` are folders, patterns or URIs. With `op`, the files have
        a column of this name that says whether a row is inserted or deleted. `where` and `select` filter and compute
        rows in Spark's SQL.
        """
        given = [
            text if is_uri(text := str(path)) else str(Path(text).absolute()) for path in paths
        ]
        with self._ours(f"Creating {name}"):
            self.connection.execute(
                "SELECT idivm.create_stream(%s, %s, %s, %s, %s, %s, %s, %s,"
                " coalesce(%s, current_setting('search_path')))",
                [
                    *(name, columns, given, format, Jsonb(dict(options or {}))),
                    *(op, where, select, path_of(self.connection)),
                ],
            )

    def run_stream(self, name: str, **options: Unpack[RunStreamOptions]) -> None:
        """Let the views over a stream follow its files, in batches, each row exactly once.

        Each batch ends with the views that read the stream. The call returns when `stop` is set or, with `once`,
        when all files that have arrived are read. `RunStreamOptions` lists the options.
        """
        from orchestrator.spark.streams.run import run_stream_table

        check_names(options, RunStreamOptions, "run_stream")
        run = partial(run_stream_table, self.connection, parse_name(name))
        self._follow_batches(run, options)

    @contextmanager
    def read_streams(self, *names: str) -> Iterator[None]:
        """Read the files of streams once for all views that a block creates, recomputes or checks.

        Their batches wait until the block ends.
        """
        with self._ours("Reading streams"):
            oids = {
                name: relation_oid(self.connection, parse_name(name).identifier) for name in names
            }
            known = streams.stream_tables(self.connection, filter(None, oids.values()))
            for name, oid in oids.items():
                if oid not in known:
                    raise NotFoundError(f"There is no stream {name}.")
            with rows_read(self.connection, known):
                yield

    def drop_stream(self, name: str) -> None:
        """Drop a table whose rows stay in files. The files stay."""
        with self._ours(f"Dropping {name}"):
            oid = relation_oid(self.connection, parse_name(name).identifier)
            if oid is None:
                raise NotFoundError(f"There is no stream {name}.")
            self.connection.execute("SELECT idivm.drop_stream(%s::oid)", [oid])

    def ended_by(self, error: Exception) -> Literal["server", "spark"] | None:
        """Return whether a stream ended because of the server or Spark; None for rows and options."""
        from orchestrator.spark.errors import SparkError

        try:
            self.connection.execute("SELECT")
        except psycopg.Error:
            return "server"
        return "spark" if isinstance(error, SparkError) else None

    def streams(self) -> list[StreamStatus]:
        """Return the streams that load tables, by name."""
        with self._ours("Listing streams", writes=False):
            return streams.list_streams(self.connection)

    def remove_stream(self, name: str) -> None:
        """Forget a stream, so that a stream of this name begins from the start; its rows stay in the table."""
        with self._ours("Removing a stream"):
            streams.remove(self.connection, name)

    def _follow_batches(self, run: Callable[..., None], options: Mapping[str, Any]) -> None:
        """Run a stream, and refresh the views that read its table after each batch."""
        from orchestrator.spark.streams.batches import Pace

        on_batch = options.get("on_batch")

        def finished(batch: StreamBatch, decision: Decision) -> None:
            report = self._with_views(batch.report, decision)
            if on_batch is not None:
                on_batch(replace(batch, report=report))

        pace = Pace(
            options.get("name"),
            seconds(options.get("interval", "1s")),
            options.get("most_files", 1000),
            options.get("once", False),
        )
        with self._ours("Loading"):
            stop = options.get("stop") or threading.Event()
            run(pace, finished, stop=stop, **self._run_options(options))

    def _run_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return where and how a load runs: in the Spark session of this object, if a view has started it."""
        given = chosen(options, RunOptions)
        own = {} if given.keys() & {"spark", "master", "config"} else {"spark": self._spark}
        return {**own, **given}

    def _with_views(self, report: LoadReport, decision: Decision) -> LoadReport:
        """Refresh the views that a load has changed, and add them to its report."""
        if decision.action == "leave":
            return report
        started = time.perf_counter()
        refreshed = self._refresh([parse_name(name) for name in decision.names])
        stages = {**report.stages, "views": time.perf_counter() - started}
        changed = tuple((item.view, item.changed) for item in refreshed)
        return replace(report, refreshed=changed, stages=stages)
