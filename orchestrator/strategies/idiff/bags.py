"""Remove the numbers of equal rows from plans whose change is needed as a bag.

The IDs of a table without a key are numbers of equal rows, and such numbers have to be stored. If only
the change of a bag matters, to a count of groups or to a content that numbers its own rows, the plan
needs no numbers.
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
    """Return a bag whose rows are identified by their content and a number."""
    return Numbered.of(rows, symbols)


def unnumbered(plan: Operator) -> Operator | None:
    """Return a plan of bags without its numbers; None if it has no numbers or needs them.

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
    removed: set[Column] = set()
    return _without_numbers(plan, removed)


def _without_numbers(plan: Operator, removed: set[Column]) -> Operator | None:
    if isinstance(plan, Numbered) and isinstance(plan.input, Recursion):
        # The change of a recursion is computed from its stored result.
        return plan
    if isinstance(plan, Numbered):
        removed |= {plan.row, plan.nth}
        return plan.input
    if not plan.children:
        return plan
    if not has_rule(change, plan):
        return None
    children = [_without_numbers(child, removed) for child in plan.children]
    below = tuple(child for child in children if child is not None)
    if len(below) < len(children):
        return None
    if isinstance(plan, Projection):
        removed |= {item.column for item in plan.items if item.scalar.references & removed}
        items = tuple(item for item in plan.items if item.column not in removed)
        return Projection(below[0], items)
    if isinstance(plan, UnionAll):
        kept = [
            position
            for position in range(len(plan.outputs))
            if not any(branch.columns[position] in removed for branch in plan.branches)
        ]
        removed |= set(plan.outputs) - {plan.outputs[position] for position in kept}
        branches = tuple(
            replace(b, input=child, columns=tuple(b.columns[position] for position in kept))
            for b, child in zip(plan.branches, below, strict=True)
        )
        return UnionAll(branches, tuple(plan.outputs[position] for position in kept), plan.tag)
    if plan.references & removed:
        return None
    return plan.with_children(below)
