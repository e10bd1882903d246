"""Queries over the groups of a normal form: lookups in keyed tables, and the first rows of an order.

The groups keep their guarantee. The view computes the rest when it is read: it looks up each group in copies
of the tables, so that the rows are those of the last refresh.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.sort import Sort
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.recognition.blocks import has_one_partner
from orchestrator.algebra.traversal import walk


@dataclass(frozen=True)
class Around:
    """A query over the groups."""

    root: Operator
    core: Grouping
    """The grouping in `root` that the normal form describes."""
    tables: tuple[Scan, ...]
    columns: tuple[Column, ...]
    """The columns of `root` that the view shows."""


def around_groups(plan: Plan) -> Around | None:
    """Return the query over the only grouping of a plan, or None if it is more than lookups."""
    cores = [o for o in walk(plan.root, subqueries=False) if isinstance(o, Grouping)]
    if not cores:
        return None
    core = cores[0]
    tables: list[Scan] = []
    if not _is_over(plan.root, core, tables):
        return None
    return Around(plan.root, core, tuple(tables), plan.columns)


def _is_over(rows: Operator, core: Grouping, tables: list[Scan]) -> bool:
    """Return whether a plan has the core below lookups; add the tables that it looks up."""
    if rows == core:
        return True
    if any(scalar.subqueries for scalar in rows.scalars):
        return False
    if isinstance(rows, Projection | Selection | Sort | Limit):
        return _is_over(rows.children[0], core, tables)
    if isinstance(rows, Join | LeftJoin):
        right = _keyed_table(rows.right)
        if right is not None and has_one_partner(rows.right, rows.condition):
            tables.append(right)
            return _is_over(rows.left, core, tables)
    return False


def _keyed_table(rows: Operator) -> Scan | None:
    """Return the table with a key that a plan selects from."""
    while isinstance(rows, Projection | Selection) and not any(s.subqueries for s in rows.scalars):
        rows = rows.children[0]
    return rows if isinstance(rows, Scan) and rows.keys else None
