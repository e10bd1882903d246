"""The changes of unions of selections and projections, which are the same operators over the changes of tables.

Joins with the clock of a view select rows too, but rows also come and go when the clock moves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.sort import Sort
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import Scalar
from orchestrator.engine.composer import Composer, Part
from orchestrator.engine.diffs import Bag
from orchestrator.engine.leaves import bag_of


def linear_change(
    rows: Operator,
    composer: Composer,
    timed_change: Callable[[Join, Bag | None, Composer], Bag],
) -> Bag | None:
    """Return the change of a table, or of a union of selections and projections of tables, as a bag.

    `timed_change` returns the change of a join with a clock, given the change of its left side. The result is None if
    no table changes.
    """
    if isinstance(rows, Sort):
        return linear_change(rows.input, composer, timed_change)
    if isinstance(rows, Join):
        below = linear_change(rows.left, composer, timed_change)
        return timed_change(rows, below, composer)
    if isinstance(rows, Selection | Projection):
        bag = linear_change(rows.input, composer, timed_change)
        if bag is None:
            return None
        if isinstance(rows, Selection):
            return replace(bag, plan=Selection(bag.plan, rows.condition))
        return replace(bag, plan=Projection(bag.plan, (*rows.items, Item.kept(bag.sign))))
    if not isinstance(rows, UnionAll):
        return bag_of(rows, composer)
    parts: list[Part] = []
    for branch in rows.branches:
        bag = linear_change(branch.input, composer, timed_change)
        if bag is not None:
            items = [Item(new, Scalar.column(old)) for old, new in branch.renamed(rows.outputs)]
            parts.append((bag.sign, Projection(bag.plan, (*items, Item.kept(bag.sign)))))
    return composer.union(rows.outputs, parts) if parts else None
