"""Pairs (a, c) that meet in some b, over heavy and light values: measure costs as the data grow.

The bounds are from example 4 of papers/hierarchical-queries.txt. A one-row change costs O(N^ε) on
average. The step to the next result row costs O(N^(1-ε)). The view stores O(N^(1+ε)) rows, which is
also the cost of preprocessing. The data reach all of these bounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import cycle, pairwise
from typing import Any

from psycopg import sql

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import (
    TUPLE,
    Contender,
    create,
    in_turn,
    refreshing,
    require_equal,
    view_name,
)
from orchestrator.bench.measure import slope, states_touched
from orchestrator.bench.report import Bar
from orchestrator.bench.skew.rebalancing import Light, Rebalancing, grow
from orchestrator.bench.workload import Workload, vacuum
from orchestrator.catalog import readers as catalog_readers
from orchestrator.deltascript.plan import StateTable
from orchestrator.errors import DatabaseError
from orchestrator.runtime.installation import names as view_names

PAIRS = Workload("pairs")
NAME = "pairs"
SIZES = (3_162, 10_000, 31_623)
LIGHT, HUB = 1_000_000, 3_000_000
"""Two values of b: one is light and nearly heavy, the other is frequent in s, but not in r."""
NEARLY_HEAVY = Light(
    "SELECT (SELECT count(*) FROM r WHERE b = 1000000) + (SELECT count(*) FROM s WHERE b = 1000000)",
    "INSERT INTO r SELECT -n, 1000000 FROM unnest(%s::bigint[]) AS n",
)
MARGIN = 0.12
"""Slopes may exceed the exponents by this margin."""
WALKED = 3_000
"""The number of rows that are read one after the other."""
MOST = Fraction(3, 4)
"""The largest ε; larger ones would store too many rows."""

_CALLED = {
    "with rebalancing": "buffers touched by a change",
    "delay": "buffers to the next row",
    "longest delay": "buffers to the next row at most",
    "stored": "rows stored",
    "preprocessing": "buffers of preprocessing",
}

Growth = dict[str, Any]


def measured(
    orchestrator: Orchestrator, size: int, epsilon: str, updates: int, say: Callable[[str], None]
) -> Iterator[Growth]:
    """Yield a row of the report for `skew` at an ε, and a row for `tuple` on the same data."""
    share = Fraction(epsilon)
    skew, rows = beside_tuple(NAME, size, share)
    with PAIRS.tables(orchestrator, {"rows": size, "epsilon": int(share * 1000)}):
        for item in (skew, TUPLE):
            say(f"pairs, {size:,} rows: creating {item.label} for ε = {share}")
            refused = create(orchestrator, "v", PAIRS.text("pairs"), item)
            if refused is not None:
                raise DatabaseError(f"{item.label} cannot be measured: {refused}")
        vacuum(orchestrator)
        names = {each.label: view_name("v", each) for each in (skew, TUPLE)}
        sides = {label: refreshing(orchestrator.connection, [v]) for label, v in names.items()}
        catalog_readers.invalidate(
            orchestrator.connection, [orchestrator.view(names[skew.label]).id]
        )
        rows[skew.label]["preprocessing"] = sides[skew.label]().buffers
        vacuum(orchestrator)
        for measure, value in (("buffers", LIGHT), ("at a hub", HUB)):
            turns = cycle(
                ("INSERT INTO r VALUES (-1, {})", "DELETE FROM r WHERE a = -1 AND b = {}")
            )
            change = (sql.SQL(text).format(sql.Literal(value)) for text in turns)
            series = in_turn(sides, lambda: run(orchestrator, next(change)), updates, 6)  # noqa: B023
            for label, runs in series.items():
                rows[label][measure] = round(statistics.mean(r.buffers for r in runs.runs), 1)
                if value == LIGHT:
                    rows[label]["ms"] = round(statistics.mean(runs.times), 3)
        require_equal(orchestrator, list(names.values()))
        extra = Rebalancing(orchestrator, names[skew.label], sides[skew.label])
        extra.light_value(NEARLY_HEAVY)
        require_equal(orchestrator, [names[skew.label]])
        # Deleted rows slow down the reads until they are vacuumed.
        vacuum(orchestrator)
        mean, most = delays(orchestrator, names[skew.label])
        rows[skew.label] |= {"delay": round(mean, 1), "longest delay": most}
        for label, name in names.items():
            rows[label]["stored"] = stored(orchestrator, name)
        say(f"pairs, {size:,} rows: growing to twice as many")
        grow(orchestrator, [extra], "r", 2)
        rows[skew.label] |= {
            "a value moves": extra.minor,
            "all are divided": extra.major,
            "with rebalancing": round(rows[skew.label]["buffers"] + extra.share, 1),
        }
        yield from rows.values()


def beside_tuple(graph: str, size: int, epsilon: Fraction) -> tuple[Contender, dict[str, Growth]]:
    """Return `skew` at an ε, and the report's rows for it and for `tuple` by label."""
    skew = Contender(f"skew {epsilon}", "skew", (("epsilon", str(epsilon)),))
    return skew, {
        item.label: {"graph": graph, "rows": size, "epsilon": str(epsilon), "side": item.label}
        for item in (skew, TUPLE)
    }


def row_for(graph: str, size: int, epsilon: Fraction) -> Growth:
    """Return the columns of a row of the report that say what it measures."""
    return {
        "graph": graph,
        "rows": size,
        "epsilon": str(epsilon),
        "side": f"skew {epsilon}",
    }


def run(orchestrator: Orchestrator, statement: sql.Composed) -> None:
    """Execute a change."""
    orchestrator.connection.execute(statement)


def delays(orchestrator: Orchestrator, name: str) -> tuple[float, int]:
    """Return the buffers touched between two rows: their mean and their maximum, over the first pages."""
    connection = orchestrator.connection
    with connection.transaction():
        connection.execute("SELECT idivm.enumerate(%s)", [name])
        counts = [states_touched(connection)]
        for _ in range(WALKED):
            connection.execute("FETCH 1 FROM idivm_rows")
            counts.append(states_touched(connection))
    steps = [after - before for before, after in pairwise(counts)]
    return statistics.mean(steps), max(steps)


def stored(orchestrator: Orchestrator, name: str) -> int:
    """Return the number of rows that a view stores."""
    view = orchestrator.view(name)
    names = view_names.names_of(view)
    states = (state for state in view.plan.program.states if isinstance(state, StateTable))
    tables = [names.state(state.role) for state in states]
    counted = (sql.SQL("(SELECT count(*) FROM {})").format(table) for table in tables)
    row = orchestrator.connection.execute(
        sql.SQL("SELECT {}").format(sql.SQL(" + ").join(counted))
    ).fetchone()
    assert row is not None
    return int(row[0])


def growth_of(rows: Sequence[Growth], measure: str, **which: str) -> float | None:
    """Return the slope of a measure over the rows of the report that have some values, if there are several."""
    points = [(row["rows"], row[measure]) for row in rows if which.items() <= row.items()]
    return slope(points) if len(points) > 1 else None


def bars(rows: Sequence[Growth]) -> Iterator[Bar]:
    """Yield bars that compare the growth of each measure with the exponents of theorem 3."""
    for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
        share = float(Fraction(epsilon))
        for measure, exponent in (
            ("with rebalancing", share),
            ("delay", 1 - share),
            ("longest delay", 1 - share),
            ("stored", 1 + share),
            ("preprocessing", 1 + share),
        ):
            growth = growth_of(rows, measure, side=f"skew {epsilon}", epsilon=epsilon)
            if growth is not None:
                name = f"pairs, skew {epsilon}, slope of {_CALLED[measure]}"
                yield Bar(name, growth, "<=", round(exponent + MARGIN, 4))
