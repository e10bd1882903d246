"""Measure each kind of change alone as data grow, and compare the growth with the exponent of a theorem.

The cost of a change is the number of lookups in indexes, of rows that are read, and of rows that are written. These
are the steps in which the papers count; pages would add the height of the indexes, and times the noise of the
machine. A change of a row that meets nothing has the constant cost of a refresh. It is subtracted from the cost of
each other change, so that the slope is that of the part which grows. A slope must be near the exponent from both
sides: the data must reach the bound.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from psycopg import Connection, sql

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import refreshing, require_equal
from orchestrator.bench.measure import Execution, slope
from orchestrator.bench.report import NEAR, Bar
from orchestrator.bench.workload import SCHEMA
from orchestrator.deltascript.plan import StateTable
from orchestrator.errors import DatabaseError
from orchestrator.runtime.installation import names as view_names

Growth = dict[str, Any]

SETTLE = 6
"""Refreshes of each kind that do not count, because PostgreSQL plans their statements."""
UPPER = ("stored", "longest delay", "preprocessing", "share of rebalancing")
"""The measures whose smaller terms hide the growth of the largest. A mean or a part of them must reach the bound."""
COST, NET = "steps", "steps less constant"
"""The measures of a change."""


@dataclass(frozen=True)
class Change:
    """A kind of change: a row that comes and goes, and a row beside it that meets nothing."""

    kind: str
    there: str
    """The statement that inserts the row."""
    back: str
    """The statement that deletes it."""
    exponent: Callable[[Fraction], Fraction]
    """The exponent of its cost for a given ε."""
    constant: tuple[str, str] | None = None
    """The statements for a row whose refreshes have the same constant cost, and nothing else.

    No other change has its values: each change leaves dead rows, which lookups of the same values read.
    """


def row_of(
    kind: str,
    table: str,
    values: Mapping[str, int],
    exponent: Callable[[Fraction], Fraction],
    **nothing: int,
) -> Change:
    """Return the change that inserts and deletes a row; with the values `nothing` it meets nothing.

    >>> change = row_of("light", "r", {"a": 1, "b": 2}, light, b=-1)
    >>> change.back, change.constant[0]
    ('DELETE FROM r WHERE a = 1 AND b = 2', 'INSERT INTO r (a, b) VALUES (1, -1)')
    """
    constant = _statements(table, {**values, **nothing}) if nothing else None
    return Change(kind, *_statements(table, values), exponent, constant)


def _statements(table: str, values: Mapping[str, int]) -> tuple[str, str]:
    where = " AND ".join(f"{name} = {value}" for name, value in values.items())
    listed = ", ".join(map(str, values.values()))
    return (
        f"INSERT INTO {table} ({', '.join(values)}) VALUES ({listed})",  # noqa: S608 - our own names
        f"DELETE FROM {table} WHERE {where}",  # noqa: S608 - our own names
    )


def light(epsilon: Fraction) -> Fraction:
    """Return the exponent of the rows of a light value."""
    return epsilon


def heavy(epsilon: Fraction) -> Fraction:
    """Return the exponent of the number of heavy values."""
    return 1 - epsilon


def constant(epsilon: Fraction) -> Fraction:
    """Return the exponent of a change that does not depend on the data."""
    return Fraction(0)


def row_for(graph: str, size: int, epsilon: Fraction) -> Growth:
    """Return the columns of a row of the report that say what it measures."""
    return {
        "graph": graph,
        "rows": size,
        "epsilon": str(epsilon),
        "side": f"skew {epsilon}",
    }


def stored(orchestrator: Orchestrator, name: str) -> int:
    """Return the number of rows that a view stores."""
    return sum(_states(orchestrator, name))


def largest(orchestrator: Orchestrator, name: str) -> int:
    """Return the number of rows of the largest state of a view.

    All states together grow like this one. They also hold each relation several times, which hides its growth.
    """
    return max(_states(orchestrator, name))


def _states(orchestrator: Orchestrator, name: str) -> list[int]:
    view = orchestrator.view(name)
    names = view_names.names_of(view)
    states = (state for state in view.plan.program.states if isinstance(state, StateTable))
    counted = sql.SQL(" UNION ALL ").join(
        sql.SQL("SELECT count(*) FROM {}").format(names.state(state.role)) for state in states
    )
    return [int(row[0]) for row in orchestrator.connection.execute(counted)]


def bound(changes: Sequence[Change], epsilon: Fraction) -> Fraction:
    """Return the exponent of the most expensive change."""
    return max(change.exponent(epsilon) for change in changes)


def steps(connection: Connection[Any]) -> int:
    """Return the lookups and the rows read and written that this transaction counts so far.

    They concern the tables of the benchmark with their logs, and the states of views.
    """
    row = connection.execute(
        "SELECT sum(pg_stat_get_xact_numscans(oid) + pg_stat_get_xact_tuples_returned(oid)"
        " + pg_stat_get_xact_tuples_inserted(oid) + pg_stat_get_xact_tuples_updated(oid)"
        " + pg_stat_get_xact_tuples_deleted(oid))::bigint FROM pg_class"
        " WHERE relnamespace = ANY (%s::regnamespace[])",
        [["idivm_state", "idivm_log", SCHEMA]],
    ).fetchone()
    assert row is not None
    return int(row[0])


def steps_of(
    connection: Connection[Any], refresh: Callable[[], Execution]
) -> tuple[int, Execution]:
    """Return the steps of a refresh, and its other figures."""
    with connection.transaction():
        before = steps(connection)
        run = refresh()
        return steps(connection) - before, run


def measured(
    orchestrator: Orchestrator,
    name: str,
    changes: Sequence[Change],
    updates: int,
    known: Mapping[str, Any],
) -> Iterator[Growth]:
    """Yield a row of the report for each kind of change, with what is `known` of the view."""
    connection = orchestrator.connection
    refresh = refreshing(connection, [name])
    costs: dict[tuple[str, bool], list[int]] = {}
    runs: dict[str, list[Execution]] = {}
    # All kinds take turns, because earlier changes leave dead rows. The turns go back and forth, because a change also
    # reads what the changes before it have left in the log.
    turns = [
        (change.kind, meets, statements)
        for change in changes
        for meets, statements in ((True, (change.there, change.back)), (False, change.constant))
        if statements
    ]
    for number in range((SETTLE + updates) // 2):
        for kind, meets, statements in reversed(turns) if number % 2 else turns:
            for statement in statements:
                connection.execute(statement.encode())
                cost, run = steps_of(connection, refresh)
                if number >= SETTLE // 2:
                    costs.setdefault((kind, meets), []).append(cost)
                    if meets:
                        runs.setdefault(kind, []).append(run)
    require_equal(orchestrator, [name])
    for change in changes:
        whole, base = (
            float(statistics.mean(costs.get((change.kind, meets), [0]))) for meets in (True, False)
        )
        yield {
            **known,
            "kind": change.kind,
            COST: round(whole, 1),
            NET: round(whole - base, 1) if change.constant else None,
            "buffers": round(statistics.mean(run.buffers for run in runs[change.kind]), 1),
            "ms": round(statistics.median(run.milliseconds for run in runs[change.kind]), 3),
        }


def exponents(
    rows: Sequence[Growth], changes: Sequence[Change], epsilon: Fraction, called: str
) -> Iterator[Bar]:
    """Yield a bar for each kind of change: its slope beside its exponent.

    The most expensive kinds must reach their exponent, and so must those with a constant cost, to which the constant
    belongs. The other kinds meet few rows or heavy values, and one more would look like growth: they must only keep the
    bound of the theorem. If a kind costs nothing beyond the constant, that is an error, because its slope would say
    nothing.
    """
    most = bound(changes, epsilon)
    for change in changes:
        own = [row for row in rows if row.get("kind") == change.kind]
        if len(own) < 2:
            continue
        theory = change.exponent(epsilon)
        measure = NET if theory and change.constant else COST
        name = f"{called}, slope of a change, {change.kind}"
        for row in own:
            if row[measure] <= 0:
                raise DatabaseError(
                    f"{called}, {row['rows']:,} rows: a change of the kind {change.kind!r} costs no more than"
                    " a change that meets nothing, so its slope would say nothing."
                )
        if theory in (0, most):
            yield near(name, own, measure, theory)
        else:
            yield at_most(name, own, measure, most)


def near(name: str, rows: Sequence[Growth], measure: str, theory: Fraction) -> Bar:
    """Return the bar that a measure must grow with an exponent, no more and no less."""
    points = [(row["rows"], row[measure]) for row in rows]
    return Bar(name, slope(points), "≈", round(float(theory), 4))


def of_measure(name: str, rows: Sequence[Growth], measure: str, theory: Fraction) -> Iterator[Bar]:
    """Yield the bar on a measure, if several rows have it. A total or a maximum must only keep its bound."""
    noted = [row for row in rows if measure in row]
    if len(noted) > 1:
        bar = at_most if measure in UPPER else near
        yield bar(name, noted, measure, theory)


def at_most(name: str, rows: Sequence[Growth], measure: str, theory: Fraction) -> Bar:
    """Return the bar that a measure must grow with no more than an exponent."""
    return replace(near(name, rows, measure, theory), op="<=", limit=round(float(theory) + NEAR, 4))
