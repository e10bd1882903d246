"""Orders that leave open which rows come first, completed by the IDs of the rows.

PostgreSQL may answer `ORDER BY price LIMIT 3` in several ways when prices are equal, and in another
way the next time. A stored content is one of these answers; for it to stay that one, the order goes
on with what identifies the rows. What cannot be completed so is refused by what has to rely on it.
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
"""Functions of how many rows come before and how many are peers."""

_SCALES = frozenset({"row_number", "ntile", "lag", "lead"})
"""Functions of the row's place in its partition, whatever the frame."""


def determined(plan: Plan, rings: Collection[str] = ()) -> Plan:
    """The plan with its orders completed where that is needed; itself if it is nowhere.

    `rings` are the aggregates of users' rings, to which no order matters.

    >>> from orchestrator.algebra.examples import PARTS, PRICE
    >>> from orchestrator.algebra.printer import print_plan
    >>> from orchestrator.algebra.scalar import Scalar
    >>> dearest = Limit(PARTS, (SortKey(PRICE, descending=True),), Scalar.read("3"))
    >>> print(print_plan(determined(Plan(dearest, ("price",), (PRICE,))), ids=False))
    view price (hidden: pid)
    └─ λ 3 by price desc nulls last, pid
       └─ scan parts
    """
    made = with_orders(plan, rings)
    if made.root != plan.root:
        plan = narrow(made)
    if all(map(is_settled, walk(plan.root))):
        return plan
    if not all(map(is_settled, walk(plan.root, subqueries=False))):
        plan = _completed_together(plan)
    root = rewrite(plan.root, _completed_alone)
    return plan if root == plan.root else narrow(replace(plan, root=root))


def _completed_together(plan: Plan) -> Plan:
    """The plan with the IDs of all its rows: what is read in several places has the same in each."""
    identified = infer_ids(plan)
    if isinstance(identified, Unsupported) or _is_numbered(identified.root):
        return plan
    return narrow(replace(identified, root=rewrite(identified.root, _completed, False)))


def _completed_alone(operator: Operator) -> Operator:
    """An operator over rows that have their IDs, where nothing else reads these rows."""
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
    """Whether rows are numbered, which costs more than to say that the answer is open."""
    return any(isinstance(operator, Numbered) for operator in walk(plan))


def is_determined(operator: Operator) -> bool:
    """Whether an operator's result depends on nothing but the rows of its inputs."""
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
    """Refuses an operator whose result does not follow from the rows of its input."""
    if not is_determined(operator):
        refuse_open(operator.label)


def refuse_open(label: str) -> NoReturn:
    """Refuses an operator of which only its label is at hand."""
    raise NotModelledError("the order leaves open what the result is", label)


def is_settled(operator: Operator) -> bool:
    """Whether an operator is determined as far as anybody looks.

    What is evaluated for each row around it keeps no rows of its own. Those that are equal in its
    order may then come in any order if they do not differ at all.
    """
    if is_determined(operator) or not operator.outer_columns:
        return is_determined(operator)
    [below] = operator.children
    alike = set(_alike(below))
    rest = set(below.columns) - alike
    known = {*_sorted_by(operator), *alike}
    return all(column.exact for column in rest) and below.dependencies.imply(known, rest)


def _alike(plan: Operator) -> Iterator[Column]:
    """The columns that a projection computes of nothing that differs between its rows."""
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
    """Return whether a window function may give another result for another order of equal rows."""
    if function.function in _RANKS:
        return False
    if function.function in OF_SETS and not _by_rows(operator):
        return False
    return not _is_total(operator, operator.partition, operator.order)


def _by_rows(operator: Window) -> bool:
    return operator.frame is not None and str(operator.frame).upper().startswith("ROWS")


def _by_peers(operator: Window) -> bool:
    """Whether the frame depends on which rows are peers."""
    frame = "RANGE" if operator.frame is None else str(operator.frame).upper()
    return not frame.startswith("ROWS") or "GROUP" in frame or "TIES" in frame


def _completed(operator: Operator) -> Operator:
    if is_determined(operator):
        return operator
    if isinstance(operator, Limit) and not operator.with_ties:
        return replace(operator, order=_longer(operator.order, ids_of(operator.input)))
    if isinstance(operator, DistinctOn):
        order = _longer(operator.order, operator.on)
        return replace(operator, order=_longer(order, ids_of(operator.input)))
    if isinstance(operator, Window):
        opened = tuple(
            item
            for item in operator.functions
            if is_open_function(operator, item)
            and (item.function in _SCALES or not _by_peers(operator))
        )
        rest = tuple(item for item in operator.functions if item not in opened)
        if opened:
            below = replace(operator, functions=rest) if rest else operator.input
            order = _longer(operator.order, ids_of(operator.input))
            return replace(operator, input=below, functions=opened, order=order)
    return operator


def _longer(order: tuple[SortKey, ...], columns: Iterable[Column]) -> tuple[SortKey, ...]:
    known = {key.column for key in order}
    return (*order, *(SortKey(column) for column in columns if column not in known))
