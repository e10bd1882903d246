"""Equal values that look different: 1.0 and 1.00, '1 day' and '24 hours', 'a' and 'A' under a
collation that ignores case.

A group shows the value of one of its rows. When no row has that value any more, the group must show
another one. The rules therefore also compare such values by their texts.
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
from orchestrator.algebra.unsupported import NotModelledError

EXACT = frozenset(
    {
        *("smallint", "integer", "bigint", "oid", "boolean", "date", "uuid", "bytea"),
        *("timestamp without time zone", "timestamp with time zone", "time without time zone"),
    }
)
"""Types whose equal values are always identical."""

FIRST_USER_OID = 16384
"""The smallest oid of objects that users create."""

_DECLARED = re.compile(r"(numeric|character)\((\d+)(?:,(-?\d+))?\)")
"""Types whose values all have the same scale or length."""


def look_alike(columns: Iterable[Column], types: Mapping[str, ColumnType]) -> tuple[Column, ...]:
    """Return the columns whose equal values may look different.

    >>> declared = Column("price", "numeric(9,2)", "numeric_ops 1700")
    >>> free, day = Column("rate", "numeric", "numeric_ops 1700"), Column("day", "date", exact=True)
    >>> [str(column) for column in look_alike([declared, free, day], {})]
    ['rate']
    >>> look_alike([free], {"rate": ColumnType("numeric", True, scale=2)})
    ()
    """
    return tuple(column for column in columns if not _is_exact(column, types.get(column.symbol)))


def have_one_look(columns: Iterable[Column], types: Mapping[str, ColumnType]) -> bool:
    """Return whether columns whose own equal values look the same also show each other's values in the same way.

    >>> price, fee = Column("price", "numeric(9,2)"), Column("fee", "numeric(5,2)")
    >>> have_one_look([price, fee], {}), have_one_look([price, Column("rate", "numeric(9,4)")], {})
    (True, False)
    """
    return len({_declared(column, types.get(column.symbol)) for column in columns}) <= 1


def refuse_arrays(columns: Iterable[Column], types: Mapping[str, ColumnType]) -> None:
    """Refuse to take a column of arrays from one row of a group: `array_agg` would join the arrays to one."""
    for column in columns:
        known = types.get(column.symbol)
        if (known.name if known is not None else column.type or "").endswith("[]"):
            raise NotModelledError("arrays are not netted as bags", str(column))


def _is_exact(column: Column, known: ColumnType | None) -> bool:
    if column.exact:
        return True
    if column.type is not None and _DECLARED.fullmatch(column.type) and _is_plain(column):
        return True
    if known is None:
        return False
    return known.name in EXACT or known.scale is not None or known.plain


def _declared(column: Column, known: ColumnType | None) -> tuple[str, str]:
    """Return the length or scale that values of a column are padded to, or nothing."""
    if known is not None and known.scale is not None:
        return "numeric", str(known.scale)
    match = _DECLARED.fullmatch(column.type or "")
    if match is None:
        return "", ""
    return match[1], match[2] if match[1] == "character" else match[3] or "0"


def _is_plain(column: Column) -> bool:
    """Return whether a column has no collation, or a built-in one. Built-in collations distinguish
    all texts.
    """
    return column.equality is not None and not _has_own_collation(column)


def _has_own_collation(column: Column) -> bool:
    collation = (column.equality or "").split()[2:]
    return any(int(oid) >= FIRST_USER_OID for oid in collation)


def has_own_collations(plan: Operator) -> bool:
    """Return whether a plan may compare texts by a user-defined collation.

    >>> from orchestrator.algebra.examples import PARTS
    >>> has_own_collations(PARTS)
    False
    """
    for operator in walk(plan):
        if any(map(_has_own_collation, operator.columns)):
            return True
        for scalar in operator.scalars:
            if any(map(_may_have_collation, scalar.tree.find_all(exp.Collate, exp.Cast))):
                return True
    return False


def _may_have_collation(tree: exp.Expr) -> bool:
    """Return whether an expression specifies a collation, or a domain that may have one."""
    return isinstance(tree, exp.Collate) or "." in str(tree.args["to"].args.get("kind"))


def image(columns: Iterable[Column]) -> Scalar:
    """Return an expression for the texts of some columns as a single text.

    >>> image([Column("a"), Column("b")])
    Scalar(ROW(a, b)::text COLLATE "C")
    """
    named = {f"x{number}": column for number, column in enumerate(columns)}
    return filled(f'ROW({", ".join(named)})::text COLLATE "C"', **named)
