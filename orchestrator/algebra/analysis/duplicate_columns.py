"""Columns that a query shows twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.scalar import Scalar


def distinguishable(plan: Plan, another: Callable[[str, Column], Column]) -> Plan:
    """The plan with a column of its own for everything that it shows.

    `another` makes a column to show under a name, like a given one.
    """
    columns: list[Column] = []
    copies: list[Item] = []
    for name, column in zip(plan.names, plan.columns, strict=True):
        if column in columns:
            copies.append(Item(another(name, column), Scalar.column(column)))
        columns.append(copies[-1].column if column in columns else column)
    if not copies:
        return plan
    kept = map(Item.kept, plan.root.columns)
    return replace(plan, root=Projection(plan.root, (*kept, *copies)), columns=tuple(columns))
