"""Forms of SELECT without their own subqueries.

The result of each query is unique. LIMIT, DISTINCT ON and window functions have an order that is
total except for equal rows. Only keyable expressions are grouped by or made distinct.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from psycopg.sql import SQL, Composable, Identifier

from orchestrator.fuzz.queries.aggregates import DIRECTIONS, aggregate, window, window_of_peers
from orchestrator.fuzz.queries.expressions import Expr
from orchestrator.fuzz.queries.grammar import Grammar, Query, comparable_pairs
from orchestrator.fuzz.queries.sources import Field
from orchestrator.fuzz.schemas.schema import listed

if TYPE_CHECKING:
    from typing_extensions import LiteralString


def plain(g: Grammar, depth: int) -> Query:
    """Return a query with selection, projection and joins."""
    clause = g.sources.joined(depth)
    rest = SQL(" FROM {}{}").format(clause.sql, g.where(clause.scope))
    if len(clause.sources) == 1 and g.chance(0.15):
        return Query(SQL("SELECT *{}").format(rest), clause.sources[0].relation.fields)
    outputs = g.outputs(clause.scope)
    first = clause.sources[0]
    if g.chance(0.06) and isinstance(first.relation.sql, Identifier):
        exact = all(field.exact for field in first.relation.fields)
        outputs.append(Expr(first.alias, "row", keyable=False, exact=exact))
    if g.chance(0.1):
        # The values and names of a row, which is NULL if an outer join produced it.
        source = g.rng.choice(clause.sources)
        exact = all(field.exact for field in source.relation.fields)
        value = SQL("to_jsonb({})").format(source.alias)
        outputs.append(Expr(value, "jsonb", keyable=False, exact=exact))
    return g.select(outputs, rest)


def distinct(g: Grammar, depth: int) -> Query:
    """Return a query with SELECT DISTINCT."""
    clause = g.sources.joined(depth)
    rest = SQL(" FROM {}{}").format(clause.sql, g.where(clause.scope))
    return g.select(g.outputs(clause.scope, safe=True), rest, SQL("DISTINCT "))


def distinct_on(g: Grammar, depth: int) -> Query:
    """Return a query with DISTINCT ON and a total order."""
    clause = g.sources.joined(depth)
    keys = g.keys(clause)
    if clause.order is None or not keys:
        return distinct(g, depth)
    key = g.rng.choice(keys).sql
    down = SQL(g.rng.choice(DIRECTIONS))
    rest = SQL(" FROM {}{} ORDER BY {}{}, {}").format(
        clause.sql, g.where(clause.scope, 0.3), key, down, clause.order
    )
    return g.select(g.outputs(clause.scope), rest, SQL("DISTINCT ON ({}) ").format(key))


def grouped(g: Grammar, depth: int) -> Query:
    """Return a query with GROUP BY, sometimes with HAVING, and sometimes without showing the keys."""
    clause = g.sources.joined(depth)
    scope = clause.scope
    keys = g.some_keys(clause)
    grouping_keys = [key for key in keys if g.chance(0.85)]
    grouping_keys += [aggregate(g.rng, g.make, scope) for _ in range(g.rng.choice((0, 1, 1, 2, 3)))]
    rest = SQL(" FROM {}{} GROUP BY {}{}").format(
        clause.sql, g.where(scope, 0.35), listed([key.sql for key in keys]), _having(g, keys, scope)
    )
    return g.select(grouping_keys or keys, rest)


def grouped_by_key(g: Grammar, depth: int) -> Query:
    """Return a query with GROUP BY of a primary key, which shows columns that depend on the key."""
    clause = g.sources.joined(0)
    first = clause.sources[0]
    if not first.relation.primary:
        return grouped(g, depth)
    by = [SQL("{}.{}").format(first.alias, Identifier(name)) for name in first.relation.key]
    outputs = g.outputs(first.scope)
    outputs.append(aggregate(g.rng, g.make, clause.scope))
    return g.select(outputs, SQL(" FROM {} GROUP BY {}").format(clause.sql, listed(by)))


def of_a_table(g: Grammar, depth: int) -> Query:
    """Return rows of a single relation, or sums and counts of them: the queries that concurrent writers share."""
    clause = g.sources.single(0)
    scope = clause.scope
    where = SQL(" WHERE {} IS NOT NULL").format(g.rng.choice(scope).sql)
    rest = SQL(" FROM {}{}").format(clause.sql, where if g.chance(0.3) else g.where(scope, 0.3))
    keys = [key for key in g.keys(clause) if g.chance(0.6)][:2]
    if not keys or g.chance(0.3):
        return g.select(g.rng.sample(scope, min(len(scope), g.rng.choice((1, 2, 3)))), rest)
    numbers = [expr for expr in scope if expr.family in ("int", "num")]
    sums = [
        Expr(SQL("count(*)"), "int"),
        Expr(SQL("count({})").format(g.rng.choice(scope).sql), "int"),
    ]
    for expr in g.rng.sample(numbers, min(len(numbers), 2)):
        function = SQL(g.rng.choice(("sum({})", "avg({})"))).format(expr.sql)
        sums.append(Expr(function, "num", keyable=False, exact=expr.exact))
    having = SQL(" HAVING count(*) > 1") if g.chance(0.3) else SQL("")
    by = listed([key.sql for key in keys])
    outputs = [*keys, *g.rng.sample(sums, g.rng.randint(1, len(sums)))]
    return g.select(outputs, SQL("{} GROUP BY {}{}").format(rest, by, having))


def expanded(g: Grammar, depth: int) -> Query:
    """Return a query with set-returning functions in SELECT, and sometimes in GROUP BY."""
    clause = g.sources.joined(depth)
    scope = clause.scope
    sets = [_series(g, scope), _elements(g, scope), _keys(g, scope)]
    sets = g.rng.sample(sets, g.rng.choice((1, 1, 2)))
    where = g.where(scope, 0.35)
    if not all(item.safe for item in sets) or g.chance(0.4):
        return g.select([*g.outputs(scope)[:3], *sets], SQL(" FROM {}{}").format(clause.sql, where))
    keys = [*sets, *g.some_keys(clause, 1)]
    by = listed([SQL(str(number + 1)) for number in range(len(keys))])
    grouping = g.rng.choice((by, by, SQL("ROLLUP ({})").format(by)))
    outputs = [*keys, aggregate(g.rng, g.make, scope)]
    return g.select(outputs, SQL(" FROM {}{} GROUP BY {}").format(clause.sql, where, grouping))


def _series(g: Grammar, scope: Sequence[Expr]) -> Expr:
    number = g.make.value("int", scope, 0)
    return replace(number, sql=SQL("generate_series(1, abs(mod({}, 4)))").format(number.sql))


def _elements(g: Grammar, scope: Sequence[Expr]) -> Expr:
    item, other = (g.make.value("text", scope, 0) for _ in range(2))
    array = SQL("upper(unnest(ARRAY[({})::text, 'x', ({})::text]))").format(item.sql, other.sql)
    return replace(
        item, sql=array, keyable=item.keyable and other.keyable, exact=item.exact and other.exact
    )


def _keys(g: Grammar, scope: Sequence[Expr]) -> Expr:
    text = g.make.value("text", scope, 0)
    template = SQL("(jsonb_each(jsonb_build_object('a', 1, coalesce({}, 'b'), 2))).key")
    return replace(text, sql=template.format(text.sql))


def grouping_sets(g: Grammar, depth: int) -> Query:
    """Return a query with GROUPING SETS, ROLLUP or CUBE."""
    clause = g.sources.joined(depth)
    keys = g.some_keys(clause, 2)
    by = listed([key.sql for key in keys])
    each = listed([SQL("({})").format(key.sql) for key in keys])
    sets = g.rng.choice(
        (
            SQL("ROLLUP ({})").format(by),
            SQL("CUBE ({})").format(by),
            SQL("GROUPING SETS ({}, ({}), ())").format(each, by),
            SQL("GROUPING SETS ({}, ())").format(each),
        )
    )
    outputs = [*keys, Expr(SQL("GROUPING({})").format(by), "int")]
    outputs.append(aggregate(g.rng, g.make, clause.scope))
    rest = SQL(" FROM {}{} GROUP BY {}").format(clause.sql, g.where(clause.scope, 0.3), sets)
    return g.select(outputs, rest)


def scalar_aggregate(g: Grammar, depth: int) -> Query:
    """Return a query with aggregates over all rows; it has one row even for an empty input."""
    clause = g.sources.joined(depth)
    outputs = [aggregate(g.rng, g.make, clause.scope) for _ in range(g.rng.choice((1, 2, 3)))]
    rest = SQL(" FROM {}{}").format(clause.sql, g.where(clause.scope, 0.4))
    if g.chance(0.2):
        rest = SQL("{} HAVING count(*) > {}").format(rest, g.make.constant("int").sql)
    return g.select(outputs, rest)


_SET_OPERATORS: tuple[LiteralString, ...] = (
    "UNION",
    "UNION ALL",
    "INTERSECT",
    "INTERSECT ALL",
    "EXCEPT",
    "EXCEPT ALL",
)


def set_operation(g: Grammar, depth: int) -> Query:
    """Return a query with UNION, INTERSECT or EXCEPT, with or without ALL."""
    operator = g.rng.choice(_SET_OPERATORS)
    left = _branch(g, depth, None)
    parts: list[Composable] = [SQL("({})").format(left.sql)]
    for _ in range(g.rng.choice((1, 1, 2))):
        parts.append(SQL("({})").format(_branch(g, depth, left.fields).sql))
    joined = SQL(" " + operator + " ").join(parts)
    if g.chance(0.25):
        other = SQL(" " + g.rng.choice(_SET_OPERATORS) + " ")
        joined = other.join(
            [SQL("({})").format(joined), SQL("({})").format(_branch(g, depth, left.fields).sql)]
        )
    return Query(joined, left.fields)


def with_ties(g: Grammar, depth: int) -> Query:
    """Return a query with FETCH FIRST ... WITH TIES."""
    clause = g.sources.joined(depth)
    keys = g.keys(clause)
    if not keys:
        return plain(g, depth)
    rest = SQL(" FROM {}{} ORDER BY {}{} FETCH FIRST {} ROWS WITH TIES").format(
        clause.sql,
        g.where(clause.scope, 0.3),
        g.rng.choice(keys).sql,
        SQL(g.rng.choice(DIRECTIONS)),
        SQL(str(g.rng.randint(1, 4))),
    )
    return g.select(g.outputs(clause.scope), rest)


def limited(g: Grammar, depth: int) -> Query:
    """Return a query with ORDER BY and LIMIT, with a total order."""
    clause = g.sources.joined(depth)
    if clause.order is None:
        return plain(g, depth)
    first = [SQL("{}{}, ").format(key.sql, SQL(g.rng.choice(DIRECTIONS))) for key in g.keys(clause)]
    rest = SQL(" FROM {}{} ORDER BY {}{} LIMIT {}{}").format(
        clause.sql,
        g.where(clause.scope, 0.3),
        g.rng.choice([SQL(""), *first]),
        clause.order,
        SQL(g.rng.choice(("1", "2", "3", "4", "4", "ALL"))),
        SQL(g.rng.choice((" OFFSET 0", " OFFSET 1", " OFFSET 3"))) if g.chance(0.5) else SQL(""),
    )
    return g.select(g.outputs(clause.scope), rest)


def windowed(g: Grammar, depth: int) -> Query:
    """Return a query with window functions."""
    clause = g.sources.joined(depth)
    if clause.order is None:
        return plain(g, depth)
    outputs = g.outputs(clause.scope)[:3]
    outputs += [
        window(g.rng, g.make, clause.scope, clause.order) for _ in range(g.rng.choice((1, 1, 2)))
    ]
    return g.select(outputs, SQL(" FROM {}{}").format(clause.sql, g.where(clause.scope, 0.3)))


def windowed_peers(g: Grammar, depth: int) -> Query:
    """Return a query with window functions over orders that leave rows equal."""
    clause = g.sources.joined(depth)
    outputs = g.outputs(clause.scope)[:3]
    outputs += [
        window_of_peers(g.rng, g.make, clause.scope) for _ in range(g.rng.choice((1, 1, 2)))
    ]
    return g.select(outputs, SQL(" FROM {}{}").format(clause.sql, g.where(clause.scope, 0.3)))


def first_of_each(g: Grammar, depth: int) -> Query:
    """Return the first rows, mostly of each group, by a row number or rank in an inner query."""
    clause = g.sources.joined(depth)
    keys = g.keys(clause)
    if clause.order is None or not keys:
        return windowed_peers(g, depth)
    group, by = g.rng.choice(keys), g.rng.choice(keys)
    parts = SQL("PARTITION BY {} ").format(group.sql) if g.chance(0.8) else SQL("")
    number = SQL("{}() OVER ({}ORDER BY {}{}{})").format(
        *g.rng.choice(
            (
                (SQL("row_number"), parts, by.sql, SQL(", "), clause.order),
                (SQL("rank"), parts, by.sql, SQL(g.rng.choice(DIRECTIONS)), SQL("")),
            )
        )
    )
    inner = g.select(
        [*g.outputs(clause.scope)[:3], group, Expr(number, "int")],
        SQL(" FROM {}{}").format(clause.sql, g.where(clause.scope, 0.3)),
    )
    alias, last = Identifier("ranked"), Identifier(inner.fields[-1].name)
    fields = inner.fields if g.chance(0.5) else inner.fields[:-1]
    columns = listed([SQL("{}.{}").format(alias, Identifier(field.name)) for field in fields])
    return Query(
        SQL("SELECT {} FROM ({}) AS {} WHERE {}.{} <= {}").format(
            columns, inner.sql, alias, alias, last, SQL(str(g.rng.randint(1, 2)))
        ),
        fields,
    )


def without_partner(g: Grammar, depth: int) -> Query:
    """Return a query with LEFT JOIN ... WHERE the right side is NULL."""
    taken: set[str] = set()
    left, right = g.sources.pick(taken, depth), g.sources.pick(taken)
    pairs = comparable_pairs(left.scope, right.scope)
    if not pairs:
        return plain(g, depth)
    a, b = g.rng.choice(pairs)
    missing = g.rng.choice([b, *right.scope]).sql if g.chance(0.2) else b.sql
    rest = SQL(" FROM {} AS {} LEFT JOIN {} AS {} ON {} = {} WHERE {} IS NULL").format(
        left.relation.sql, left.alias, right.relation.sql, right.alias, a.sql, b.sql, missing
    )
    return g.select(g.outputs([*left.scope, *left.scope, *right.scope]), rest)


def window_over_groups(g: Grammar, depth: int) -> Query:
    """Return a query with a window function over the groups of a GROUP BY."""
    clause = g.sources.joined(depth)
    keys = g.some_keys(clause)
    by = listed([key.sql for key in keys])
    outputs = [
        *keys,
        Expr(SQL("rank() OVER (ORDER BY count(*), {})").format(by), "int"),
        Expr(SQL("sum(count(*)) OVER (ORDER BY {})").format(by), "num", keyable=False),
    ]
    rest = SQL(" FROM {}{} GROUP BY {}").format(clause.sql, g.where(clause.scope, 0.3), by)
    return g.select(outputs, rest)


def _having(g: Grammar, keys: Sequence[Expr], scope: Sequence[Expr]) -> Composable:
    if g.chance(0.7):
        return SQL("")
    tested = aggregate(g.rng, g.make, scope)
    if not tested.exact or g.chance(0.5):
        return SQL(" HAVING count(*) > 1")
    return SQL(" HAVING {}").format(g.make.condition([tested, *keys], 0))


def _branch(g: Grammar, depth: int, like: Sequence[Field] | None) -> Query:
    clause = g.sources.joined(depth) if g.chance(0.25) else g.sources.single(depth)
    if like is None:
        outputs = g.outputs(clause.scope, safe=True)[:2]
    else:
        safe = [e for e in clause.scope if e.safe]
        values = [g.make.value(f.family, safe, 0) for f in like]
        outputs = [e if e.keyable else g.make.constant(e.family) for e in values]
    return g.select(outputs, SQL(" FROM {}{}").format(clause.sql, g.where(clause.scope, 0.25)))
