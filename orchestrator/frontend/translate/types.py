"""The types of computed columns, as far as they follow without asking PostgreSQL."""

from __future__ import annotations

from sqlglot import exp

from orchestrator.algebra import Column, Scalar
from orchestrator.algebra.scalar import unwrapped

_EXACT = {
    "smallint": "integer_ops",
    "integer": "integer_ops",
    "bigint": "integer_ops",
    "boolean": "bool_ops 16",
    "date": "datetime_ops 1082",
    "timestamp without time zone": "datetime_ops 1114",
    "timestamp with time zone": "datetime_ops 1184",
    "uuid": "uuid_ops 2950",
    "oid": "oid_ops 26",
}
"""Types whose equal values look the same, with the catalog's name of their equality."""

_BOOLEAN = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.And, exp.Or, exp.Not, exp.Is)

COUNTING = frozenset({"count", "row_number", "rank", "dense_rank"})
"""Functions that return bigint."""


def typed(symbol: str, kind: str | None) -> Column:
    """Return a column with a type, given by name.

    >>> typed("n", "bigint").equality
    'integer_ops'
    """
    equality = _EXACT.get(kind or "")
    return Column(symbol, kind, equality, equality is not None)


def type_of(scalar: Scalar) -> str | None:
    """Return the type of an expression's value, if its outermost part determines it.

    >>> type_of(Scalar.read("(a)::date")), type_of(Scalar.read("(a > b)")), type_of(Scalar.read("f(a)"))
    ('date', 'boolean', None)
    """
    tree = unwrapped(scalar.tree)
    if isinstance(tree, exp.Cast):
        return str(tree.to.args["kind"])
    if isinstance(tree, (*_BOOLEAN, exp.Exists, exp.Boolean)):
        return "boolean"
    if isinstance(tree, exp.Literal) and not tree.is_string and tree.name.isdecimal():
        return "integer" if int(tree.name) < 2**31 else None
    return None
