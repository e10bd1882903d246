"""Where the columns of a result come from: the groups whose keys and sums they show as they are."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.cte_scan import CteScan
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.joining import Binary
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.recursive import RecursiveScan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.sort import Sort
from orchestrator.algebra.operators.window import Window
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.scalar import filled
from orchestrator.algebra.traversal import walk


def representatives(plan: Plan) -> list[tuple[Operator, list[tuple[str, Column]]]]:
    """Return the inputs of groups with the keys that the view shows of them, by their names.

    What a view shows in such columns must be what a row of the input shows.

    >>> from orchestrator.algebra.examples import PARTS, PRICE
    >>> [(below, shown)] = representatives(Plan(Distinct(PARTS), ("p",), (PRICE,)))
    >>> below == PARTS, [(name, str(column)) for name, column in shown]
    (True, [('p', 'price')])
    """
    found: dict[int, tuple[Operator, list[tuple[str, Column]]]] = {}
    for name, column, groups in _origins(plan):
        keys = groups.by if isinstance(groups, Grouping) else groups.columns
        if column in keys:
            found.setdefault(id(groups), (groups.input, []))[1].append((name, column))
    return list(found.values())


def magnitudes(plan: Plan) -> dict[str, Plan]:
    """Return, for the columns that show a sum or mean, a query of what its terms come to in size.

    The error of a sum of floats depends on its terms, which may cancel each other out.
    """
    result = {}
    for name, column, groups in _origins(plan):
        if not isinstance(groups, Grouping):
            continue
        for item in groups.aggregates:
            if item.column == column and item.function in ("sum", "avg") and not item.distinct:
                size = filled(f"{item.function}(abs(x))", x=item.arguments[0])
                aggregate = Aggregate(Column(column.symbol), size)
                sizes = Grouping(groups.input, groups.by, (aggregate,))
                result[name] = Plan(sizes, (column.symbol,), (aggregate.column,))
    return result


def _origins(plan: Plan) -> Iterator[tuple[str, Column, Grouping | Distinct]]:
    """Yield the names of columns that come from groups, the columns there, and the groups."""
    for name, column in zip(plan.names, plan.columns, strict=True):
        origin = _origin(plan.root, column)
        if origin is not None and _stands_alone(origin[1].input):
            yield name, *origin


def _stands_alone(plan: Operator) -> bool:
    """Return whether a plan can be a query by itself."""
    parts = any(isinstance(part, CteScan | RecursiveScan) for part in walk(plan))
    return not parts and not plan.outer_columns


def _origin(plan: Operator, column: Column) -> tuple[Column, Grouping | Distinct] | None:
    if isinstance(plan, Grouping | Distinct):
        return column, plan
    if isinstance(plan, Projection):
        as_columns = (item.scalar.as_column for item in plan.items if item.column == column)
        inner = next(as_columns, None)
        return _origin(plan.input, inner) if inner is not None else None
    if isinstance(plan, Binary | Selection | Sort | Limit | Window):
        for child in plan.children:
            if column in child.columns:
                return _origin(child, column)
    return None
