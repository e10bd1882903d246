"""Open orders, completed by the IDs of the rows.

PostgreSQL may answer `ORDER BY price LIMIT 3` in several ways if prices are equal, and may change
its answer the next time. The stored content is one of these answers. To keep it stable, the order
is completed by the columns that identify the rows. Operators that need a complete order reject a
query whose order cannot be completed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import NoReturn

from orchestrator.algebra.columns import Column
from orchestrator.algebra.dependencies import has_key
from orchestrator.algebra.ids import ids_of, infer_ids
from orchestrator.algebra.operators.base import Operator, SortKey
from orchestrator.algebra.operators.cte_scan import CteScan
from orchestrator.algebra.operators.distinct_on import DistinctOn
from orchestrator.algebra.operators.group import Aggregate
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.numbered import Numbered
from orchestrator.algebra.operators.project import Projection, over
from orchestrator.algebra.operators.window import Window
from orchestrator.algebra.passes.aggregate_order import OF_SETS, with_orders
from orchestrator.algebra.passes.project_scans import narrow
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.traversal import rewrite, walk
from orchestrator.algebra.unsupported import NotModelledError, Unsupported

_RANKS = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})
"""Functions that only depend on the numbers of preceding rows and of peers."""

_POSITIONS = frozenset({"row_number", "ntile", "lag", "lead"})
"""Functions of the position of a row in its partition, independent of the frame."""


def determined(plan: Plan, rings: Collection[str] = ()) -> Plan:
    """Return the plan with its open orders completed, or the plan itself if it has none.

    `rings` are the aggregates of users' rings; their results do not depend on the order.

    >>> from orchestrator.algebra.examples import PARTS, PRICE
    >>> from orchestrator.algebra.printer import print_plan
    >>> from orchestrator.algebra.scalar import Scalar
    >>> dearest = Limit(PARTS, (SortKey(PRICE, descending=True),), Scalar.read("3"))
    >>> print(print_plan(determined(Plan(dearest, ("price",), (PRICE,))), ids=False))
    view price (hidden: pid)
    └─ λ 3 by price desc nulls last, pid
       └─ scan parts
    """
    with_aggregate_orders = with_orders(plan, rings)
    if with_aggregate_orders.root != plan.root:
        plan = narrow(with_aggregate_orders)
    if all(map(is_settled, walk(plan.root))):
        return plan
    if not all(map(is_settled, walk(plan.root, subqueries=False))):
        plan = _completed_together(plan)
    root = rewrite(plan.root, _completed_alone)
    return plan if root == plan.root else narrow(replace(plan, root=root))


def _completed_together(plan: Plan) -> Plan:
    """Return the plan with the IDs of all its rows, so that a shared subplan has the same order in
    all places.
    """
    identified = infer_ids(plan)
    if isinstance(identified, Unsupported) or _is_numbered(identified.root):
        return plan
    return narrow(replace(identified, root=rewrite(identified.root, _completed, False)))


def _completed_alone(operator: Operator) -> Operator:
    """Return an operator over rows with their IDs, if no other operator reads these rows."""
    if is_settled(operator):
        return operator
    [below] = operator.children
    identified = infer_ids(Plan(below, (), ()))
    if isinstance(identified, Unsupported) or _is_numbered(identified.root):
        return operator
    if any(isinstance(item, CteScan) for item in walk(below)):
        return operator
    return over(_completed(operator.with_children((identified.root,))), operator.columns)


def _is_numbered(plan: Operator) -> bool:
    """Return whether a plan numbers rows, which would cost more than reporting an open order."""
    return any(isinstance(operator, Numbered) for operator in walk(plan))


def is_determined(operator: Operator) -> bool:
    """Return whether the rows of its inputs determine the result of an operator."""
    if isinstance(operator, Window):
        return not any(is_open_function(operator, function) for function in operator.functions)
    if isinstance(operator, DistinctOn):
        return _is_total(operator, operator.on, operator.order)
    if isinstance(operator, Limit):
        whole = operator.count is None and operator.offset is None
        ties = operator.with_ties and operator.offset is None
        return whole or ties or _is_total(operator, (), operator.order)
    return True


def require_determined(operator: Operator) -> None:
    """Reject an operator whose result the rows of its input do not determine."""
    if not is_determined(operator):
        refuse_open(operator.label)


def refuse_open(label: str) -> NoReturn:
    """Reject an operator, given its label."""
    raise NotModelledError("the order leaves open what the result is", label)


def is_settled(operator: Operator) -> bool:
    """Return whether the result of an operator is determined as far as a reader can see.

    A plan that is evaluated for each row of a surrounding query stores no rows. Rows that are equal
    in its order may then come in any order if they do not differ at all.
    """
    if is_determined(operator) or not operator.outer_columns:
        return is_determined(operator)
    [below] = operator.children
    constant = set(_constant_columns(below))
    rest = set(below.columns) - constant
    fixed = {*_sorted_by(operator), *constant}
    return all(column.exact for column in rest) and below.dependencies.imply(fixed, rest)


def _constant_columns(plan: Operator) -> Iterator[Column]:
    """Yield the columns that a projection computes without reading its input."""
    if isinstance(plan, Projection):
        for item in plan.items:
            read = item.scalar.columns & frozenset(plan.input.columns)
            if not read and not item.scalar.subqueries:
                yield item.column


def _sorted_by(operator: Operator) -> Iterator[Column]:
    assert isinstance(operator, Window | DistinctOn | Limit)
    if isinstance(operator, Window):
        yield from operator.partition
    if isinstance(operator, DistinctOn):
        yield from operator.on
    yield from (key.column for key in operator.order)


def _is_total(operator: Operator, within: Iterable[Column], order: Iterable[SortKey]) -> bool:
    [below] = operator.children
    columns = [*within, *(key.column for key in order)]
    return has_key(below.keys, below.dependencies, columns)


def is_open_function(operator: Window, function: Aggregate) -> bool:
    """Return whether a window function may return another result for another order of equal rows."""
    if function.function in _RANKS:
        return False
    if function.function in OF_SETS and not _by_rows(operator):
        return False
    return not _is_total(operator, operator.partition, operator.order)


def _by_rows(operator: Window) -> bool:
    return operator.frame is not None and str(operator.frame).upper().startswith("ROWS")


def _by_peers(operator: Window) -> bool:
    """Return whether the frame depends on which rows are peers."""
    frame = "RANGE" if operator.frame is None else str(operator.frame).upper()
    return not frame.startswith("ROWS") or "GROUP" in frame or "TIES" in frame


def _completed(operator: Operator) -> Operator:
    if is_determined(operator):
        return operator
    if isinstance(operator, Limit) and not operator.with_ties:
        return replace(operator, order=_extended(operator.order, ids_of(operator.input)))
    if isinstance(operator, DistinctOn):
        order = _extended(operator.order, operator.on)
        return replace(operator, order=_extended(order, ids_of(operator.input)))
    if isinstance(operator, Window):
        opened = tuple(
            function
            for function in operator.functions
            if is_open_function(operator, function)
            and (function.function in _POSITIONS or not _by_peers(operator))
        )
        rest = tuple(function for function in operator.functions if function not in opened)
        if opened:
            below = replace(operator, functions=rest) if rest else operator.input
            order = _extended(operator.order, ids_of(operator.input))
            return replace(operator, input=below, functions=opened, order=order)
    return operator


def _extended(order: tuple[SortKey, ...], columns: Iterable[Column]) -> tuple[SortKey, ...]:
    known = {key.column for key in order}
    return (*order, *(SortKey(column) for column in columns if column not in known))
