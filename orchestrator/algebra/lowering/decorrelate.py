"""Correlated plans rewritten as joins, if they are equivalent and cheaper than evaluation per row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.copies import copied
from orchestrator.algebra.lowering.correlation import risen, separated
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.sort import Sort
from orchestrator.algebra.scalar import Scalar, filled, unwrapped

_ADDED = frozenset({"count", "sum", "avg"})
"""Aggregates that are maintained by addition."""

_HARMLESS = (
    *(exp.Column, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Identifier),
    *(exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Star, exp.Case, exp.If, exp.Is, exp.Not),
    *(exp.And, exp.Or, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE),
)
"""Expressions that are safe to compute for rows that the query does not read: they never fail."""


@dataclass(frozen=True)
class Lookup:
    """A plan to join with, and the columns of a correlated plan in terms of it."""

    plan: Operator
    condition: Scalar
    values: Mapping[Column, Scalar]
    """The columns of the correlated plan, over columns of `plan` and of the surrounding query."""
    padded: bool
    """Whether a row without a partner stays in the result, with correct values."""


def peeled(plan: Operator) -> tuple[Operator, dict[Column, Scalar]]:
    """Return a plan without the projections at its top, and the expressions of its columns."""
    values = {column: Scalar.column(column) for column in plan.columns}
    while isinstance(plan, Projection | Sort):
        if isinstance(plan, Projection):
            if any(scalar.subqueries for scalar in plan.scalars):
                break
            computed = {item.column: item.scalar for item in plan.items if not item.is_unchanged}
            values = {column: value.substitute(computed) for column, value in values.items()}
        plan = plan.input
    return plan, values


def grouped_lookup(plan: Operator, outer: frozenset[Column], symbols: Symbols) -> Lookup | None:
    """Return an aggregation over the rows with certain keys as a lookup in all groups by these
    keys.

    >>> from orchestrator.algebra.examples import DEVICE, DEVICES_PARTS
    >>> from orchestrator.algebra.operators.select import Selection
    >>> did = Column("outer_did", "integer", "integer_ops")
    >>> rows = Selection(DEVICES_PARTS, Scalar.read("device = outer_did", [DEVICE, did]))
    >>> count = Aggregate(Column("n"), Scalar.read("count(*)"))
    >>> lookup = grouped_lookup(Grouping(rows, (), (count,)), frozenset({did}), Symbols())
    >>> lookup.plan.label, lookup.condition, *lookup.values.values()
    ('γ device; count(*) → n', Scalar(device = outer_did), Scalar(coalesce(n, 0)))
    """
    core, values = peeled(plan)
    if not isinstance(core, Grouping) or not all(
        call.function in _ADDED
        and not call.distinct
        and not call.call.references & outer
        and _is_harmless(call)
        for call in core.aggregates
    ):
        return None
    parts = separated(risen(core.input, outer), outer)
    if parts is None:
        return None
    rows, condition = parts
    keys = _keys(condition, rows, outer)
    if keys is None:
        return None
    by = tuple(dict.fromkeys((*core.by, *keys)))
    groups, new_columns = copied(Grouping(rows, by, core.aggregates), symbols)
    terms = {old: Scalar.column(new) for old, new in new_columns.items()}
    if not core.by:
        for call in core.aggregates:
            if call.function == "count":
                terms[call.column] = filled("coalesce(n, 0)", n=new_columns[call.column])
    plain = {old: Scalar.column(new) for old, new in new_columns.items()}
    return Lookup(
        groups,
        condition.substitute(plain),
        {column: value.substitute(terms) for column, value in values.items()},
        padded=not core.by,
    )


def single_lookup(plan: Operator, outer: frozenset[Column], symbols: Symbols) -> Lookup | None:
    """Return a plan that gives at most one row, found by a key, if it only shows columns."""
    uncorrelated = risen(plan, outer)
    if frozenset() not in uncorrelated.keys:
        return None
    parts = separated(uncorrelated, outer)
    if parts is None:
        return None
    rows, condition = parts
    _, values = peeled(rows)
    if any(value.as_column is None for value in values.values()):
        return None
    copy, new_columns = copied(rows, symbols)
    terms = {old: Scalar.column(new) for old, new in new_columns.items()}
    return Lookup(
        copy,
        condition.substitute(terms),
        {column: terms[column] for column in plan.columns},
        padded=True,
    )


def _keys(condition: Scalar, rows: Operator, outer: frozenset[Column]) -> list[Column] | None:
    """Return the columns of some rows that a condition equates with outer columns.

    The result is None if the condition has any other conjunct.
    """
    own, result = set(rows.columns), []
    for conjunct in condition.conjuncts:
        tree = unwrapped(conjunct.tree)
        if not isinstance(tree, exp.EQ):
            return None
        sides = [conjunct.part(side).as_column for side in (tree.this, tree.expression)]
        inside = [column for column in sides if column is not None and column in own]
        outside = [column for column in sides if column is not None and column in outer]
        if len(inside) != 1 or len(outside) != 1:
            return None
        # The `=` must be the equality by which the groups are formed.
        if inside[0].equality is None or inside[0].equality != outside[0].equality:
            return None
        result.append(inside[0])
    return result


def _is_harmless(call: Aggregate) -> bool:
    parts = [*call.arguments, *([call.filter] if call.filter else [])]
    return not any(part.subqueries for part in parts) and all(
        isinstance(node, _HARMLESS) for part in parts for node in part.tree.walk()
    )
