"""The loads of the Python interface: tables in bulk, and streams in batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import psycopg

from orchestrator.api.statements import Statements
from orchestrator.catalog import streams
from orchestrator.catalog.streams import StreamStatus
from orchestrator.frontend.options import seconds
from orchestrator.frontend.statements import parse_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from orchestrator.spark.loading.effects import Decision
    from orchestrator.spark.loading.report import LoadReport
    from orchestrator.spark.streams.batches import StreamBatch


class Loads(Statements):
    """Loads files, databases, DataFrames and streams into tables."""

    def load(
        self,
        source: str | Path | Sequence[str | Path] | DataFrame,
        into: str | None = None,
        *,
        create: bool = False,
        add_columns: bool = False,
        mode: str | None = None,
        key: Sequence[str] = (),
        op: str | None = None,
        order: str | None = None,
        format: str | None = None,  # noqa: A002 - the name in Spark
        options: Mapping[str, str] | None = None,
        where: str | None = None,
        select: str | None = None,
        partitions: int | None = None,
        on_bad_row: str | None = None,
        max_bad_rows: int | None = None,
        views: str = "auto",
        master: str | None = None,
        config: Mapping[str, object] | None = None,
        resume: bool = False,
        again: bool = False,
        spark: SparkSession | None = None,
        say: Callable[..., None] | None = None,
    ) -> LoadReport:
        """Load files, a database or a DataFrame into a table with Spark, each row exactly once.

        Without `into`, `source` is a load file (TOML) that names several tables. Spark runs at `master`, else
        at IDIVM_SPARK_MASTER, else on all cores of this machine.
        """
        from orchestrator.spark.loading.job import tables_of
        from orchestrator.spark.loading.load import run
        from orchestrator.spark.loading.progress import silent

        said = {
            "create": create or None,
            "add_columns": add_columns or None,
            "mode": mode,
            "key": list(key) or None,
            "op": op,
            "order": order,
            "format": format,
            "options": dict(options) if options else None,
            "where": where,
            "select": select,
            "partitions": partitions,
            "on_bad_row": on_bad_row,
            "max_bad_rows": max_bad_rows,
        }
        tables = tables_of(source, into, {k: v for k, v in said.items() if v is not None})
        with self._ours("Loading"):
            report, decision = run(
                self.connection,
                tables,
                master=master,
                config=config,
                views=views,
                resume=resume,
                again=again,
                spark=spark,
                say=say or silent,
            )
        return self._with_views(report, decision)

    def load_stream(
        self,
        source: str | Path | Sequence[str | Path],
        into: str,
        *,
        name: str | None = None,
        mode: str | None = None,
        key: Sequence[str] = (),
        op: str | None = None,
        order: str | None = None,
        format: str | None = None,  # noqa: A002 - the name in Spark
        options: Mapping[str, str] | None = None,
        where: str | None = None,
        select: str | None = None,
        on_bad_row: str | None = None,
        max_bad_rows: int | None = None,
        interval: str = "1s",
        most_files: int = 1000,
        once: bool = False,
        views: str = "auto",
        master: str | None = None,
        config: Mapping[str, object] | None = None,
        spark: SparkSession | None = None,
        say: Callable[..., None] | None = None,
        on_batch: Callable[[StreamBatch], None] | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """Load files as they arrive, or a streaming source of Spark, in batches, each row exactly once.

        Each batch ends with the views that read the table. The call returns when `stop` is set or, with
        `once`, when all that has arrived is loaded. The database records which batches are in the table, so a
        stream of the same name continues where the last one ended, whatever ended it.
        """
        from orchestrator.spark.loading.job import tables_of
        from orchestrator.spark.loading.progress import silent
        from orchestrator.spark.streams.batches import StreamOptions
        from orchestrator.spark.streams.run import run_stream

        settings = {
            "mode": mode,
            "key": list(key) or None,
            "op": op,
            "order": order,
            "format": format,
            "options": dict(options) if options else None,
            "where": where,
            "select": select,
            "on_bad_row": on_bad_row,
            "max_bad_rows": max_bad_rows,
        }
        (table,) = tables_of(source, into, {k: v for k, v in settings.items() if v is not None})

        def finished(batch: StreamBatch, decision: Decision) -> None:
            report = self._with_views(batch.report, decision)
            if on_batch is not None:
                on_batch(replace(batch, report=report))

        with self._ours("Loading"):
            run_stream(
                self.connection,
                table,
                StreamOptions(name, seconds(interval), most_files, once),
                finished,
                master=master,
                config=config,
                views=views,
                spark=spark,
                say=say or silent,
                stop=stop or threading.Event(),
            )

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

    def _with_views(self, report: LoadReport, decision: Decision) -> LoadReport:
        """Refresh the views that a load has changed, and add them to its report."""
        if decision.action == "leave":
            return report
        started = time.perf_counter()
        refreshed = self._refresh([parse_name(name) for name in decision.names])
        stages = {**report.stages, "views": time.perf_counter() - started}
        changed = tuple((item.view, item.changed) for item in refreshed)
        return replace(report, refreshed=changed, stages=stages)
