"""The request for a load, and its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.spark.loading.sources import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class TableLoad:
    """The request for one table."""

    into: str
    source: Source
    frame: DataFrame | None = None
    """A caller's DataFrame to load, instead of the source's paths."""
    mode: str = "append"
    create: bool = False
    add_columns: bool = False
    """Whether the load adds columns that only the source has."""
    key: tuple[str, ...] = ()
    op: str | None = None
    """The column of the source that says what happened to a row, such as insert or delete; with `upsert` and `add`."""
    order: str | None = None
    """The column of the source that orders the changes of a row; with `upsert`, the last change counts."""
    on_bad_row: str = "stop"
    max_bad_rows: int = 10_000


@dataclass(frozen=True)
class RejectedRow:
    """A rejected row."""

    file: str | None
    row: int | None
    line: int | None
    column: str | None
    reason: str
    content: str

    def __str__(self) -> str:
        """Return where the row is, and what is wrong with it."""
        place = f"line {self.line}" if self.line else f"row {self.row}" if self.row else ""
        where = ", ".join(
            part for part in (self.file, place, self.column and f"column {self.column}") if part
        )
        return f"{where}: {self.reason}" if where else self.reason


@dataclass(frozen=True)
class LoadedTable:
    """The result of a load for one table."""

    table: str
    load: int
    mode: str
    read: int
    loaded: int
    removed: int
    rejected: int
    again: bool = False
    """Whether the same load was done before, so that nothing was loaded."""
    columns: tuple[tuple[str, str], ...] = ()
    rejected_rows: tuple[RejectedRow, ...] = ()


@dataclass(frozen=True)
class LoadReport:
    """The result of a load, with the seconds of its stages."""

    tables: tuple[LoadedTable, ...]
    views: str
    refreshed: tuple[tuple[str, int], ...] = ()
    """The refreshed views, with the number of changed rows in each."""
    stages: Mapping[str, float] = field(default_factory=dict)
    initialised: tuple[tuple[str, str], ...] = ()
    """The views whose states were recomputed, and how each state was computed."""

    @property
    def seconds(self) -> float:
        """The duration of the load, including the start of Spark."""
        return sum(self.stages.values())

    @property
    def rejected(self) -> int:
        """The number of rejected rows."""
        return sum(table.rejected for table in self.tables)
