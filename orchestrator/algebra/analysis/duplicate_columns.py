"""Queries that show a column more than once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.scalar import Scalar


def distinguishable(plan: Plan, another: Callable[[str, Column], Column]) -> Plan:
    """Return the plan with a separate column for each column that the view shows.

    `another` returns a new column for a name, with the type of a given column.
    """
    columns: list[Column] = []
    copies: list[Item] = []
    for name, column in zip(plan.names, plan.columns, strict=True):
        if column in columns:
            copies.append(Item(another(name, column), Scalar.column(column)))
        columns.append(copies[-1].column if column in columns else column)
    if not copies:
        return plan
    passed = map(Item.kept, plan.root.columns)
    return replace(plan, root=Projection(plan.root, (*passed, *copies)), columns=tuple(columns))
