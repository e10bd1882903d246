"""Removes columns and fields that nothing above reads from the queries of a script."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.traversal import unfold
from orchestrator.deltascript.leaves import DiffScan

Wanted: TypeAlias = "frozenset[Column] | None"
"""The columns of a result that are read; None if all are read."""


def pruned(plan: Operator, columns: Iterable[Column]) -> Operator:
    """Return the plan without columns that only pass through it, given the output columns that are
    read.

    >>> from orchestrator.algebra.operators.set_operation import Branch
    >>> a, b, c, x, y = map(Column, "abcxy")
    >>> diff = DiffScan("changed", "d", ((a, "old_a"), (b, "old_b"), (c, "old_c")))
    >>> union = UnionAll((Branch(diff, (a, b)), Branch(diff, (a, c))), (x, y))
    >>> [[str(column) for column in leaf.columns] for leaf in pruned(union, [y]).children]
    [['b'], ['c']]
    """
    wanted: Wanted = frozenset(columns)
    return unfold(plan, wanted, _divided)


def _divided(operator: Operator, wanted: Wanted) -> tuple[Operator, tuple[Wanted, ...]]:
    if wanted is None:
        return operator, (None,) * len(operator.children)
    if isinstance(operator, DiffScan):
        fields = tuple(output for output in operator.outputs if output[0] in wanted)
        return replace(operator, outputs=fields), ()
    if isinstance(operator, Projection):
        items = tuple(item for item in operator.items if item.column in wanted)
        items = items or operator.items[:1]
        read = frozenset[Column]().union(*(item.scalar.references for item in items))
        return replace(operator, items=items), (read,)
    if isinstance(operator, UnionAll):
        positions = [n for n, column in enumerate(operator.outputs) if column in wanted] or [0]
        branches = tuple(
            replace(branch, columns=tuple(branch.columns[n] for n in positions))
            for branch in operator.branches
        )
        outputs = tuple(operator.outputs[n] for n in positions)
        tag = operator.tag if operator.tag in outputs else None
        across = frozenset(key for key in operator.across if key <= set(outputs))
        pruned_union = replace(operator, branches=branches, outputs=outputs, tag=tag, across=across)
        return pruned_union, tuple(frozenset(branch.columns) for branch in branches)
    if isinstance(operator, Selection | Join | Grouping):
        below = wanted | operator.references
        return operator, tuple(below & frozenset(child.columns) for child in operator.children)
    return operator, (None,) * len(operator.children)
