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

_WIDE = ("text", "character varying", "numeric", "double precision", "bigint", "date")

_NARROW = frozenset({"smallint", "integer", "bigint", "numeric", "real", "double precision"})
"""Types of numbers that each of the wide types but dates takes."""


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
        columns = [types.get(column.name) for column in node.this.find_all(exp.Column)]
        target = node.to.sql("postgres").lower()
        named = str(node.to.args.get("kind") or target).lower()
        return not columns or (
            named in _WIDE and named != "date" and all(type_ in _NARROW for type_ in columns)
        )
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in _SAFE_FUNCTIONS
    return isinstance(node, _SAFE)
