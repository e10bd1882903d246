"""Triangle queries with free variables over heavy and light parts: measure costs as the data grow.

The measures are the cost of a change, the cost of a result row, and the stored rows. They follow
theorem 3 of papers/ivm-eps-triangle-queries.txt. Each measure uses the data on which it is largest.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from fractions import Fraction
from itertools import cycle, islice, pairwise
from math import ceil
from typing import Any

from psycopg import sql

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import (
    TUPLE,
    Contender,
    in_turn,
    refreshing,
    require,
    require_equal,
)
from orchestrator.bench.measure import slope, states_touched
from orchestrator.bench.report import Bar
from orchestrator.bench.skew import pairs
from orchestrator.bench.skew.rebalancing import Light, rebalanced
from orchestrator.bench.workload import Workload, vacuum
from orchestrator.runtime.enumeration import hop, ordered
from orchestrator.runtime.enumeration.order import order_of
from orchestrator.runtime.installation import names as view_names

CYCLES = Workload("cycles")
NAMES = ("unary", "binary", "ternary")
"""Triangle queries by the number of free variables."""
SIZES = (10_000, 50_625, 160_000)
"""Fourth powers of 10, 15 and 20.

At an ε of 3/4, a row meets as many values as the fourth root allows: two, three and four. At other
sizes, rounding to whole numbers would look like growth.
"""
EPSILONS = ("1/4", "1/2", "3/4")
BLOCKS, STARS, SQUARE = range(3)
"""Data sets, by the measure that is largest on them."""
LIGHT = Light(
    "SELECT count(*) FROM s WHERE b = 2", "INSERT INTO s SELECT 2, n FROM unnest(%s::bigint[]) AS n"
)
STREAMED = 300
"""Rows of a summand to read one after the other, beyond those that end a bucket of blocks."""

_CALLED = {
    "with rebalancing": "buffers touched by a change",
    "stored": "rows stored",
    "delay": "buffers to the next row",
    "longest delay": "buffers to the next row at most",
}

Growth = dict[str, Any]


def measured(
    orchestrator: Orchestrator,
    name: str,
    size: int,
    epsilon: str,
    updates: int,
    say: Callable[[str], None],
) -> Iterator[Growth]:
    """Yield a row of the report for `skew` at an ε, and one for `tuple` with the cost of a change."""
    share = Fraction(epsilon)
    skew, rows = pairs.beside_tuple(name, size, share)
    with views(orchestrator, CYCLES, name, size, share, STARS, (skew, TUPLE), say) as names:
        turns = ("INSERT INTO r VALUES (1, 2)", "DELETE FROM r WHERE a = 1 AND b = 2")
        note_changes(orchestrator, rows, names, turns, updates)
        note_rebalancing(orchestrator, rows[skew.label], names[skew.label], LIGHT, say)
    with views(orchestrator, CYCLES, name, size, share, BLOCKS, (skew,), say) as names:
        mean, longest = delays(orchestrator, names[skew.label])
        rows[skew.label] |= {"delay": round(mean, 1), "longest delay": longest}
        rows[skew.label]["stored"] = pairs.stored(orchestrator, names[skew.label])
    if name == "ternary":
        with views(orchestrator, CYCLES, name, size, share, SQUARE, (skew,), say) as names:
            rows[skew.label]["stored"] = pairs.stored(orchestrator, names[skew.label])
    yield from rows.values()


def note_changes(
    orchestrator: Orchestrator,
    rows: Mapping[str, Growth],
    names: Mapping[str, str],
    changes: Sequence[str],
    updates: int,
) -> None:
    """Note the cost of refreshes of each view after one-row changes, which repeat in turn."""
    turns = cycle(changes)
    refreshes = {
        label: refreshing(orchestrator.connection, [view]) for label, view in names.items()
    }
    series = in_turn(
        refreshes,
        lambda: pairs.run(orchestrator, sql.SQL(next(turns)).format()),
        updates,
        max(6, 2 * len(changes)),
    )
    require_equal(orchestrator, list(names.values()))
    for label, runs in series.items():
        rows[label]["buffers"] = round(statistics.mean(r.buffers for r in runs.runs), 1)
        rows[label]["ms"] = round(statistics.mean(runs.times), 3)


def note_rebalancing(
    orchestrator: Orchestrator, growth: Growth, name: str, light: Light, say: Callable[[str], None]
) -> None:
    """Note the cost of rebalancing a view, and of a change including its share of rebalancing."""
    say(f"{growth['graph']}, {growth['rows']:,} rows: rebalancing")
    measured = rebalanced(orchestrator, name, refreshing(orchestrator.connection, [name]), light)
    require_equal(orchestrator, [name])
    growth["with rebalancing"] = round(growth["buffers"] + measured.pop("share"), 1)
    growth |= measured


@contextmanager
def views(
    orchestrator: Orchestrator,
    workload: Workload,
    query: str,
    size: int,
    epsilon: Fraction,
    kind: int,
    sides: Sequence[Contender],
    say: Callable[[str], None],
) -> Iterator[dict[str, str]]:
    """Create views over data of a kind; yield their names by label."""
    settings = {"rows": size, "epsilon": int(epsilon * 1000), "kind": kind}
    with workload.tables(orchestrator, settings):
        say(f"{workload.name}, {query}, {size:,} rows: creating views for ε = {epsilon}")
        names = {
            side.label: require(orchestrator, "v", workload.text(query), side) for side in sides
        }
        vacuum(orchestrator)
        yield names


def delays(orchestrator: Orchestrator, name: str) -> tuple[float, int]:
    """Return the buffers touched between two rows: the mean where it is largest, and the maximum.

    The function reads a limited number of rows of each summand, and then of all summands together.
    """
    connection, view = orchestrator.connection, orchestrator.view(name)
    order = order_of(connection, view_names.names_of(view), view.plan)
    assert order is not None
    means, longest = [0.0], [0]
    parts = orchestrator.parts(view)
    assert parts is not None
    most = STREAMED + ceil(1.5 * parts.threshold)
    every = range(len(order.unions))
    for places in (*([place] for place in every), every):
        with connection.transaction():
            ordered.by_lookups(connection)
            touched = [states_touched(connection)]
            # A cursor that is still open ends with the transaction.
            with closing(hop.distinct(connection, order, places, ahead=1)) as rows:
                touched += (states_touched(connection) for _ in islice(rows, most))
        steps = [after - before for before, after in pairwise(touched)]
        if steps:
            means.append(statistics.mean(steps))
            longest.append(max(steps))
    return max(means), max(longest)


def _exponents(name: str, epsilon: Fraction) -> dict[str, Fraction]:
    """Return the exponents with which the measures grow according to theorem 3 and table 1."""
    least = min(epsilon, 1 - epsilon)
    delay = {"unary": 2 * least, "binary": least}.get(name, Fraction(0))
    return {
        "with rebalancing": 1 - least,
        "stored": Fraction(3, 2) if name == "ternary" else 1 + least,
        "delay": delay,
        "longest delay": delay,
    }


def bars(rows: Sequence[Growth]) -> Iterator[Bar]:
    """Yield bars that compare the growth of each measure with its exponent."""
    for name in dict.fromkeys(row["graph"] for row in rows):
        yield from slopes(
            [row for row in rows if row["graph"] == name],
            lambda epsilon: _exponents(name, epsilon),  # noqa: B023
        )


def slopes(
    rows: Sequence[Growth], exponents: Callable[[Fraction], Mapping[str, Fraction]]
) -> Iterator[Bar]:
    """Yield bars that compare the growth of each measure of a query with its exponent, for each ε."""
    for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
        for measure, exponent in exponents(Fraction(epsilon)).items():
            points = [
                (row["rows"], row[measure])
                for row in rows
                if (row["side"], row["epsilon"]) == (f"skew {epsilon}", epsilon)
            ]
            if len(points) > 1:
                yield Bar(
                    f"{rows[0]['graph']}, skew {epsilon}, slope of {_CALLED[measure]}",
                    slope(points),
                    "<=",
                    round(float(exponent) + pairs.MARGIN, 4),
                )
