"""The columns that conditions of a plan read, by the leaves whose columns they are."""

from __future__ import annotations

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.traversal import walk
from orchestrator.strategies.idiff.rules.base import conditions


def conditional_columns(plan: Operator) -> dict[Operator, list[frozenset[Column]]]:
    """Return for each leaf the sets of its columns that conditions read; overlapping sets are merged."""
    sources: dict[Column, frozenset[Column]] = {}
    condition_columns: list[frozenset[Column]] = []
    for operator in walk(plan, subqueries=False):
        condition_columns += conditions(operator)
        if isinstance(operator, Projection):
            sources.update(
                (i.column, i.scalar.references) for i in operator.items if not i.is_unchanged
            )
        for branch in getattr(operator, "branches", ()):
            for old, new in branch.renamed(operator.columns):
                sources[new] = sources.get(new, frozenset()) | {old}

    def origins(column: Column, seen: frozenset[Column]) -> frozenset[Column]:
        if column not in sources or column in seen:
            return frozenset({column})
        return frozenset({column}).union(*(origins(c, seen | {column}) for c in sources[column]))

    sets = [
        frozenset().union(*(origins(column, frozenset()) for column in columns))
        for columns in condition_columns
        if columns
    ]
    result: dict[Operator, list[frozenset[Column]]] = {}
    for leaf in walk(plan, subqueries=False):
        if leaf.children:
            continue
        groups: list[frozenset[Column]] = []
        for columns in sets:
            part = columns & frozenset(leaf.columns)
            if not part:
                continue
            disjoint = [group for group in groups if not group & part]
            merged = part.union(*(group for group in groups if group & part))
            groups = [*disjoint, merged]
        result[leaf] = groups
    return result
