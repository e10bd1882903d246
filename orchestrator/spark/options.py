"""The options of loads and streams, as keywords of `Orchestrator.load` and `Orchestrator.load_stream`.

The command line and load files take the same names.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orchestrator.spark.streams.batches import StreamBatch


class RowOptions(TypedDict, total=False):
    """What a source is read as, and what its rows do to the table."""

    mode: str | None
    key: Sequence[str]
    op: str | None
    order: str | None
    format: str | None
    options: Mapping[str, str] | None
    where: str | None
    select: str | None
    on_bad_row: str | None
    max_bad_rows: int | None


class TableOptions(RowOptions, total=False):
    """The options of a table in a load, and of an entry of a load file."""

    create: bool
    add_columns: bool
    partitions: int | None


class RunOptions(TypedDict, total=False):
    """Where and how a load or a stream runs."""

    views: str
    master: str | None
    config: Mapping[str, object] | None
    spark: SparkSession | None
    say: Callable[..., None] | None


class LoadOptions(TableOptions, RunOptions, total=False):
    """The options of a load as keywords of `load`; [loads](loads.md) explains them."""

    resume: bool
    again: bool


class PaceOptions(TypedDict, total=False):
    """When a stream loads how much."""

    interval: str
    most_files: int
    once: bool
    on_batch: Callable[[StreamBatch], None] | None
    stop: threading.Event | None


class StreamOptions(RowOptions, RunOptions, PaceOptions, total=False):
    """The options of a stream as keywords of `load_stream`."""

    name: str | None


class RunStreamOptions(PaceOptions, total=False):
    """The options of a stream whose rows stay in files as keywords of `run_stream`."""

    master: str | None
    config: Mapping[str, object] | None
    spark: SparkSession | None
    say: Callable[..., None] | None


def check_names(options: Mapping[str, object], kind: type, function: str) -> None:
    """Raise the error of an unknown keyword, as Python does."""
    for name in options.keys() - kind.__annotations__.keys():
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


def chosen(options: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """Return the options of a kind that are set.

    >>> chosen({"mode": "upsert", "key": (), "max_bad_rows": 0, "where": None, "views": "leave"}, TableOptions)
    {'mode': 'upsert', 'max_bad_rows': 0}
    """
    return {
        name: value
        for name in kind.__annotations__
        if (value := options.get(name)) not in (None, (), [], {}) and value is not False
    }
