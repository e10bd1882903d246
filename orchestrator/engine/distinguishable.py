"""Values that are equal and look different: 1.0 and 1.00, '1 day' and '24 hours', 'a' and 'A' under a
collation that ignores case.

A group shows one of its rows' values. When no row shows that value any more, the group must show
another one, so the rules compare such values by their text as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from sqlglot import exp

from orchestrator.algebra.column_type import ColumnType
from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.scalar import Scalar, filled
from orchestrator.algebra.traversal import walk

EXACT = frozenset(
    {
        *("smallint", "integer", "bigint", "oid", "boolean", "date", "uuid", "bytea"),
        *("timestamp without time zone", "timestamp with time zone", "time without time zone"),
    }
)
"""Types whose equal values are the same to the bit."""

FIRST_USER_OID = 16384
"""Objects that PostgreSQL itself brings have smaller oids."""

_DECLARED = re.compile(r"(numeric|character)\(\d+(,-?\d+)?\)")
"""Types whose values are all shown with as many digits or blanks."""


def look_alike(columns: Iterable[Column], types: Mapping[str, ColumnType]) -> tuple[Column, ...]:
    """Return the columns of which equal values may look different.

    >>> declared = Column("price", "numeric(9,2)", "numeric_ops 1700")
    >>> free, day = Column("rate", "numeric", "numeric_ops 1700"), Column("day", "date", exact=True)
    >>> [str(column) for column in look_alike([declared, free, day], {})]
    ['rate']
    >>> look_alike([free], {"rate": ColumnType("numeric", True, scale=2)})
    ()
    """
    return tuple(column for column in columns if not _is_exact(column, types.get(column.symbol)))


def _is_exact(column: Column, known: ColumnType | None) -> bool:
    if column.exact:
        return True
    if column.type is not None and _DECLARED.fullmatch(column.type) and _is_plain(column):
        return True
    if known is None:
        return False
    return known.name in EXACT or known.scale is not None or known.plain


def _is_plain(column: Column) -> bool:
    """Return whether a column has no collation, or one that PostgreSQL brings: these tell all texts apart."""
    return column.equality is not None and not _has_own_collation(column)


def _has_own_collation(column: Column) -> bool:
    collation = (column.equality or "").split()[2:]
    return any(int(oid) >= FIRST_USER_OID for oid in collation)


def has_own_collations(plan: Operator) -> bool:
    """Return whether a plan may compare texts by a collation of a user's own.

    >>> from orchestrator.algebra.examples import PARTS
    >>> has_own_collations(PARTS)
    False
    """
    for operator in walk(plan):
        if any(map(_has_own_collation, operator.columns)):
            return True
        for scalar in operator.scalars:
            if any(map(_may_bring_one, scalar.tree.find_all(exp.Collate, exp.Cast))):
                return True
    return False


def _may_bring_one(tree: exp.Expr) -> bool:
    """Return whether an expression gives a collation by name, or by a domain."""
    return isinstance(tree, exp.Collate) or "." in str(tree.args["to"].args.get("kind"))


def image(columns: Iterable[Column]) -> Scalar:
    """Return what some columns look like, as one text.

    >>> image([Column("a"), Column("b")])
    Scalar(ROW(a, b)::text COLLATE "C")
    """
    named = {f"x{number}": column for number, column in enumerate(columns)}
    return filled(f'ROW({", ".join(named)})::text COLLATE "C"', **named)
