"""Open orders, completed by the IDs of the rows.

PostgreSQL may answer `ORDER BY price LIMIT 3` in several ways if prices are equal, and may change
its answer the next time. The stored content is one of these answers. To keep it stable, the order
is completed by the columns that identify the rows. If a table has no key, the order is completed by
all columns: rows that do not differ at all are interchangeable. Operators that need a complete order
reject a query whose order cannot be completed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import NoReturn

from sqlglot import exp

from orchestrator.algebra.columns import Column
from orchestrator.algebra.dependencies import has_key
from orchestrator.algebra.ids import ids_of, infer_ids, used_symbols
from orchestrator.algebra.operators.base import Operator, SortKey
from orchestrator.algebra.operators.cte_scan import CteScan
from orchestrator.algebra.operators.distinct_on import DistinctOn
from orchestrator.algebra.operators.group import Aggregate
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.numbered import Numbered
from orchestrator.algebra.operators.project import Item, Projection, over
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.window import Window
from orchestrator.algebra.passes.aggregate_order import OF_SETS, with_orders
from orchestrator.algebra.passes.project_scans import project_scans
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.scalar import filled, unwrapped
from orchestrator.algebra.traversal import rewrite, walk
from orchestrator.algebra.unsupported import NotModelledError, Unsupported

_RANKS = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})
"""Functions that only depend on the numbers of preceding rows and of peers."""

_POSITIONS = frozenset({"row_number", "ntile", "lag", "lead"})
"""Functions of the position of a row in its partition, independent of the frame."""

_ENDS = frozenset({"first_value", "last_value", "nth_value"})
"""Functions of a row at a position in the frame."""


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
        plan = project_scans(with_aggregate_orders)
    if all(map(looks_determined, walk(plan.root))):
        return plan
    if not all(map(looks_determined, walk(plan.root, subqueries=False))):
        plan = _completed_together(plan)
    root = rewrite(plan.root, _completed_alone)
    if not all(map(looks_determined, walk(root))):
        root = rewrite(root, _completed_by_content)
    return plan if root == plan.root else project_scans(replace(plan, root=root))


def with_numbers(plan: Plan) -> Plan:
    """Return a plan that carries its IDs, with the orders of interchangeable rows completed.

    The numbers of equal rows decide between rows that do not differ otherwise, so that each
    operator finds the rows of its state in the same order again.
    """
    if all(map(is_determined, walk(plan.root, subqueries=False))):
        return plan

    def complete(operator: Operator) -> Operator:
        if is_determined(operator) or not _is_interchangeable(operator):
            return operator
        return _completed(operator, ids_of(operator.children[0]))

    return replace(plan, root=rewrite(plan.root, complete, False))


def _completed_together(plan: Plan) -> Plan:
    """Return the plan with the IDs of all its rows, so that a shared subplan has the same order in
    all places.
    """
    identified = infer_ids(plan)
    if isinstance(identified, Unsupported) or _is_numbered(identified.root):
        return plan
    root = rewrite(identified.root, lambda each: _completed(each, _ids_below(each)), False)
    return project_scans(replace(identified, root=root))


def _completed_alone(operator: Operator) -> Operator:
    """Return an operator over rows with their IDs, if no other operator reads these rows."""
    if looks_determined(operator):
        return operator
    [below] = operator.children
    identified = infer_ids(Plan(below, (), ()))
    if isinstance(identified, Unsupported) or _is_numbered(identified.root):
        return operator
    if any(isinstance(item, CteScan) for item in walk(below)):
        return operator
    completed = _completed(operator.with_children((identified.root,)), ids_of(identified.root))
    return over(completed, operator.columns)


def _completed_by_content(operator: Operator) -> Operator:
    """Return an operator over rows without a key, ordered by all columns and how they look."""
    if looks_determined(operator) or _is_interchangeable(operator):
        return operator
    [below] = operator.children
    fixed = below.dependencies.closure(_sorted_by(operator))
    if any(column.exact and column.equality is None for column in below.columns):
        return operator
    symbols = used_symbols(operator)
    images = {
        column: Column(symbols.fresh(f"{column}_text"), "text", "text_ops", exact=True)
        for column in below.columns
        if not column.exact and column not in _shown_columns(below, fixed)
    }
    exact = [column for column in below.columns if column.exact and column not in fixed]
    items = (Item(image, filled("x::text", x=column)) for column, image in images.items())
    rows = Projection(below, (*map(Item.kept, below.columns), *items)) if images else below
    completed = _completed(operator.with_children((rows,)), (*exact, *images.values()))
    return over(completed, operator.columns)


def _is_interchangeable(operator: Operator) -> bool:
    """Return whether rows that are equal in the order of an operator do not differ at all, except
    in the numbers that identify the rows of a table without a key.
    """
    [below] = operator.children
    numbers = {
        column
        for each in walk(below)
        if isinstance(each, Numbered)
        for column in (each.row, each.nth)
    }
    if not numbers and not any(map(_lacks_key, walk(below))):
        return False
    fixed = below.dependencies.closure({*_sorted_by(operator), *_constant_columns(below)})
    determined = {column for column in fixed if column.exact} | set(_shown_columns(below, fixed))
    return determined | numbers >= set(below.columns)


def _lacks_key(operator: Operator) -> bool:
    return isinstance(operator, Scan) and not operator.keys


def _shown_columns(plan: Operator, fixed: Collection[Column]) -> Iterator[Column]:
    """Yield the columns whose texts are among some columns, and these texts."""
    if isinstance(plan, Projection):
        for item in plan.items:
            tree = unwrapped(item.scalar.tree)
            if (
                item.column in fixed
                and isinstance(tree, exp.Cast)
                and str(tree.to.args.get("kind")) == "text"
            ):
                argument = item.scalar.part(tree.this).as_column
                if argument is not None:
                    yield item.column
                    yield from (i.column for i in plan.items if i.scalar.as_column == argument)


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


def looks_determined(operator: Operator) -> bool:
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
    if not _by_rows(operator):
        if function.function in OF_SETS:
            return False
        fixed = operator.input.dependencies.closure(_sorted_by(operator))
        read = function.call.columns
        exact = not function.call.subqueries and all(column.exact for column in read)
        if function.function in _ENDS and exact and fixed >= read:
            # Peers have the same value.
            return False
    return not _is_total(operator, operator.partition, operator.order)


def _by_rows(operator: Window) -> bool:
    return operator.frame is not None and str(operator.frame).upper().startswith("ROWS")


def _by_peers(operator: Window) -> bool:
    """Return whether the frame depends on which rows are peers."""
    frame = "RANGE" if operator.frame is None else str(operator.frame).upper()
    return not frame.startswith("ROWS") or "GROUP" in frame or "TIES" in frame


def _ends_alone(operator: Window, function: Aggregate) -> bool:
    """Return whether a function reads the first row of the partition, or its frame is all of it."""
    if function.function not in _ENDS:
        return False
    if operator.frame is None:
        return function.function == "first_value"
    frame = operator.frame.tree.args
    if frame.get("exclude"):
        return False
    from_the_start = frame.get("start") == "UNBOUNDED"
    to_the_end = (frame.get("end"), frame.get("end_side")) == ("UNBOUNDED", "FOLLOWING")
    return from_the_start and (function.function == "first_value" or to_the_end)


def _ids_below(operator: Operator) -> tuple[Column, ...]:
    return () if is_determined(operator) else ids_of(operator.children[0])


def _completed(operator: Operator, columns: Iterable[Column]) -> Operator:
    """Return an operator whose order ends with some columns that distinguish its rows."""
    if is_determined(operator):
        return operator
    if isinstance(operator, Limit) and not operator.with_ties:
        return replace(operator, order=_extended(operator.order, columns))
    if isinstance(operator, DistinctOn):
        order = _extended(operator.order, operator.on)
        return replace(operator, order=_extended(order, columns))
    if isinstance(operator, Window):
        opened = tuple(
            function
            for function in operator.functions
            if is_open_function(operator, function)
            and (
                function.function in _POSITIONS
                or not _by_peers(operator)
                or _ends_alone(operator, function)
            )
        )
        rest = tuple(function for function in operator.functions if function not in opened)
        if opened:
            below = replace(operator, functions=rest) if rest else operator.input
            order = _extended(operator.order, columns)
            return replace(operator, input=below, functions=opened, order=order)
    return operator


def _extended(order: tuple[SortKey, ...], columns: Iterable[Column]) -> tuple[SortKey, ...]:
    known = {key.column for key in order}
    return (*order, *(SortKey(column) for column in columns if column not in known))
