"""Whether a view shows what its query answers: the query as the user wrote it, and as it is settled.

Where a query leaves something open, as which of equal rows LIMIT keeps, the definition view settles
it, and a view must show the settled answer to the letter. Beside it stands the query as it was
written, which the settled one was derived from: the view must also be one of its correct answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from psycopg import Connection
from psycopg.sql import SQL, Composable, Identifier

from orchestrator.algebra import Plan, dialect
from orchestrator.algebra.analysis.nondeterminism import Kind, Openness, openness
from orchestrator.algebra.analysis.origins import magnitudes, representatives
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.rendering import to_sql
from orchestrator.algebra.traversal import walk
from orchestrator.deltascript.names import Names
from orchestrator.engine.distinguishable import look_alike
from orchestrator.frontend.analysis import analyse
from orchestrator.runtime import catalog
from orchestrator.runtime.diagnosis.check import SAMPLES, CheckResult, compare
from orchestrator.runtime.installation import column_types

_NOTES = {
    Kind.NEAR: "{} compared within a tolerance, as sums of floats depend on the order of the rows",
    Kind.EQUAL: "{} compared by =, as equal values may look different",
    Kind.BAG: "{} compared without the order, which the query leaves open",
    Kind.OPEN: "{} not compared, as the query leaves the choice open",
}

ROWS = (
    "the rows were compared with the settled order alone, as the query leaves open which they are"
)


def check_view(connection: Connection[Any], view: Composable, view_id: int) -> CheckResult:
    """Compare a view with its definition and, if that differs, with the query as it was written."""
    names = Names(view_id, "")
    result = _against(connection, view, names.definition, "the query")
    if not result.equal or not catalog.exists(connection, names.written):
        return result
    as_written = _against(connection, view, names.written, "the query as it was written")
    notes = dict.fromkeys((*result.notes, *as_written.notes))
    return replace(as_written, notes=tuple(notes))


def wide_kinds(connection: Connection[Any], names: Names, columns: int) -> list[tuple[Kind, ...]]:
    """Return how to compare what a view stores, from the strictest way to the widest.

    Nobody knows of a state which of its columns the query leaves open.
    """
    found = _openness(connection, names.definition)
    widest = max(found[1](found[0]).kinds, default=Kind.SAME) if found is not None else Kind.SAME
    ways = [Kind.EQUAL, *([Kind.BAG] if widest >= Kind.BAG else [])]
    return [(kind,) * columns for kind in ways]


def _against(
    connection: Connection[Any], view: Composable, query: Identifier, called: str
) -> CheckResult:
    """Compare to the letter, and if that fails, as far as the query determines its answer."""
    strict = compare(connection, view=view, definition=query)
    found = None if strict.equal else _openness(connection, query)
    if found is None:
        return strict
    plan, settled = found
    known = settled(plan)
    if known.is_nothing:
        return strict
    notes = tuple(_notes(plan.names, known.kinds))
    if not known.rows:
        return CheckResult(True, 0, 0, notes=(ROWS.format(called),))
    slacks = _slacks(connection, plan, known.kinds)
    result = compare(connection, view=view, definition=query, kinds=known.kinds, slacks=slacks)
    if result.equal:
        result = _represented(connection, view, plan, settled)
    return replace(result, notes=notes)


Settled: TypeAlias = Callable[[Plan], Openness]
"""Tells of a part of a query's plan what two correct answers agree on."""


def _openness(connection: Connection[Any], query: Identifier) -> tuple[Plan, Settled] | None:
    oid = catalog.relation_oid(connection, query)
    assert oid is not None
    plan = analyse(connection, oid).plan
    if plan is None:
        return None
    types = column_types.types_of(connection, plan)
    columns = {column for one in walk(plan.root) for column in one.columns}
    exact = columns.difference(look_alike(columns, types))
    names = {symbol: one.name for symbol, one in types.items()}
    rings = catalog.rings(connection)
    return plan, lambda part: openness(part, names, rings, exact)


ERROR = 1e-13
"""The part of the size of all terms of a sum by which two sums of them may differ."""


def _slacks(connection: Connection[Any], plan: Plan, kinds: Iterable[Kind]) -> list[float]:
    """Return by how much the numbers of each column may be off, whatever their own size."""
    sizes = magnitudes(plan)
    slacks = []
    for name, kind in zip(plan.names, kinds, strict=True):
        size = 0.0
        if kind is Kind.NEAR and name in sizes:
            query = SQL("SELECT max(q.{}::float8) FROM ({}) AS q").format(
                Identifier(sizes[name].names[0]), SQL(dialect.write(to_sql(sizes[name])))
            )
            row = connection.execute(query).fetchone()
            size = row[0] if row is not None and row[0] is not None else 0.0
        slacks.append(ERROR * size if math.isfinite(size) else 0.0)
    return slacks


def _notes(names: Iterable[str], kinds: Iterable[Kind]) -> Iterable[str]:
    pairs = list(zip(names, kinds, strict=True))
    for kind, note in _NOTES.items():
        listed = [name for name, one in pairs if one is kind]
        if listed:
            yield note.format(f"{', '.join(listed)} {'was' if len(listed) == 1 else 'were'}")


def _represented(
    connection: Connection[Any], view: Composable, plan: Plan, settled: Settled
) -> CheckResult:
    """Look whether each group shows a key that one of its rows has now."""
    for below, keys in representatives(plan):
        columns = tuple(column for _, column in keys)
        known = settled(Plan(below, tuple(map(str, columns)), columns))
        # Where the rows themselves show one of several looks, the query may have chosen another now.
        shown = [key for key, kind in zip(keys, known.kinds, strict=True) if kind is Kind.SAME]
        rows = _stale(connection, view, below, shown) if known.rows and shown else []
        if rows:
            return CheckResult(False, 0, len(rows), (), tuple(rows[:SAMPLES]))
    return CheckResult(True, 0, 0)


def _stale(
    connection: Connection[Any],
    view: Composable,
    below: Operator,
    shown: list[tuple[str, Any]],
) -> list[str]:
    """Return the keys that a view shows and no row of the groups' input does, as texts."""
    columns = tuple(column for _, column in shown)
    once = tuple(dict.fromkeys(columns))
    rows = Plan(below, tuple(map(str, once)), once)
    listed = [SQL("v.{}").format(Identifier(name)) for name, _ in shown]
    # A row that an outer join has padded stands for no group.
    query = SQL(
        "SELECT ROW({shown})::text FROM {view} AS v WHERE num_nonnulls({shown}) > 0"
        " EXCEPT SELECT ROW({keys})::text FROM ({rows}) AS r"
    ).format(
        shown=SQL(", ").join(listed),
        view=view,
        keys=SQL(", ").join(SQL("r.{}").format(Identifier(str(column))) for column in columns),
        rows=SQL(dialect.write(to_sql(rows))),
    )
    return [row[0] for row in connection.execute(query).fetchall()]
