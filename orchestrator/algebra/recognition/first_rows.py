"""First rows of a query: `ORDER BY ... LIMIT` over the whole query, apart from the query itself.

A strategy that finds the rows of the query one after the other in the order needs neither the limit nor the sort.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import has_key
from orchestrator.algebra.ids import ids_of, infer_ids
from orchestrator.algebra.operators.base import Operator, SortKey
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.numbered import Numbered
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.sort import Sort
from orchestrator.algebra.passes.complete_orders import is_determined
from orchestrator.algebra.plan import Plan, once
from orchestrator.algebra.recognition import recognize
from orchestrator.algebra.scalar import Scalar, unwrapped
from orchestrator.algebra.traversal import walk
from orchestrator.algebra.unsupported import Unsupported


@dataclass(frozen=True)
class FirstRows:
    """The first rows of a query in an order that decides which rows these are."""

    query: Plan
    """The recognized query without the limit. After its other columns it shows those of the order, and then those of a
    key."""
    order: tuple[SortKey, ...]
    skipped: int
    count: int
    with_ties: bool
    """Whether rows that are equal to the last row in the order are also shown."""
    distinct: bool
    """Whether no two rows of the query are equal."""


@once
def first_rows_of(plan: Plan) -> FirstRows | Unsupported | None:
    """Return the query whose first rows a lowered plan shows, why these are not known, or None for another query.

    >>> from orchestrator.algebra.examples import PARTS, PID, PRICE
    >>> from orchestrator.algebra.printer import print_plan
    >>> rows = Limit(PARTS, (SortKey(PRICE, descending=True), SortKey(PID)), Scalar.read("3"), Scalar.read("1"))
    >>> first = first_rows_of(Plan(rows, ("price",), (PRICE,)))
    >>> print(print_plan(first.query, ids=False))
    view price, idivm_order = price, idivm_order_2 = pid
    └─ π pid, price
       └─ scan parts
    >>> first.skipped, first.count, first.distinct
    (1, 3, True)
    """
    above = list(_above(plan.root))
    limit = above[-1].children[0] if above else plan.root
    if not isinstance(limit, Limit) or limit.count is None:
        return None
    if not is_determined(limit):
        return Unsupported("the order leaves open what the result is", limit.label)
    count, skipped = _number(limit.count), 0 if limit.offset is None else _number(limit.offset)
    if not count or skipped is None:
        return Unsupported("how many rows are wanted is no constant number", limit.label)
    order = tuple(_needed(limit))
    columns = tuple(key.column for key in order)
    rows: Operator = limit.input
    for operator in reversed(above):
        rows = operator.with_children((rows,))
        if isinstance(rows, Projection):
            lost = (column for column in columns if column not in rows.columns)
            rows = replace(rows, items=(*rows.items, *map(Item.kept, dict.fromkeys(lost))))
    names = Symbols(plan.names)
    order_names = tuple(names.fresh("idivm_order") for _ in columns)
    query = Plan(rows, (*plan.names, *order_names), (*plan.columns, *columns))
    distinct = has_key(rows.keys, rows.dependencies, query.columns)
    if not distinct and isinstance(identified := infer_ids(query), Plan):
        rows = identified.root
        distinct = not any(isinstance(operator, Numbered) for operator in walk(rows))
        if distinct:
            key_names = tuple(names.fresh("idivm_key") for _ in ids_of(rows))
            query = Plan(rows, (*query.names, *key_names), (*query.columns, *ids_of(rows)))
    return FirstRows(
        recognize(query),
        order,
        skipped,
        count,
        # Rows after an offset are determined only if no rows are equal in the order.
        limit.with_ties and limit.offset is None,
        distinct,
    )


def _needed(limit: Limit) -> Iterator[SortKey]:
    """Yield the sort keys that the keys before them do not determine."""
    before: list[Column] = []
    for key in limit.order:
        if key.column not in limit.input.dependencies.closure(before):
            before.append(key.column)
            yield key


def _above(root: Operator) -> Iterator[Operator]:
    """Yield the projections, and the sorts without effect, above the first other operator."""
    while isinstance(root, Projection | Sort):
        if any(scalar.subqueries for scalar in root.scalars):
            return
        yield root
        root = root.children[0]


def _number(scalar: Scalar) -> int | None:
    """Return the value of a constant that is written as a number."""
    tree = unwrapped(scalar.tree)
    tree = unwrapped(tree.this) if isinstance(tree, exp.Cast) else tree
    is_number = isinstance(tree, exp.Literal) and tree.is_int
    return int(tree.name) if is_number else None
