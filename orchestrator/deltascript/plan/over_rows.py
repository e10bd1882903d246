"""Restrict a query over states to the rows of the states at given places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from orchestrator.algebra.dialect import Tree, identifier, reference
from orchestrator.deltascript.plan.query import Query


def over_rows(query: Query, states: Sequence[Sequence[str]]) -> Query:
    """Return the query over the rows `p` of states alone.

    `states` has the roles of the states of each summand. `p` has the number of a summand, and in columns t0,
    t1, ... the places (ctid) of the rows of its states.
    """
    tree = query.tree.copy()
    unions = list(tree.find_all(exp.Union))
    selects = list(_summands(unions[0])) if unions else [list(tree.find_all(exp.Select))[-1]]
    for place, (select, roles) in enumerate(zip(selects, states, strict=True)):
        _restrict(select, place, roles)
    return Query(tree)


def _summands(union: Tree) -> Iterator[exp.Select]:
    for side in (union.args["this"], union.args["expression"]):
        if isinstance(side, exp.Union):
            yield from _summands(side)
        else:
            assert isinstance(side, exp.Select)
            yield side


def _restrict(select: exp.Select, place: int, roles: Sequence[str]) -> None:
    """Let a summand read only the rows `p` of its states, by their places.

    These rows join, so no condition is left. OFFSET 0 keeps the planner from choosing another join.
    """
    slots = {role: f"t{n}" for n, role in enumerate(roles)}
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
