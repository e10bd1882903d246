"""Whether an expression may fail for rows that a query never computes.

A read evaluates the expressions of a query for images that are pending in the logs. Some of them were replaced
before anybody read the view, and joins pair old rows of one table with new rows of another. If an expression
can fail, for example by a division by zero, only rows that the query itself computes may be evaluated.
"""

from __future__ import annotations

from sqlglot import exp

from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Grouping
from orchestrator.algebra.scalar import Scalar
from orchestrator.algebra.traversal import walk

_SAFE = (
    *(exp.Column, exp.Literal, exp.Boolean, exp.Null, exp.Identifier, exp.DataType, exp.Paren),
    *(exp.And, exp.Or, exp.Not, exp.Is, exp.In, exp.Between, exp.Case, exp.If, exp.Coalesce),
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ),
    *(exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Nullif, exp.Tuple, exp.DPipe, exp.Like, exp.ILike),
)
"""Nodes that never fail, except by an overflow."""

_SAFE_FUNCTIONS = frozenset(
    {
        *("abs", "ceil", "ceiling", "floor", "round", "trunc", "sign", "greatest", "least"),
        *("upper", "lower", "length", "char_length", "btrim", "ltrim", "rtrim", "concat", "md5"),
        *("date_trunc", "extract", "date_part", "coalesce", "nullif", "reverse", "strpos"),
    }
)
"""Functions of pg_catalog that return a result for every argument of their usual types."""

_NUMBERS = frozenset({"smallint", "integer", "bigint", "numeric", "real", "double precision"})

_TIMES = frozenset({"date", "timestamp without time zone", "timestamp with time zone"})

_SAFE_CASTS = {
    **dict.fromkeys(("numeric", "double precision", "bigint"), _NUMBERS),
    **dict.fromkeys(("text", "character varying"), _NUMBERS | _TIMES | {"boolean", "uuid"}),
    "date": _TIMES,
}
"""For each type, the types of which it takes every value, unless a number is too large."""


def may_fail(plan: Operator) -> bool:
    """Return whether an expression of an operator may fail for some values; its inputs do not count."""
    scalars = plan.scalars
    if isinstance(plan, Grouping):
        calls = [(*item.arguments, item.filter) for item in plan.aggregates]
        scalars = tuple(scalar for call in calls for scalar in call if scalar is not None)
    return any(_fails(scalar) for scalar in scalars)


def fails_above_a_join(plan: Operator) -> bool:
    """Return whether an expression over the result of a join may fail."""
    return any(
        may_fail(operator) and any(len(below.children) > 1 for below in walk(operator))
        for operator in walk(plan)
    )


def _fails(scalar: Scalar) -> bool:
    types = {column.symbol: column.type for column in scalar.references}
    return any(not _is_safe(node, types) for node in scalar.tree.walk())


def _is_safe(node: Tree, types: dict[str, str | None]) -> bool:
    if isinstance(node, exp.Cast):
        columns = {types.get(column.name) for column in node.this.find_all(exp.Column)}
        return columns <= _SAFE_CASTS.get(_target(node), frozenset()) and (
            not columns or _is_number_or_time(node.this)
        )
    if isinstance(node, (exp.Div, exp.Mod)):
        # Unlike -1, a positive divisor takes every integer. A negative literal is another node.
        divisor = node.expression
        return isinstance(divisor, exp.Literal) and divisor.is_number and float(divisor.this) > 0
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _SAFE_FUNCTIONS
    return isinstance(node, _SAFE)


def _target(cast: exp.Cast) -> str:
    return str(cast.to.args.get("kind") or cast.to.sql("postgres")).lower()


def _is_number_or_time(node: Tree) -> bool:
    """Return whether an expression over columns that are numbers or times is certainly no text."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower() == "date_trunc" and _is_number_or_time(node.expressions[1])
    if isinstance(node, exp.Cast):
        return _target(node) in _NUMBERS | _TIMES
    if isinstance(node, exp.Literal):
        return node.is_number
    if isinstance(node, (exp.Paren, exp.Neg)):
        return _is_number_or_time(node.this)
    if isinstance(node, (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)):
        return _is_number_or_time(node.this) and _is_number_or_time(node.expression)
    return isinstance(node, exp.Column)
