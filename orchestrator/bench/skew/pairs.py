"""Pairs (a, c) that meet in some b, over heavy and light values: measure costs as the data grow.

The bounds are from example 4 of papers/hierarchical-queries.txt. A one-row change costs O(N^ε) on
average. The step to the next result row costs O(N^(1-ε)). The view stores O(N^(1+ε)) rows, which is
also the cost of preprocessing. Each measure uses the data on which it is largest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from psycopg import sql

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import refreshing, require_equal
from orchestrator.bench.measure import slope
from orchestrator.bench.report import Bar
from orchestrator.bench.skew import slopes
from orchestrator.bench.skew.cycles import by_epsilon, changed, rebalancing_bars, stored, view
from orchestrator.bench.skew.rebalancing import Light, rebalanced
from orchestrator.bench.workload import Workload
from orchestrator.catalog import readers as catalog_readers

PAIRS = Workload("pairs")
NAME = "pairs"
SIZES = (10_000, 100_000, 1_000_000)
"""The rows on which changes and delays are measured."""
STORED = (3_162, 10_000, 31_623)
"""The rows on which stored rows and preprocessing are measured: N^(7/4) are half a million."""
FILL, READING, CHANGE = range(3)
"""Data sets, by the measure that is largest on them."""
NEARLY_HEAVY = Light(
    "SELECT (SELECT count(*) FROM r WHERE b = 1000000) + (SELECT count(*) FROM s WHERE b = 1000000)",
    "INSERT INTO r SELECT -n, 1000000 FROM unnest(%s::bigint[]) AS n",
    table="r",
)
CHANGES = (
    slopes.row_of("a row that meets nothing", "r", {"a": -1, "b": -1}, slopes.constant),
    slopes.row_of("rows of a light value", "r", {"a": -2, "b": 1_000_000}, slopes.light, b=-2),
    slopes.row_of(
        "a value that is frequent in s alone", "r", {"a": -3, "b": 3_000_000}, slopes.constant
    ),
)
MARGIN = 0.12
"""Slopes of other measurements may exceed the exponents by this margin."""
PAGE = 1_024
"""Rows whose delays are added up: the enumeration reads this many at a time."""

Growth = dict[str, Any]


def measured(
    orchestrator: Orchestrator,
    name: str,
    size: int,
    epsilon: str,
    updates: int,
    say: Callable[[str], None],
) -> Iterator[Growth]:
    """Yield a row of the report for each kind of change."""
    share = Fraction(epsilon)
    yield from changed(
        orchestrator,
        PAIRS,
        name,
        NAME,
        size,
        share,
        CHANGE,
        CHANGES,
        None,
        updates,
        say,
    )


def filled(
    orchestrator: Orchestrator, name: str, size: int, epsilon: str, say: Callable[[str], None]
) -> Growth:
    """Return a row of the report with the stored rows, and the costs of preprocessing and rebalancing."""
    share, connection = Fraction(epsilon), orchestrator.connection
    with view(orchestrator, PAIRS, NAME, size, share, FILL, say) as named:
        catalog_readers.invalidate(connection, [orchestrator.view(named).id])
        refresh = refreshing(connection, [named])
        steps, _ = slopes.steps_of(connection, refresh)
        growth = slopes.row_for(name, size, share) | {
            **stored(orchestrator, named),
            "preprocessing": steps,
        }
        say(f"{name}, {size:,} rows, ε = {share}: rebalancing")
        growth |= rebalanced(orchestrator, named, refresh, NEARLY_HEAVY)
        require_equal(orchestrator, [named])
        return growth


def read(
    orchestrator: Orchestrator, name: str, size: int, epsilon: str, say: Callable[[str], None]
) -> Growth:
    """Return a row of the report with the delays of a whole enumeration."""
    share = Fraction(epsilon)
    with view(orchestrator, PAIRS, NAME, size, share, READING, say) as named:
        say(f"{name}, {size:,} rows, ε = {share}: reading the result")
        mean, most = delays(orchestrator, named)
        return slopes.row_for(name, size, share) | {
            "delay": round(mean, 2),
            "longest delay": round(most, 2),
        }


def delays(orchestrator: Orchestrator, name: str) -> tuple[float, float]:
    """Return the steps between two rows: the mean over all rows, and the largest mean over a page."""
    connection = orchestrator.connection
    rows = total = 0
    most = 0.0
    with connection.transaction():
        connection.execute("SELECT idivm.enumerate(%s)", [name])
        before = slopes.steps(connection)
        while page := len(connection.execute(f"FETCH {PAGE} FROM idivm_rows").fetchall()):
            after = slopes.steps(connection)
            rows, total = rows + page, total + after - before
            most = max(most, (after - before) / page)
            before = after
    return total / rows, most


def run(orchestrator: Orchestrator, statement: sql.Composed) -> None:
    """Execute a change."""
    orchestrator.connection.execute(statement)


def growth_of(rows: Sequence[Growth], measure: str, **which: str) -> float | None:
    """Return the slope of a measure over the rows of the report that have some values, if there are several."""
    points = [(row["rows"], row[measure]) for row in rows if which.items() <= row.items()]
    return slope(points) if len(points) > 1 else None


def bars(rows: Sequence[Growth]) -> Iterator[Bar]:
    """Yield bars that compare the growth of each measure with the exponents of theorem 3."""
    for epsilon, own in by_epsilon(rows, NAME):
        called = f"{NAME}, skew {epsilon}"
        yield from slopes.exponents(own, CHANGES, epsilon, called)
        yield from rebalancing_bars(own, called, None, epsilon)
        for measure, title, theory in (
            ("delay", "steps to the next row", 1 - epsilon),
            ("longest delay", "steps to the next row at most", 1 - epsilon),
            ("stored", "rows stored", 1 + epsilon),
            ("largest state", "rows of the largest state", 1 + epsilon),
            ("preprocessing", "steps of preprocessing", 1 + epsilon),
        ):
            title = f"{called}, slope of {title}"
            yield from slopes.of_measure(title, own, measure, theory)
