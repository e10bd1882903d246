"""The pace of a stream, and its batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.catalog.streams import Checkpoint
from orchestrator.spark.loading.report import LoadReport, TableLoad


@dataclass(frozen=True)
class Pace:
    """What a stream is called, and when and how much it loads."""

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
    waiting: int
    """The number of files that have arrived and are in no batch yet."""
    report: LoadReport


@dataclass(frozen=True)
class Batch:
    """A batch to load."""

    table: TableLoad
    number: int
    files: Sequence[Mapping[str, Any]] = ()
    waiting: int = 0
    checkpoint: Callable[[], Checkpoint] | None = None
    """Returns Spark's checkpoint as of the batch, if Spark reads the stream."""
