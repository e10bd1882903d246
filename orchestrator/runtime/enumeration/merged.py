"""Enumerate the distinct rows of a union of view trees by merging sorted buckets (section 4 of
papers/hierarchical-queries.txt).

A bucket is a summand of the query with given heavy values, or a light view. The paper's union algorithm asks
every bucket for every row. Here each bucket is read in the order of the grouping columns, and a heap holds the
first unread row of each bucket. So a row costs the buckets that contain it, and not all buckets.

One statement does this. It works in pages, so that it need not keep the heap of a whole enumeration: each page
opens the buckets behind the last row, takes the first of them into a heap, and merges until the page is full.
A step of the merge takes the least bucket and reads its rows up to the first row of the next bucket. It reads
more rows at once while they follow each other in one bucket. A row that at least half of the buckets contain is a
page of its own, without a heap.

A row of a bucket is remembered as the places (ctid) of the rows of states that it joins. The content of a page
is the view's own query over just these rows. Rows with NULL among the grouping columns follow at the end, from
the content itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Composed, Literal

from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import MaintenancePlan
from orchestrator.runtime.enumeration import ordered
from orchestrator.runtime.enumeration.buckets import buckets_of
from orchestrator.runtime.enumeration.gate import allowed, opening_function, relation_of
from orchestrator.runtime.enumeration.merge_statement import PAGE, Merging
from orchestrator.runtime.enumeration.order import Order, fixed_by, order_of

OFF = (*ordered.OFF, "enable_bitmapscan", "enable_sort")
"""Settings that make the planner read states in the order of their indexes."""


def rows(
    connection: Connection[Any], order: Order, prefix: Mapping[str, object]
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of one snapshot, fetched page by page."""
    fixed_by(order, prefix)
    fixed = {
        order.columns[name]: (
            SQL(""),
            SQL(" = {}::{}").format(Literal(value), SQL(order.types[order.columns[name]])),
        )
        for name, value in prefix.items()
    }
    with connection.transaction(), connection.cursor("idivm_rows") as cursor:
        ordered.by_lookups(connection, OFF)
        cursor.itersize = PAGE
        yield from cursor.execute(Merging(order, fixed).rows())


def relation_statements(
    connection: Connection[Any], names: Names, plan: MaintenancePlan
) -> Iterator[Composed]:
    """Yield the statements that create the relation through which SQL enumerates a view.

    It yields rows to roles that may read the view, like a plain view: functions of the query run with the
    rights of the reader, and states are read with those of the view's owner. PostgreSQL keeps the plan of the
    function that opens a cursor over it, so that a session plans it once.
    """
    order = order_of(connection, names, plan)
    if order is None or buckets_of(order) is None:
        return
    column_of = {variable: name for name, variable in reversed(list(order.columns.items()))}
    fixed = {}
    for variable, name in column_of.items():
        asked = SQL("idivm.asked_for({})").format(Literal(name))
        fixed[variable] = (
            SQL("({} IS NULL OR ").format(asked),
            SQL(" = {}::{})").format(asked, SQL(order.types[variable])),
        )
    relation = relation_of(names)
    query = Merging(order, fixed, known=()).rows(allowed(names))
    yield SQL("CREATE OR REPLACE VIEW {} WITH (security_barrier) AS\n{}").format(relation, query)
    yield SQL("GRANT SELECT ON {} TO PUBLIC").format(relation)
    yield opening_function(names, OFF)
