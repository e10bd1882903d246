"""Measure the cost of rebalancing heavy and light parts, and its share in a one-row change.

There are too many changes between two moves of a value, or between two changes of N, to run them
all. The proofs give the least number of these changes. The measured costs are divided by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from psycopg import sql

from orchestrator.api import Orchestrator
from orchestrator.bench.measure import Execution
from orchestrator.bench.skew.slopes import steps_of
from orchestrator.catalog.parts import Parts
from orchestrator.errors import DatabaseError, UsageError

SMALL = 250
"""Rows of a batch, or a fortieth of all rows; reading a larger log takes longer than recomputing the view."""
BESIDE = 50_000_000
"""Values from this number on are new and do not meet existing rows."""


class Rebalancing:
    """The cost of rebalancing a view."""

    def __init__(
        self, orchestrator: Orchestrator, name: str, refresh: Callable[[], Execution]
    ) -> None:
        """Start without measurements."""
        self.orchestrator, self.name, self.refresh = orchestrator, name, refresh
        self.at_first = self.parts
        self.minor: int | None = None
        self.major: int | None = None
        self.minor_steps = self.major_steps = 0

    @property
    def parts(self) -> Parts:
        """The current parts of the view."""
        result = self.orchestrator.parts(self.orchestrator.view(self.name))
        assert result is not None
        return result

    @property
    def share(self) -> float:
        """The buffers of rebalancing per change, at the least number of changes between rebalances."""
        return self._by_change(self.minor or 0, self.major or 0)

    @property
    def share_in_steps(self) -> float:
        """The steps of rebalancing per change."""
        return self._by_change(self.minor_steps, self.major_steps)

    def _by_change(self, minor: int, major: int) -> float:
        threshold, base = self.at_first.threshold, self.at_first.base
        return minor / max(1.0, threshold / 2) + major / (base / 4)

    def without_recompute(self) -> None:
        """Let the next refresh apply a diff, however large it is and however slow the machine is.

        A recompute would set N anew before it becomes too small.
        """
        view = self.orchestrator.view(self.name)
        self.orchestrator.connection.execute(
            "INSERT INTO idivm.costs AS c (view, access_seconds, row_seconds) VALUES (%s, 1e-15, 1)"
            " ON CONFLICT (view) DO UPDATE SET access_seconds = EXCLUDED.access_seconds,"
            " row_seconds = EXCLUDED.row_seconds, content_row_seconds = NULL, content_share = NULL,"
            " loses_from = NULL, losses = 0",
            [view.id],
        )

    def one_value(self, rows: int, add: Callable[[int], object]) -> None:
        """Measure the change that makes a light value with `rows` rows heavy; `add` inserts rows."""
        more = math.ceil(self.parts.threshold * 3 / 2) - rows
        if more < 1:
            raise UsageError(
                f"The value has {rows:,} rows, too many to be light: give larger --sizes, or another --epsilon."
            )
        self.refresh()
        before = self.parts.minor
        few = batch_of(self.parts)
        chunks = [min(few, more - 1 - first) for first in range(0, more - 1, few)]
        for some in (*chunks, 1):
            add(some)
            self.without_recompute()
            self.minor_steps, run = steps_of(self.orchestrator.connection, self.refresh)
        if self.parts.minor == before:
            raise DatabaseError("No value became heavy: its measurement would say nothing.")
        self.minor = run.buffers

    def light_value(self, light: Light) -> None:
        """Measure the same for a given light value."""
        connection, numbers = self.orchestrator.connection, count(2 * BESIDE)
        [rows] = connection.execute(light.rows.encode()).fetchone() or [0]
        self.one_value(
            rows,
            lambda some: connection.execute(light.more.encode(), [list(islice(numbers, some))]),
        )

    def all_rows(self) -> None:
        """Measure the change after which all rows are divided again, or the view is recomputed."""
        before = self.parts.base
        self.major_steps, run = steps_of(self.orchestrator.connection, self.refresh)
        if self.parts.base == before:
            raise DatabaseError("N did not grow: its measurement would say nothing.")
        self.major = run.buffers


@dataclass(frozen=True)
class Light:
    """A light value with many rows of a relation."""

    rows: str
    """The query that counts its rows."""
    more: str
    """The statement that inserts more of its rows, given their numbers."""
    columns: int = 2
    """The number of columns of the relation."""
    table: str = "s"
    """A relation that can grow until N must grow."""


def rebalanced(
    orchestrator: Orchestrator, name: str, refresh: Callable[[], Execution], light: Light
) -> dict[str, Any]:
    """Measure the cost when a light value becomes heavy, and when a relation grows until N must grow."""
    view = Rebalancing(orchestrator, name, refresh)
    view.light_value(light)
    grow(orchestrator, [view], light.table, light.columns)
    return {
        "a value moves": view.minor_steps,
        "all are divided": view.major_steps,
        "share of rebalancing": round(view.share_in_steps, 1),
    }


def batch_of(parts: Parts) -> int:
    """Return the number of rows of a batch."""
    return max(SMALL, parts.size // 40)


def grow(
    orchestrator: Orchestrator, views: Sequence[Rebalancing], table: str, columns: int
) -> None:
    """Insert new rows into a relation until N must grow; other values keep their degrees."""
    for view in views:
        view.refresh()
    if not views:
        return
    insert = sql.SQL(
        "INSERT INTO {} SELECT {} FROM generate_series(%s::bigint, %s::bigint) AS n"
    ).format(sql.Identifier(table), sql.SQL(", ").join([sql.SQL("n")] * columns))
    parts = views[0].parts
    last = BESIDE + parts.base - parts.size - 1
    batch = batch_of(parts)
    for first in range(BESIDE, last, batch):
        orchestrator.connection.execute(insert, [first, min(first + batch, last) - 1])
        for view in views:
            view.without_recompute()
            view.refresh()
    orchestrator.connection.execute(insert, [last, last])
    for view in views:
        view.all_rows()
