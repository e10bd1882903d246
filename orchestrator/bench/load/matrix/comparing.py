"""What the matrix of loads counts: paths, types, values, and values that differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from psycopg.sql import SQL, Identifier

from orchestrator.api import Orchestrator

T = TypeVar("T")

HOSTILE = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
    "spark.sql.orc.enableVectorizedReader": "false",
}
"""Settings of a session of somebody else that must not change what is loaded."""


@dataclass
class Matrix:
    """A run over the matrix: where it loads, and what it has counted."""

    orc: Orchestrator
    spark: Any
    folder: Path
    seed: int = 1582
    share: int = 1
    """Of types, values and paths, the run takes one of so many."""
    part: int = 0
    """The part that a run with a share takes."""
    paths: set[str] = field(default_factory=set)
    values: dict[str, set[str]] = field(default_factory=dict)
    """The different values of each type."""
    compared: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)

    def taken(self, items: Sequence[T], keep: int = 0) -> list[T]:
        """Return the items of this part, after the first ones, which every part has."""
        return [*items[:keep], *items[keep:][self.part % self.share :: self.share]]

    def their_session(self) -> Any:
        """Return a session with the settings of somebody else."""
        session = self.spark.newSession()
        for name, value in HOSTILE.items():
            session.conf.set(name, value)
        return session

    def went(
        self, path: str, values: Mapping[str, Collection[object]], compared: int, refused: int = 0
    ) -> None:
        """Count the values of types that went a path, and how many rows or values were compared."""
        self.paths.add(path)
        for kind, some in values.items():
            self.values.setdefault(kind, set()).update(map(repr, some))
        self.compared += compared
        self.refused += refused

    def differs(self, path: str, what: str, actual: object, expected: object) -> None:
        """Record a difference."""
        self.wrong.append(f"{path}, {what}: {actual!r:.300} instead of {expected!r:.300}")

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Execute a statement with the generated names of the matrix."""
        cursor = self.orc.connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []

    def same(self, path: str, table: str, other: str) -> None:
        """Compare two tables as bags of rows."""
        names = [Identifier(table), Identifier(other)]
        query = SQL("""
            SELECT count(*), min(r), (SELECT count(*) FROM {0}) - (SELECT count(*) FROM {1})
            FROM (SELECT p::text FROM {0} AS p EXCEPT ALL SELECT q::text FROM {1} AS q) AS s (r)""")
        (row,) = self.orc.connection.execute(query.format(*names)).fetchall()
        if row != (0, None, 0):
            self.differs(path, f"rows that only {table} has, one of them, and surplus", row, 0)
