"""Correlated plans as joins, where this is the same and worth more than evaluating them row by row."""

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
"""Aggregates whose groups are kept by addition."""

_HARMLESS = (
    *(exp.Column, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.Identifier),
    *(exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Star, exp.Case, exp.If, exp.Is, exp.Not),
    *(exp.And, exp.Or, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE),
)
"""What can be computed of rows that nobody asked for; no division by zero, no cast that fails."""


@dataclass(frozen=True)
class Lookup:
    """A plan to join with, and what a correlated plan shows in terms of it."""

    plan: Operator
    condition: Scalar
    values: Mapping[Column, Scalar]
    """The correlated plan's columns, over those of `plan` and of the query around it."""
    padded: bool
    """Whether a row without a partner counts, and the values are right for it too."""


def peeled(plan: Operator) -> tuple[Operator, dict[Column, Scalar]]:
    """A plan without the projections at its top, and what its columns are."""
    values = {column: Scalar.column(column) for column in plan.columns}
    while isinstance(plan, Projection | Sort):
        if isinstance(plan, Projection):
            if any(scalar.subqueries for scalar in plan.scalars):
                break
            made = {item.column: item.scalar for item in plan.items if not item.is_unchanged}
            values = {column: value.substitute(made) for column, value in values.items()}
        plan = plan.input
    return plan, values


def grouped_lookup(plan: Operator, outer: frozenset[Column], symbols: Symbols) -> Lookup | None:
    """An aggregation over the rows with certain keys, as a look into all groups by these keys.

    >>> from orchestrator.algebra.examples import DEVICE, DEVICES_PARTS
    >>> from orchestrator.algebra.operators.select import Selection
    >>> did = Column("outer_did", "integer", "integer_ops")
    >>> rows = Selection(DEVICES_PARTS, Scalar.read("device = outer_did", [DEVICE, did]))
    >>> count = Aggregate(Column("n"), Scalar.read("count(*)"))
    >>> found = grouped_lookup(Grouping(rows, (), (count,)), frozenset({did}), Symbols())
    >>> found.plan.label, found.condition, *found.values.values()
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
    found = separated(risen(core.input, outer), outer)
    if found is None:
        return None
    rows, condition = found
    keys = _keys(condition, rows, outer)
    if keys is None:
        return None
    by = tuple(dict.fromkeys((*core.by, *keys)))
    groups, became = copied(Grouping(rows, by, core.aggregates), symbols)
    terms = {old: Scalar.column(new) for old, new in became.items()}
    if not core.by:
        for call in core.aggregates:
            if call.function == "count":
                terms[call.column] = filled("coalesce(n, 0)", n=became[call.column])
    plain = {old: Scalar.column(new) for old, new in became.items()}
    return Lookup(
        groups,
        condition.substitute(plain),
        {column: value.substitute(terms) for column, value in values.items()},
        padded=not core.by,
    )


def single_lookup(plan: Operator, outer: frozenset[Column], symbols: Symbols) -> Lookup | None:
    """A plan that gives at most one row, found by a key, where it shows no more than columns."""
    freed = risen(plan, outer)
    if frozenset() not in freed.keys:
        return None
    found = separated(freed, outer)
    if found is None:
        return None
    rows, condition = found
    _, values = peeled(rows)
    if any(value.as_column is None for value in values.values()):
        return None
    copy, became = copied(rows, symbols)
    terms = {old: Scalar.column(new) for old, new in became.items()}
    return Lookup(
        copy,
        condition.substitute(terms),
        {column: terms[column] for column in plan.columns},
        padded=True,
    )


def _keys(condition: Scalar, rows: Operator, outer: frozenset[Column]) -> list[Column] | None:
    """The columns of some rows that a condition equates with outer ones, if it does nothing else."""
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
        # What `=` compares must be what groups are made by.
        if inside[0].equality is None or inside[0].equality != outside[0].equality:
            return None
        result.append(inside[0])
    return result


def _is_harmless(call: Aggregate) -> bool:
    parts = [*call.arguments, *([call.filter] if call.filter else [])]
    return not any(part.subqueries for part in parts) and all(
        isinstance(node, _HARMLESS) for part in parts for node in part.tree.walk()
    )
