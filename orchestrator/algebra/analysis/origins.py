"""The origins of columns of a result: the groups whose keys and sums a view shows unchanged."""

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
    """Return the inputs of groups with the keys that the view shows, by their names.

    The value in such a column must be the value in some row of the input.

    >>> from orchestrator.algebra.examples import PARTS, PRICE
    >>> [(below, keys)] = representatives(Plan(Distinct(PARTS), ("p",), (PRICE,)))
    >>> below == PARTS, [(name, str(column)) for name, column in keys]
    (True, [('p', 'price')])
    """
    keys_of_groups: dict[int, tuple[Operator, list[tuple[str, Column]]]] = {}
    for name, column, groups in _origins(plan):
        keys = groups.by if isinstance(groups, Grouping) else groups.columns
        if column in keys:
            keys_of_groups.setdefault(id(groups), (groups.input, []))[1].append((name, column))
    return list(keys_of_groups.values())


def magnitudes(plan: Plan) -> dict[str, Plan]:
    """Return a query of the magnitude of its terms for each column that shows a sum or average.

    The error of a sum of floats depends on its terms, which may cancel each other.
    """
    result = {}
    for name, column, groups in _origins(plan):
        if not isinstance(groups, Grouping):
            continue
        for call in groups.aggregates:
            if call.column == column and call.function in ("sum", "avg") and not call.distinct:
                size = filled(f"{call.function}(abs(x))", x=call.arguments[0])
                aggregate = Aggregate(Column(column.symbol), size)
                sizes = Grouping(groups.input, groups.by, (aggregate,))
                result[name] = Plan(sizes, (column.symbol,), (aggregate.column,))
    return result


def _origins(plan: Plan) -> Iterator[tuple[str, Column, Grouping | Distinct]]:
    """Yield the names of columns that come from groups, the columns of the groups, and the groups."""
    for name, column in zip(plan.names, plan.columns, strict=True):
        origin = _origin(plan.root, column)
        if origin is not None and _stands_alone(origin[1].input):
            yield name, *origin


def _stands_alone(plan: Operator) -> bool:
    """Return whether a plan is a complete query."""
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
