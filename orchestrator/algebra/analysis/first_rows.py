"""Selections of the first rows of each partition, such as `rank() OVER (PARTITION BY a ORDER BY b) <= 3`."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.window import Window
from orchestrator.algebra.scalar import unwrapped

_RANKS = ("row_number", "rank", "dense_rank")
_UPPER_BOUNDS = exp.LT | exp.LTE | exp.EQ
_LOWER_BOUNDS = exp.GT | exp.GTE | exp.EQ


def below_projections(operator: Operator) -> Operator:
    """Return an operator with its selection moved below projections, directly above a window.

    >>> from orchestrator.algebra.examples import PARTS
    >>> below_projections(PARTS) is PARTS
    True
    """
    if not isinstance(operator, Selection):
        return operator
    condition, below, projections = operator.condition, operator.input, list[Projection]()
    while isinstance(below, Projection):
        condition = condition.substitute({item.column: item.scalar for item in below.items})
        projections.append(below)
        below = below.input
    if not projections or not isinstance(below, Window):
        return operator
    result: Operator = Selection(below, condition)
    for projection in reversed(projections):
        result = replace(projection, input=result)
    return result


def window_of_first_rows(operator: Operator) -> tuple[Window, float] | None:
    """Return the window whose first rows an operator selects, and the greatest rank of such a row."""
    if not isinstance(operator, Selection) or not isinstance(window := operator.input, Window):
        return None
    ranks = {f.column for f in window.functions if f.function in _RANKS}
    bounds = []
    for conjunct in operator.condition.conjuncts:
        tree = unwrapped(conjunct.tree)
        if not isinstance(tree, _UPPER_BOUNDS | _LOWER_BOUNDS):
            continue
        left, right = unwrapped(tree.this), unwrapped(tree.expression)
        for kinds, rank, bound in ((_UPPER_BOUNDS, left, right), (_LOWER_BOUNDS, right, left)):
            if not isinstance(tree, kinds) or not isinstance(rank, exp.Column):
                continue
            is_number = isinstance(bound, exp.Literal) and bound.is_number
            if is_number and conjunct.part(rank).as_column in ranks:
                bounds.append(float(bound.this))
    return (window, min(bounds)) if bounds else None
