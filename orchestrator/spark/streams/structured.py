"""Streams that Spark's Structured Streaming reads, such as Kafka.

Spark repeats a batch after a crash with the same rows. The database records the batch with the rows, and holds
a copy of Spark's checkpoint as of this batch. A stream always continues from this copy, so it can continue on
another machine, and it never depends on files that a crash may have left behind.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psycopg import Connection

from orchestrator.catalog import streams
from orchestrator.catalog.streams import Stream
from orchestrator.spark.loading.report import TableLoad
from orchestrator.spark.loading.sources import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orchestrator.spark.streams.run import StreamOptions


def follow(
    connection: Connection[Any],
    spark: SparkSession,
    table: TableLoad,
    stream: Stream,
    options: StreamOptions,
    load: Callable[..., None],
    stop: threading.Event,
) -> None:
    """Load the batches of a streaming source until `stop` is set, or until all is loaded if `once`."""
    failures: list[BaseException] = []
    with tempfile.TemporaryDirectory(prefix="idivm-stream-") as name:
        folder = Path(name)
        _restore(folder, streams.checkpoint_of(connection, stream.id))

        def batch(frame: Any, number: int) -> None:
            try:
                if number <= streams.last_batch(connection, stream.id) or frame.isEmpty():
                    return
                source = replace(table.source, paths=("frame:",), format="auto", options={})
                wanted = replace(table, source=source, frame=frame)
                load(wanted, number, [], lambda: _files(folder))
            except BaseException as error:
                failures.append(error)
                raise

        writer = _rows(spark, table.source).writeStream.foreachBatch(batch)
        writer = writer.option("checkpointLocation", folder.as_uri())
        trigger: dict[str, Any] = (
            {"availableNow": True}
            if options.once
            else {"processingTime": f"{max(1, round(options.interval * 1000))} milliseconds"}
        )
        query = writer.trigger(**trigger).start()
        try:
            while query.isActive and not stop.wait(0.1):
                pass
            if not stop.is_set() and not failures:
                # Raises the error of the query, if there is one.
                query.awaitTermination()
        except Exception:
            if not failures:
                raise
        finally:
            query.stop()
    if failures:
        raise failures[0]


def _rows(spark: SparkSession, source: Source) -> Any:
    """Return the streaming rows of a source; the source's name is the topic of Kafka, and else a path."""
    options = dict(source.options)
    reader = spark.readStream.format(source.format)
    paths = [path for path in source.paths if path != "-"]
    if source.format == "kafka" and paths:
        options.setdefault("subscribe", ",".join(paths))
        paths = []
    if schema := options.pop("schema", None):
        reader = reader.schema(schema)
    reader = reader.options(**options)
    return reader.load(paths[0]) if paths else reader.load()


def _restore(folder: Path, checkpoint: list[tuple[str, bytes]]) -> None:
    for name, content in checkpoint:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _files(folder: Path) -> list[tuple[str, bytes]]:
    """Return the files of the checkpoint, without checksums, which Spark does not need."""
    return [
        (str(path.relative_to(folder)), path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    ]
