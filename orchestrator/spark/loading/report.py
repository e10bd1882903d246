"""What a load is asked for, and what it tells afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.spark.loading.sources import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class TableLoad:
    """What is to be loaded into one table."""

    into: str
    source: Source
    frame: DataFrame | None = None
    """Rows that are there already, in place of the source's paths."""
    mode: str = "append"
    create: bool = False
    add_columns: bool = False
    """Whether the table gets the columns that only the source has."""
    key: tuple[str, ...] = ()
    on_bad_row: str = "stop"
    max_bad_rows: int = 10_000


@dataclass(frozen=True)
class RejectedRow:
    """A row that was left out."""

    file: str | None
    row: int | None
    line: int | None
    column: str | None
    reason: str
    content: str

    def __str__(self) -> str:
        """Where it is and what is wrong with it."""
        place = f"line {self.line}" if self.line else f"row {self.row}" if self.row else ""
        where = ", ".join(
            part for part in (self.file, place, self.column and f"column {self.column}") if part
        )
        return f"{where}: {self.reason}" if where else self.reason


@dataclass(frozen=True)
class LoadedTable:
    """What a load did to one table."""

    table: str
    load: int
    mode: str
    read: int
    loaded: int
    removed: int
    rejected: int
    again: bool = False
    """Whether the same load had been done before, so that nothing was left to do."""
    columns: tuple[tuple[str, str], ...] = ()
    rejected_rows: tuple[RejectedRow, ...] = ()


@dataclass(frozen=True)
class LoadReport:
    """What a load did, with the seconds of its stages."""

    tables: tuple[LoadedTable, ...]
    views: str
    refreshed: tuple[tuple[str, int], ...] = ()
    """Views brought up to date, with the rows that changed in them."""
    stages: Mapping[str, float] = field(default_factory=dict)
    initialised: tuple[tuple[str, str], ...] = ()
    """Views whose states were recomputed, with who has computed which."""

    @property
    def seconds(self) -> float:
        """How long the load took, the start of Spark included."""
        return sum(self.stages.values())

    @property
    def rejected(self) -> int:
        """How many rows were left out."""
        return sum(table.rejected for table in self.tables)
