"""Check whether a view shows the answer of its query: of the query as the user wrote it, and as settled.

Where a query leaves something open, for example which of equal rows LIMIT keeps, the definition view settles
it. A view must show the settled answer exactly. The settled query was derived from the written query, so the
view must also be one of the correct answers of the written query.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Composable, Identifier

from orchestrator import catalog
from orchestrator.deltascript.names import Names
from orchestrator.planning.agreement import Agreement, Kind, ShownKeys, agreement
from orchestrator.runtime.diagnosis.check import SAMPLES, CheckResult, compare

_NOTES = {
    Kind.NEAR: "{} compared within a tolerance, as sums of floats depend on the order of the rows",
    Kind.EQUAL: "{} compared by =, as equal values may look different",
    Kind.BAG: "{} compared without the order, which the query leaves open",
    Kind.OPEN: "{} not compared, as the query leaves the choice open",
}

ROWS = (
    "the rows were compared with the settled order alone, as the query leaves open which they are"
)


def check_view(
    connection: Connection[Any], view: Composable, view_id: int, refresh: Composable | None = None
) -> CheckResult:
    """Compare a view with its definition and, if they are equal, with the query as it was written.

    Each comparison runs `refresh` first, in the same message to the server.
    """
    names = Names(view_id, "")
    result = against(connection, view, names.definition, "the query", refresh)
    if not result.equal or not catalog.exists(connection, names.written):
        return result
    as_written = against(connection, view, names.written, "the query as it was written", refresh)
    notes = dict.fromkeys((*result.notes, *as_written.notes))
    return replace(as_written, notes=tuple(notes))


def wide_kinds(connection: Connection[Any], names: Names, columns: int) -> list[tuple[Kind, ...]]:
    """Return how to compare a stored state, from the strictest way to the widest.

    For a state, nothing records which of its columns the query leaves open.
    """
    known = agreement(connection, names.definition)
    widest = Kind.SAME if known is None else max(known.kinds, default=Kind.SAME)
    kinds = [Kind.EQUAL, *([Kind.BAG] if widest >= Kind.BAG else [])]
    return [(kind,) * columns for kind in kinds]


def against(
    connection: Connection[Any],
    view: Composable,
    query: Identifier,
    called: str,
    refresh: Composable | None = None,
) -> CheckResult:
    """Compare a view with a query exactly or, if that fails, as far as the query determines its answer."""
    strict = compare(connection, view=view, definition=query, refresh=refresh)
    known = None if strict.equal else agreement(connection, query)
    if known is None or known.is_complete:
        return strict
    if not known.rows:
        return CheckResult(True, 0, 0, notes=(ROWS.format(called),))
    slacks = _slacks(connection, known)
    result = compare(
        connection,
        view=view,
        definition=query,
        kinds=known.kinds,
        slacks=slacks,
        refresh=refresh,
    )
    if result.equal:
        result = _represented(connection, view, known)
    return replace(result, notes=tuple(_notes(known)))


ERROR = 1e-13
"""Two sums of the same terms may differ by this part of the size of all terms."""


def _slacks(connection: Connection[Any], known: Agreement) -> list[float]:
    """Return the absolute error that the numbers of each column may have."""
    slacks = []
    for name, kind in zip(known.names, known.kinds, strict=True):
        size = 0.0
        if kind is Kind.NEAR and name in known.sizes:
            query = SQL("SELECT max(q.{}::float8) FROM ({}) AS q({})")
            column = Identifier("size")
            row = connection.execute(query.format(column, known.sizes[name], column)).fetchone()
            size = row[0] if row is not None and row[0] is not None else 0.0
        slacks.append(ERROR * size if math.isfinite(size) else 0.0)
    return slacks


def _notes(known: Agreement) -> Iterator[str]:
    for kind, note in _NOTES.items():
        names = [
            name for name, agreed in zip(known.names, known.kinds, strict=True) if agreed is kind
        ]
        if names:
            yield note.format(f"{', '.join(names)} {'was' if len(names) == 1 else 'were'}")


def _represented(connection: Connection[Any], view: Composable, known: Agreement) -> CheckResult:
    """Check that each group shows a key that one of its rows has now."""
    for keys in known.keys:
        if rows := _stale(connection, view, keys):
            return CheckResult(False, 0, len(rows), (), tuple(rows[:SAMPLES]))
    return CheckResult(True, 0, 0)


def _stale(connection: Connection[Any], view: Composable, keys: ShownKeys) -> list[str]:
    """Return the keys that a view shows and no row of the groups' input has, as texts."""
    listed = [SQL("v.{}").format(Identifier(name)) for name, _ in keys.columns]
    # A row that an outer join padded with NULL stands for no group.
    query = SQL(
        "SELECT ROW({keys})::text FROM {view} AS v WHERE num_nonnulls({keys}) > 0"
        " EXCEPT SELECT ROW({columns})::text FROM ({rows}) AS r"
    ).format(
        keys=SQL(", ").join(listed),
        view=view,
        columns=SQL(", ").join(
            SQL("r.{}").format(Identifier(column)) for _, column in keys.columns
        ),
        rows=keys.rows,
    )
    return [row[0] for row in connection.execute(query).fetchall()]
