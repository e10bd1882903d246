"""Plans whose rows need not be told apart, because their change is wanted as a bag.

IDs of a table without a key are numbers of equal rows, which have to be stored. Where only the
change of a bag matters, to what groups count or to a content that numbers its own rows, the plan does
without them.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.numbered import Numbered
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.recursive import Recursion
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.traversal import walk
from orchestrator.strategies.idiff.rules.base import change, has_rule


def numbered(rows: Operator, symbols: Symbols) -> Numbered:
    """A bag whose rows are told apart by their content."""
    return Numbered.of(rows, symbols)


def unnumbered(plan: Operator) -> Operator | None:
    """A plan of bags without the numbers that it carries, if it carries any and needs none.

    >>> from orchestrator.algebra.examples import PARTS, PRICE
    >>> from orchestrator.algebra.operators.project import Item
    >>> import orchestrator.strategies.idiff.compose  # registers the rules
    >>> rows = Numbered.of(PARTS, Symbols())
    >>> shown = Projection(rows, tuple(map(Item.kept, (PRICE, rows.row, rows.nth))))
    >>> unnumbered(shown) == Projection(PARTS, (Item.kept(PRICE),))
    True
    >>> unnumbered(PARTS) is None
    True
    """
    if not any(isinstance(operator, Numbered) for operator in walk(plan, subqueries=False)):
        return None
    gone: set[Column] = set()
    return _without(plan, gone)


def _without(plan: Operator, gone: set[Column]) -> Operator | None:
    if isinstance(plan, Numbered) and isinstance(plan.input, Recursion):
        # Its change is found with the help of what is stored.
        return plan
    if isinstance(plan, Numbered):
        gone |= {plan.row, plan.nth}
        return plan.input
    if not plan.children:
        return plan
    if not has_rule(change, plan):
        return None
    children = [_without(child, gone) for child in plan.children]
    below = tuple(child for child in children if child is not None)
    if len(below) < len(children):
        return None
    if isinstance(plan, Projection):
        gone |= {item.column for item in plan.items if item.scalar.references & gone}
        items = tuple(item for item in plan.items if item.column not in gone)
        return Projection(below[0], items)
    if isinstance(plan, UnionAll):
        places = [
            place
            for place in range(len(plan.outputs))
            if not any(branch.columns[place] in gone for branch in plan.branches)
        ]
        gone |= set(plan.outputs) - {plan.outputs[place] for place in places}
        branches = tuple(
            replace(b, input=child, columns=tuple(b.columns[place] for place in places))
            for b, child in zip(plan.branches, below, strict=True)
        )
        return UnionAll(branches, tuple(plan.outputs[place] for place in places), plan.tag)
    if plan.references & gone:
        return None
    return plan.with_children(below)
