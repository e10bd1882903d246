"""The query for the content of a page: the view's query over the rows of states that the page found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from psycopg.sql import SQL
from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.dialect import Tree, identifier, reference
from orchestrator.deltascript.plan import Query
from orchestrator.deltascript.query import named
from orchestrator.runtime.enumeration.buckets import Bucket
from orchestrator.runtime.enumeration.order import Order


def content_of(order: Order, buckets: Sequence[Bucket]) -> SQL:
    """Return the view's query over the rows `p` of states alone.

    `p` has the number of a summand, and the places (ctid) of the rows of its states.
    """
    tree = order.query.tree.copy()
    unions = list(tree.find_all(exp.Union))
    summands = list(_summands(unions[0])) if unions else [_innermost(tree)]
    for place, (select, bucket) in enumerate(zip(summands, buckets, strict=True)):
        _restrict(select, place, bucket)
    return SQL(dialect.write(named(Query(tree), order.names), own=True))


def _innermost(tree: Tree) -> exp.Select:
    return list(tree.find_all(exp.Select))[-1]


def _summands(union: Tree) -> Iterator[exp.Select]:
    for side in (union.args["this"], union.args["expression"]):
        if isinstance(side, exp.Union):
            yield from _summands(side)
        else:
            assert isinstance(side, exp.Select)
            yield side


def _restrict(select: exp.Select, place: int, bucket: Bucket) -> None:
    """Let a summand read only the rows `p` of its states, by their places.

    These rows join, so no condition is left. OFFSET 0 keeps the planner from choosing another join.
    """
    slots = {walk.state: f"t{n}" for n, walk in enumerate(bucket.states)}
    tables = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]
    joins = []
    for table in tables:
        assert isinstance(table, exp.Table) and table.name in slots
        row = exp.EQ(this=reference("ctid", "s"), expression=reference(slots[table.name], "p"))
        state = exp.Table(this=table.this, db=table.args["db"])
        state.set("alias", exp.TableAlias(this=identifier("s")))
        query = exp.Select(expressions=[exp.Star()]).from_(state).where(row)
        query.set("offset", exp.Offset(expression=exp.Literal.number(0)))
        lateral = exp.Lateral(
            this=exp.Subquery(this=query), alias=exp.TableAlias(this=identifier(table.alias))
        )
        joins.append(exp.Join(this=lateral, kind="CROSS"))
    select.set("from_", exp.From(this=exp.Table(this=identifier("p"))))
    select.set("joins", joins)
    taken = exp.EQ(this=reference("place", "p"), expression=exp.Literal.number(place))
    select.where(taken, copy=False)
