"""Forms of SELECT with subqueries: in conditions, outputs, LATERAL, WITH and VALUES."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from psycopg.sql import SQL, Composable, Composed, Identifier

from orchestrator.fuzz.queries.aggregates import aggregate
from orchestrator.fuzz.queries.expressions import Expr
from orchestrator.fuzz.queries.grammar import Grammar, Query, comparable_pairs
from orchestrator.fuzz.queries.selects import distinct, grouped, plain
from orchestrator.fuzz.queries.sources import Field, From, Relation, Source
from orchestrator.fuzz.schemas.schema import listed
from orchestrator.fuzz.schemas.values import COMPARABLE, EXTREMES

if TYPE_CHECKING:
    from typing_extensions import LiteralString


def subquery_condition(g: Grammar, depth: int) -> Query:
    """Return a query with EXISTS, IN, ANY, ALL or a scalar subquery in WHERE, correlated or not."""
    taken: set[str] = set()
    clause = g.sources.joined(depth, taken)
    condition = _tested(g, clause, taken)
    if g.chance(0.15):
        joint = SQL(g.rng.choice(("({}) AND {}", "({}) AND {}", "({}) OR {}")))
        condition = joint.format(condition, _tested(g, clause, taken))
    if g.chance(0.25):
        joint = SQL("{} AND {}" if g.chance(0.5) else "{} OR {}")
        condition = joint.format(condition, g.make.condition(clause.scope, 0))
    rest = SQL(" FROM {} WHERE {}").format(clause.sql, condition)
    return g.select(g.outputs(clause.scope), rest)


def scalar_subquery(g: Grammar, depth: int) -> Query:
    """Return a query with a subquery among its outputs."""
    taken: set[str] = set()
    clause = g.sources.joined(depth, taken)
    inner = g.sources.pick(taken)
    scope = inner.scope
    correlation = g.meeting(clause.scope, scope)
    if inner.order and g.chance(0.4):
        value = g.make.value(g.rng.choice(scope).family, scope, 0)
        body = SQL("SELECT {} FROM {} AS {} WHERE {} ORDER BY {} LIMIT 1").format(
            value.sql, inner.relation.sql, inner.alias, correlation, listed(inner.order)
        )
    else:
        value = aggregate(g.rng, g.make, scope)
        body = SQL("SELECT {} FROM {} AS {} WHERE {}").format(
            value.sql, inner.relation.sql, inner.alias, correlation
        )
    outputs = [*g.outputs(clause.scope)[:3], replace(value, sql=SQL("({})").format(body))]
    return g.select(outputs, SQL(" FROM {}{}").format(clause.sql, g.where(clause.scope, 0.3)))


def lateral(g: Grammar, depth: int) -> Query:
    """Return a query with a LATERAL subquery: first rows, all rows or an aggregate for each row.

    The subquery may show and aggregate values of the outer row.
    """
    taken: set[str] = set()
    clause = g.sources.joined(depth, taken)
    inner = g.sources.pick(taken)
    correlation = g.meeting(clause.scope, inner.scope)
    tail = SQL("FROM {} AS {} WHERE {}").format(inner.relation.sql, inner.alias, correlation)
    read = [*inner.scope, *clause.scope] if g.chance(0.4) else inner.scope
    if g.chance(0.3):
        every = SQL("FROM {} AS {}").format(inner.relation.sql, inner.alias)
        outputs = [g.rng.choice(clause.scope), *g.outputs(read)[:2]]
        body = g.select(outputs, SQL(" {}").format(g.rng.choice((tail, every))))
        if g.chance(0.5):
            body = _aggregated(g, body)
    elif inner.order and g.chance(0.5):
        many: Composable = SQL(str(g.rng.randint(1, 2)))
        if g.chance(0.3):
            many = SQL("abs(mod({}, 3))").format(g.make.value("int", clause.scope, 0).sql)
        body = g.select(
            g.outputs(read)[:3],
            SQL(" {} ORDER BY {} LIMIT {}").format(tail, listed(inner.order), many),
        )
    else:
        of_one = SQL(g.rng.choice(("", "", " OFFSET 0", " LIMIT 1")))
        body = g.select([aggregate(g.rng, g.make, inner.scope)], SQL(" {}{}").format(tail, of_one))
    alias = Identifier(g.names.relation(taken))
    scope = Source(alias, Relation(alias, body.fields)).scope
    if g.chance(0.5):
        item = SQL("{} CROSS JOIN LATERAL ({}) AS {}").format(clause.sql, body.sql, alias)
    else:
        on: Composable = SQL("true")
        if g.chance(0.5):
            on = g.make.condition([*clause.scope, *scope], 0)
        item = SQL("{} LEFT JOIN LATERAL ({}) AS {} ON {}").format(clause.sql, body.sql, alias, on)
    rest = SQL(" FROM {}{}").format(item, g.where([*clause.scope, *scope], 0.3))
    return g.select([*g.outputs(clause.scope)[:3], *scope], rest)


def _aggregated(g: Grammar, rows: Query) -> Query:
    """Return an aggregate over the rows of a query, sometimes in groups."""
    alias = Identifier(g.names.relation(set()))
    scope = Source(alias, Relation(alias, rows.fields)).scope
    keys = [field for field in scope if field.keyable and field.exact][:1]
    value = aggregate(g.rng, g.make, scope)
    source = SQL(" FROM ({}) AS {}").format(rows.sql, alias)
    if not keys or g.chance(0.5):
        return g.select([value], source)
    grouping = g.rng.choice((" GROUP BY {}", " GROUP BY ROLLUP ({})"))
    return g.select([*keys, value], SQL("{}{}").format(source, SQL(grouping).format(keys[0].sql)))


def cte(g: Grammar, depth: int) -> Query:
    """Return a query with WITH, whose CTE is read once or twice."""
    if depth <= 0:
        return plain(g, depth)
    inner = g.query(depth - 1)
    name = Identifier(g.names.relation(set()))
    kept = SQL(g.rng.choice(("", "MATERIALIZED ", "NOT MATERIALIZED ")))
    relations = g.sources.relations
    # The outer query may read the CTE; listing it twice makes that likely.
    itself = Relation(name, inner.fields)
    g.sources.relations = [itself, itself, *relations]
    try:
        outer = g.rng.choice((plain, grouped, subquery_condition, distinct))(g, 0)
    finally:
        g.sources.relations = relations
    return Query(SQL("WITH {} AS {}({}) {}").format(name, kept, inner.sql, outer.sql), outer.fields)


def recursive(g: Grammar, depth: int) -> Query:
    """Return WITH RECURSIVE that walks along pairs of a relation, sometimes two pairs at a time."""
    step = g.sources.pick({"walk", "next"})
    places = range(len(step.scope))
    pairs = [
        (a, b)
        for a in places
        for b in places
        if a != b
        and all(step.scope[each].family == "text" and step.scope[each].safe for each in (a, b))
    ]
    numbers = [place for place in places if step.scope[place].family == "int"]
    numbers = [place for place in numbers if step.scope[place].safe]
    if pairs:
        chosen, cast = g.rng.choice(pairs), SQL("{}::text")
    elif len(numbers) > 1:
        item, other = g.rng.sample(numbers, 2)
        chosen, cast = (item, other), SQL("{}::bigint")
    else:
        return distinct(g, depth)
    following = Source(Identifier("next"), step.relation)
    (start, end), (start_2, end_2) = (
        [cast.format(source.scope[place].sql) for place in chosen] for source in (step, following)
    )
    relation = SQL("{} AS {}").format(step.relation.sql, step.alias)
    walked = SQL('{} JOIN "walk" ON "walk"."at" = {}').format(relation, start)
    if g.chance(0.3):
        walked = SQL("{} JOIN {} AS {} ON {} = {}").format(
            walked, following.relation.sql, following.alias, start_2, end
        )
        end = end_2
    first = SQL("SELECT {} FROM {}").format(start, relation)
    field = Field("at", "text" if pairs else "int")
    if g.chance(0.5):
        # Without a limit, rows that come back would make the recursion endless.
        return Query(
            SQL(
                'WITH RECURSIVE "walk"("at", "far") AS (SELECT *, 0 FROM ({}) AS "first" UNION ALL '
                'SELECT {}, "walk"."far" + 1 FROM {} WHERE "walk"."far" < {})'
                ' SELECT "at", "far" FROM "walk"'
            ).format(first, end, walked, SQL(str(g.rng.randint(1, 2)))),
            (field, Field("far", "int")),
        )
    return Query(
        SQL(
            'WITH RECURSIVE "walk"("at") AS ({} UNION SELECT {} FROM {}) SELECT "at" FROM "walk"'
        ).format(first, end, walked),
        (field,),
    )


def cte_twice(g: Grammar, depth: int) -> Query:
    """Return WITH whose CTE is read twice: in a self-join, in a subquery, or in a set operation."""
    inner = g.query(depth - 1) if depth > 0 else plain(g, 0)
    name, item, two = (Identifier(text) for text in ("shared", "first", "second"))
    itself = Relation(name, inner.fields)
    left, right = Source(item, itself), Source(two, itself)
    pairs = comparable_pairs(left.scope, right.scope)
    head = SQL("WITH {} AS ({}) ").format(name, inner.sql)
    if g.chance(0.3) or not pairs:
        distinguishable = all(e.safe and e.family in COMPARABLE for e in right.scope)
        operator = SQL(
            g.rng.choice(("UNION ALL", "EXCEPT ALL") if distinguishable else ("UNION ALL",))
        )
        condition = g.make.condition(right.scope, 0) if right.scope else SQL("true")
        tail = SQL("SELECT * FROM {} {} SELECT * FROM {} AS {} WHERE {}").format(
            name, operator, name, two, condition
        )
        return Query(SQL("{}{}").format(head, tail), inner.fields)
    a, b = g.rng.choice(pairs)
    if g.chance(0.5):
        joined = SQL("{} AS {} {} {} AS {} ON {} = {}").format(
            name,
            item,
            SQL(g.rng.choice(("JOIN", "LEFT JOIN", "FULL JOIN"))),
            name,
            two,
            a.sql,
            b.sql,
        )
        query = g.select(g.outputs([*left.scope, *right.scope]), SQL(" FROM {}").format(joined))
    else:
        counted = SQL("(SELECT count(*) FROM {} AS {} WHERE {} = {})").format(
            name, two, b.sql, a.sql
        )
        outputs = [*g.outputs(left.scope)[:3], Expr(counted, "int")]
        query = g.select(outputs, SQL(" FROM {} AS {}").format(name, item))
    return Query(SQL("{}{}").format(head, query.sql), query.fields)


def values(g: Grammar, depth: int) -> Query:
    """Return a VALUES list, alone or joined with relations."""
    rows = listed(
        [
            SQL("({}, {})").format(g.make.constant("int").sql, g.make.constant("text").sql)
            for _ in range(g.rng.randint(1, 4))
        ]
    )
    fields = (Field("k", "int"), Field("v", "text"))
    if g.chance(0.2):
        return Query(SQL("SELECT * FROM (VALUES {}) AS given (k, v)").format(rows), fields)
    relation = Relation(SQL("(SELECT * FROM (VALUES {}) AS given (k, v))").format(rows), fields)
    relations = g.sources.relations
    g.sources.relations = [relation, *relations]
    try:
        return g.rng.choice((plain, grouped, subquery_condition))(g, 0)
    finally:
        g.sources.relations = relations


_TESTS: tuple[LiteralString, ...] = (
    *("IN",) * 3,
    *("NOT IN",) * 3,
    "= ANY",
    "<> ALL",
    "<= ALL",
    "> ANY",
)


def _tested(g: Grammar, clause: From, taken: set[str], depth: int = 1) -> Composed:
    """Return a condition on a subquery, which may contain another one."""
    first = g.sources.pick(taken)
    inner = From(SQL("{} AS {}").format(first.relation.sql, first.alias), (first,))
    if g.chance(0.2):
        inner = g.sources.joined(0, taken)
    shared = comparable_pairs(clause.scope, inner.scope)
    if not shared or g.chance(0.35):
        word = SQL(g.rng.choice(("EXISTS", "NOT EXISTS")))
        condition = g.meeting(clause.scope, inner.scope)
        if depth > 0 and g.chance(0.2):
            reach = From(SQL(""), (*clause.sources, *inner.sources))
            condition = SQL("{} AND {}").format(condition, _tested(g, reach, taken, depth - 1))
        return SQL("{} (SELECT FROM {} WHERE {})").format(word, inner.sql, condition)
    a, b = g.rng.choice(shared)
    if g.chance(0.25):
        value: Composable = SQL("count(*)")
        compared = g.make.value("int", clause.scope, 0).sql
        if b.family in EXTREMES and b.keyable and g.chance(0.5):
            value = SQL(g.rng.choice(("min({})", "max({})"))).format(b.sql)
            compared = a.sql
        return SQL("{} {} (SELECT {} FROM {} WHERE {})").format(
            compared,
            SQL(g.rng.choice((">=", "=", "<>", "<"))),
            value,
            inner.sql,
            g.meeting(clause.scope, inner.scope),
        )
    if g.chance(0.15) and len(shared) > 1:
        (a, b), (c, d) = g.rng.sample(shared, 2)
        word = SQL(g.rng.choice(("IN", "NOT IN")))
        return SQL("({}, {}) {} (SELECT {}, {} FROM {})").format(
            a.sql, c.sql, word, b.sql, d.sql, inner.sql
        )
    test = SQL(g.rng.choice(_TESTS))
    where: Composable = SQL("")
    if g.chance(0.6):
        tied = g.chance(0.4)
        where = SQL(" WHERE {}").format(
            g.meeting(clause.scope, inner.scope) if tied else g.make.condition(inner.scope, 0)
        )
    return SQL("{} {} (SELECT {} FROM {}{})").format(a.sql, test, b.sql, inner.sql, where)
