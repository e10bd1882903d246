"""What rebalancing costs a view over heavy and light parts, and which share of it a change of one row pays.

The changes between two values that move, and between two changes of N, are too many to run. The proofs
count how many they are at least, over which the costs measured here are spread.
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
from orchestrator.catalog.parts import Parts
from orchestrator.errors import DatabaseError, UsageError

SMALL = 1_000
"""Rows of a batch that is not so large that everything might be recomputed."""
BESIDE = 50_000_000
"""Values from here on have a row of their own."""


class Rebalancing:
    """What rebalancing costs a view."""

    def __init__(
        self, orchestrator: Orchestrator, name: str, refresh: Callable[[], Execution]
    ) -> None:
        """Nothing is measured at first."""
        self.orchestrator, self.name, self.refresh = orchestrator, name, refresh
        self.at_first = self.parts
        self.minor: int | None = None
        self.major: int | None = None

    @property
    def parts(self) -> Parts:
        """The view's parts as they are."""
        result = self.orchestrator.parts(self.orchestrator.view(self.name))
        assert result is not None
        return result

    @property
    def share(self) -> float:
        """The buffers of a change that pay for rebalancing, if so many changes lie between two."""
        minor = (self.minor or 0) / max(1.0, self.at_first.threshold / 2)
        return minor + (self.major or 0) / (self.at_first.base / 4)

    def one_value(self, rows: int, add: Callable[[int], object]) -> None:
        """Measures the change after which a light value is heavy, which has so many rows and gets more."""
        more = math.ceil(self.parts.threshold * 3 / 2) - rows
        if more < 1:
            raise UsageError(
                f"The value has {rows:,} rows, too many to be light: give larger --sizes, or another --epsilon."
            )
        self.refresh()
        before = self.parts.minor
        for some in (more - 1, 1):
            add(some)
            run = self.refresh()
        if self.parts.minor == before:
            raise DatabaseError("No value became heavy: its measurement would say nothing.")
        self.minor = run.buffers

    def light_value(self, light: Light) -> None:
        """The same, of a value that is known to be light."""
        connection, numbers = self.orchestrator.connection, count(2 * BESIDE)
        [rows] = connection.execute(light.rows.encode()).fetchone() or [0]
        self.one_value(
            rows,
            lambda some: connection.execute(light.more.encode(), [list(islice(numbers, some))]),
        )

    def all_rows(self) -> None:
        """Measures the change after which all rows are divided again, or the view computed with them."""
        before = self.parts.base
        run = self.refresh()
        if self.parts.base == before:
            raise DatabaseError("N did not grow: its measurement would say nothing.")
        self.major = run.buffers


@dataclass(frozen=True)
class Light:
    """A light value with many rows of a relation."""

    rows: str
    """The query that counts them."""
    more: str
    """The statement that adds some, given their numbers."""
    columns: int = 2
    """Those of the relation."""


def rebalanced(
    orchestrator: Orchestrator, name: str, refresh: Callable[[], Execution], light: Light
) -> dict[str, Any]:
    """What it costs a view that a light value becomes heavy, and that s grows until N must."""
    view = Rebalancing(orchestrator, name, refresh)
    view.light_value(light)
    grow(orchestrator, [view], "s", light.columns)
    return {"a value moves": view.minor, "all are divided": view.major, "share": view.share}


def grow(
    orchestrator: Orchestrator, views: Sequence[Rebalancing], table: str, columns: int
) -> None:
    """Lets a relation grow until N must; rows of their own keep all others as they are."""
    for view in views:
        view.refresh()
    if not views:
        return
    insert = sql.SQL(
        "INSERT INTO {} SELECT {} FROM generate_series(%s::bigint, %s::bigint) AS n"
    ).format(sql.Identifier(table), sql.SQL(", ").join([sql.SQL("n")] * columns))
    parts = views[0].parts
    last = BESIDE + parts.base - parts.size - 1
    for first in range(BESIDE, last, SMALL):
        orchestrator.connection.execute(insert, [first, min(first + SMALL, last) - 1])
        for view in views:
            view.refresh()
    orchestrator.connection.execute(insert, [last, last])
    for view in views:
        view.all_rows()
