"""Reduces scans to the columns that something reads and the best key, and projections likewise."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.traversal import rewrite, walk


def project_scans(plan: Plan) -> Plan:
    """Return the plan without columns that nothing reads.

    >>> from orchestrator.algebra.examples import joined
    >>> wide = joined()
    >>> [str(column) for column in project_scans(Plan(wide, (), ())).root.columns]
    ['pid', 'device', 'part', 'did', 'category']
    """
    used = _used(plan)

    def projected(operator: Operator) -> Operator:
        if isinstance(operator, Scan):
            return operator.projected(used)
        if isinstance(operator, Projection):
            items = tuple(item for item in operator.items if item.column in used)
            return replace(operator, items=items)
        return operator

    return replace(plan, root=rewrite(plan.root, projected))


def _used(plan: Plan) -> frozenset[Column]:
    """Return the columns that are read, without those that a projection only passes on unread."""
    operators = list(walk(plan.root))
    used = set(plan.columns)
    for operator in operators:
        for scalar in operator.scalars:
            for subquery in scalar.subqueries:
                used |= set(subquery.columns)
        if not isinstance(operator, Projection):
            used |= operator.references
    items = [
        item
        for projection in operators
        if isinstance(projection, Projection)
        for item in projection.items
    ]
    grew = True
    while grew:
        before = len(used)
        for item in items:
            if item.column in used:
                used |= item.scalar.references
        grew = len(used) > before
    return frozenset(used)
