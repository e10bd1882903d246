"""What the correct answers of a query agree on, as queries and facts for comparisons in the
database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Composable, Identifier

from orchestrator import catalog
from orchestrator.algebra import Plan, dialect
from orchestrator.algebra.analysis.nondeterminism import Kind, Openness, openness
from orchestrator.algebra.analysis.origins import magnitudes, representatives
from orchestrator.algebra.ids import infer_ids
from orchestrator.algebra.rendering import to_sql
from orchestrator.algebra.traversal import walk
from orchestrator.engine.distinguishable import look_alike
from orchestrator.frontend.analysis import analyse
from orchestrator.planning.column_types import types_of

__all__ = ["Agreement", "Kind", "ShownKeys", "agreement"]


@dataclass(frozen=True)
class ShownKeys:
    """The keys of groups that a view shows; each value must occur in some row of its group."""

    columns: tuple[tuple[str, str], ...]
    """Columns of the view, each with the column of `rows` that it shows."""
    rows: Composable
    """The query of the input of the groups."""


@dataclass(frozen=True)
class Agreement:
    """What two correct answers of a query agree on."""

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    """How closely the answers agree on each column."""
    rows: bool
    """Whether the answers have the same rows, apart from differences in their columns."""
    sizes: Mapping[str, Composable]
    """For columns that show sums of floats, the query of the sums of absolute values."""
    keys: tuple[ShownKeys, ...]

    @property
    def is_complete(self) -> bool:
        """Whether there is only one correct answer."""
        return self.rows and not any(self.kinds)


def agreement(connection: Connection[Any], query: Identifier) -> Agreement | None:
    """Return what the answers of a definition view agree on, or None if its query is not modeled."""
    oid = catalog.relation_oid(connection, query)
    assert oid is not None
    plan = analyse(connection, oid).plan
    if plan is None:
        return None
    identified = infer_ids(plan)
    types = types_of(connection, identified if isinstance(identified, Plan) else plan)
    columns = {column for operator in walk(plan.root) for column in operator.columns}
    exact = columns.difference(look_alike(columns, types))
    type_names = {symbol: type_.name for symbol, type_ in types.items()}
    rings = catalog.rings(connection)

    def open_in(part: Plan) -> Openness:
        return openness(part, type_names, rings, exact)

    whole = open_in(plan)
    return Agreement(
        names=plan.names,
        kinds=whole.kinds,
        rows=whole.rows,
        sizes={name: _query(sizes) for name, sizes in magnitudes(plan).items()},
        keys=tuple(_shown_keys(plan, open_in)),
    )


def _shown_keys(plan: Plan, open_in: Callable[[Plan], Openness]) -> Iterator[ShownKeys]:
    for groups, keys in representatives(plan):
        columns = tuple(column for _, column in keys)
        openness_of_rows = open_in(Plan(groups, tuple(map(str, columns)), columns))
        # If the rows themselves are not determined, the query may show another value now.
        pairs = [
            key for key, kind in zip(keys, openness_of_rows.kinds, strict=True) if kind is Kind.SAME
        ]
        if openness_of_rows.rows and pairs:
            needed = tuple(dict.fromkeys(column for _, column in pairs))
            rows = _query(Plan(groups, tuple(map(str, needed)), needed))
            yield ShownKeys(tuple((name, str(column)) for name, column in pairs), rows)


def _query(plan: Plan) -> Composable:
    return SQL(dialect.write(to_sql(plan)))
