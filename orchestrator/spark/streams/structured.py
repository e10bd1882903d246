"""Streams that Spark's Structured Streaming reads, such as Kafka.

Spark repeats a batch after a crash with the same rows. The database records the batch with the rows, and holds
a copy of Spark's checkpoint as of this batch. A stream always continues from this copy, so it can continue on
another machine, and it never depends on files that a crash may have left behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psycopg import Connection

from orchestrator.catalog import streams
from orchestrator.catalog.streams import Checkpoint, Stream
from orchestrator.errors import UsageError
from orchestrator.spark.loading.report import TableLoad
from orchestrator.spark.loading.sources import Source
from orchestrator.spark.local_files import own_folder
from orchestrator.spark.session import set_for_a_block
from orchestrator.spark.streams.batches import Batch, Pace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_RECORDS = "1000000"
"""The default of the maximum number of Kafka's records in a batch."""
_SETTINGS = {"spark.sql.streaming.minBatchesToRetain": "2"}
"""The checkpoint is stored with each batch, so it should be small."""


def follow(
    connection: Connection[Any],
    spark: SparkSession,
    table: TableLoad,
    stream: Stream,
    options: Pace,
    load: Callable[[Batch], None],
    stop: threading.Event,
) -> None:
    """Load the batches of a streaming source until `stop` is set, or until all is loaded if `once`."""
    failures: list[BaseException] = []
    busy = threading.Lock()
    with own_folder() as own, set_for_a_block(spark, _SETTINGS):
        stored = files = streams.checkpoint_of(connection, stream.id)
        (folder := own / "checkpoint").mkdir()
        _restore(folder, stored)

        def checkpoint() -> Checkpoint:
            nonlocal files
            files = _files(folder)
            changed = {name: text for name, text in files.items() if stored.get(name) != text}
            return Checkpoint(frozenset(files), changed)

        def batch(frame: Any, number: int) -> None:
            nonlocal stored
            with busy:
                try:
                    if (
                        failures
                        or stop.is_set()
                        or number <= streams.last_batch(connection, stream.id)
                    ):
                        return
                    source = replace(table.source, paths=("frame:",), format="auto", options={})
                    wanted = replace(table, source=source, frame=frame)
                    load(Batch(wanted, number, checkpoint=checkpoint))
                    stored = files
                except BaseException as error:
                    # Raised below; Spark would log it. The database does not have the batch, so that Spark
                    # believes to have finished it has no effect.
                    failures.append(error)

        writer = _rows(spark, table.source, options).writeStream.foreachBatch(batch)
        writer = writer.option("checkpointLocation", folder.as_uri())
        trigger: dict[str, Any] = (
            {"availableNow": True}
            if options.once
            else {"processingTime": f"{max(1, round(options.interval * 1000))} milliseconds"}
        )
        query = writer.trigger(**trigger).start()
        try:
            while query.isActive and not failures and not stop.wait(0.1):
                pass
            if not stop.is_set() and not failures:
                # Raises the error of the query, if there is one.
                query.awaitTermination()
        finally:
            # After the batch that is being loaded.
            with busy:
                query.stop()
    if failures:
        raise failures[0]


def _rows(spark: SparkSession, source: Source, limits: Pace) -> Any:
    """Return the streaming rows of a source; the source's name is the topic of Kafka, and else a path."""
    options = dict(source.options)
    reader = spark.readStream.format(source.format)
    paths = [path for path in source.paths if path != "-"]
    if len(paths) > 1 and source.format != "kafka":
        raise UsageError(
            f"A stream of the format {source.format} has one source: give a pattern, or a stream for each of "
            f"{', '.join(paths)}."
        )
    if source.format == "kafka":
        if paths:
            options.setdefault("subscribe", ",".join(paths))
            paths = []
        # Kafka's own default, the latest records, would skip records if the stream ends before its first batch.
        options.setdefault("startingOffsets", "earliest")
        options.setdefault("maxOffsetsPerTrigger", _MOST_RECORDS)
    elif paths and "maxBytesPerTrigger" not in options:
        options.setdefault("maxFilesPerTrigger", str(limits.most_files))
    if schema := options.pop("schema", None):
        reader = reader.schema(schema)
    reader = reader.options(**options)
    return reader.load(paths[0]) if paths else reader.load()


def _restore(folder: Path, checkpoint: dict[str, bytes]) -> None:
    for name, content in checkpoint.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _files(folder: Path) -> dict[str, bytes]:
    """Return the files of the checkpoint, without checksums, which Spark does not need."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }
