"""Equality joins with grouped sums of products, the queries that view trees maintain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from psycopg.sql import SQL, Composable, Literal

from orchestrator.fuzz.queries import rings
from orchestrator.fuzz.queries.aggregates import DIRECTIONS
from orchestrator.fuzz.queries.expressions import Expr
from orchestrator.fuzz.queries.grammar import Grammar, Query, comparable_pairs
from orchestrator.fuzz.queries.rings import RINGS
from orchestrator.fuzz.queries.sources import From, Source
from orchestrator.fuzz.schemas.schema import listed

if TYPE_CHECKING:
    from typing_extensions import LiteralString

_MEETING = ("int", "text", "uuid", "enum", "date", "bool")


def sums_of_products(g: Grammar, depth: int) -> Query:
    """Return grouped sums over one to four relations with equality joins, which may be cyclic."""
    clause = _joined(g)
    parts = [_where(g, source) for source in clause.sources if g.chance(0.15)]
    rest = SQL(" FROM {}").format(clause.sql)
    if parts:
        rest = SQL("{} WHERE {}").format(rest, SQL(" AND ").join(parts))
    keys = g.some_keys(clause, g.rng.choice((1, 1, 2, 3))) if g.chance(0.75) else []
    if keys and g.chance(0.2):
        return g.select(keys, rest, SQL("DISTINCT "))
    outputs = [*keys, *(_total(g, clause.sources) for _ in range(g.rng.choice((1, 2, 4))))]
    if keys:
        rest = SQL("{} GROUP BY {}").format(rest, listed([key.sql for key in keys]))
    if g.chance(0.15):
        rest = SQL("{} HAVING count(*) {} {}").format(
            rest, SQL(g.rng.choice((">", "<", "<>"))), Literal(g.rng.choice((0, 1, 2, 5)))
        )
    return g.select(outputs, rest)


def triangles(g: Grammar, depth: int) -> Query:
    """Return a join of three relations, each pair by separate columns; it may be grouped by these."""
    return _cycle(g, depth, 3)


def quadrangles(g: Grammar, depth: int) -> Query:
    """Return a join of four relations in a circle, and sometimes of others that join opposite columns."""
    return _cycle(g, depth, 4)


def _cycle(g: Grammar, depth: int, length: int) -> Query:
    taken: set[str] = set()
    first = g.sources.pick(taken)
    # A self-join of a table is a graph.
    repeated = first.relation if g.chance(0.15 if length == 3 else 0.5) else None
    sources = [first, *(g.sources.pick(taken, 0, repeated) for _ in range(length - 1))]
    free = [[e for e in source.scope if e.family in _MEETING] for source in sources]
    conditions, met = list[Composable](), list[Expr]()
    for item in range(length):
        other = (item + 1) % length
        pairs = comparable_pairs(free[item], free[other])
        if not pairs:
            return sums_of_products(g, depth)
        a, b = g.rng.choice(pairs)
        # Otherwise all relations might join on the same column.
        free[item].remove(a)
        free[other].remove(b)
        met.append(g.rng.choice((a, b)))
        conditions.append(SQL("{} = {}").format(a.sql, b.sql))
    for ends in zip(met[:2], met[2:], strict=False) if length == 4 else ():
        if g.chance(0.4):
            sources.append(g.sources.pick(taken, 0, repeated))
            columns = [e for e in sources[-1].scope if e.family in _MEETING]
            for end in ends:
                pairs = comparable_pairs([end], columns)
                if not pairs:
                    return sums_of_products(g, depth)
                a, b = g.rng.choice(pairs)
                columns.remove(b)
                conditions.append(SQL("{} = {}").format(a.sql, b.sql))
    conditions += [_where(g, source) for source in sources if g.chance(0.15)]
    rest = SQL(" FROM {} WHERE {}").format(
        listed([_aliased(source) for source in sources]), SQL(" AND ").join(conditions)
    )
    keys = g.rng.sample(met, g.rng.choice((0, 1, 2, 3) if length == 3 else (0, 0, 1, 2)))
    if keys and g.chance(0.2):
        return g.select(keys, rest, SQL("DISTINCT "))
    if keys:
        rest = SQL("{} GROUP BY {}").format(rest, listed([key.sql for key in keys]))
    query = g.select([*keys, *(_total(g, sources) for _ in range(g.rng.choice((1, 2, 4))))], rest)
    return query if keys or length > 3 else replace(query, parted=tuple(sources))


def paths(g: Grammar, depth: int) -> Query:
    """Return sums over three to five relations in a row, each joined with the next by a column."""
    taken: set[str] = set()
    first = g.sources.pick(taken)
    sources, conditions = [first], list[Composable]()
    free = [e for e in first.scope if e.family in _MEETING]
    for _ in range(g.rng.choice((2, 3, 3, 3, 4))):
        # A self-join of a table is a graph.
        repeated = first.relation if g.chance(0.3) else None
        other = g.sources.pick(taken, 0, repeated)
        onwards = [e for e in other.scope if e.family in _MEETING]
        pairs = comparable_pairs(free, onwards)
        if not pairs:
            return sums_of_products(g, depth)
        a, b = g.rng.choice(pairs)
        conditions.append(SQL("{} = {}").format(a.sql, b.sql))
        # Otherwise the next relation might use the same column as the previous one.
        free = [e for e in onwards if e is not b]
        sources.append(other)
    conditions += [_where(g, source) for source in sources if g.chance(0.1)]
    rest = SQL(" FROM {} WHERE {}").format(
        listed([_aliased(source) for source in sources]), SQL(" AND ").join(conditions)
    )
    query = g.select([_total(g, sources) for _ in range(g.rng.choice((1, 2)))], rest)
    return replace(query, parted=tuple(sources)) if len(sources) == 3 else query


def stars(g: Grammar, depth: int) -> Query:
    """Return groups over two to four relations that share a column, and sometimes another column."""
    return _star(g, depth, apart=False)


def hierarchies(g: Grammar, depth: int) -> Query:
    """Return the same grouped by columns of several relations that are not shared, so that values are divided."""
    return _star(g, depth, apart=True)


def _star(g: Grammar, depth: int, apart: bool) -> Query:
    taken: set[str] = set()
    first = g.sources.pick(taken)
    centres = [each for each in first.scope if each.family in _MEETING]
    if not centres:
        return sums_of_products(g, depth)
    centre, further = g.rng.choice(centres), g.rng.choice(centres)
    sources, conditions, shared = [first], list[Composable](), list[Expr]()
    for _ in range(g.rng.choice((1, 1, 2, 3))):
        repeated = first.relation if g.chance(0.15) else None
        other = g.sources.pick(taken, 0, repeated)
        met = [centre, further] if further is not centre and g.chance(0.4) else [centre]
        for item in met:
            pairs = comparable_pairs([item], other.scope)
            if not pairs and item is centre:
                return sums_of_products(g, depth)
            if pairs:
                a, b = g.rng.choice(pairs)
                conditions.append(SQL("{} = {}").format(a.sql, b.sql))
                shared += [a, b]
        sources.append(other)
    conditions += [_where(g, source) for source in sources if g.chance(0.1)]
    clause = From(listed([_aliased(source) for source in sources]), tuple(sources))
    count = g.rng.choice((1, 2, 2, 3))
    if apart:
        keys = [g.rng.choice(some) for source in sources if (some := _others(g, source, shared))]
        keys = g.rng.sample(keys, min(len(keys), max(2, count)))
    else:
        keys = g.some_keys(clause, count)
    if not keys:
        return sums_of_products(g, depth)
    outputs = [*keys, *(_total(g, sources) for _ in range(g.rng.choice((1, 2))))]
    rest = SQL(" FROM {} WHERE {} GROUP BY {}").format(
        clause.sql, SQL(" AND ").join(conditions), listed([key.sql for key in keys])
    )
    return replace(g.select(outputs, rest), divided=apart)


def _others(g: Grammar, source: Source, shared: Sequence[Expr]) -> list[Expr]:
    """Return the columns of a relation that are not shared and whose equal values look equal."""
    keys = [
        e
        for e in g.keys(From(_aliased(source), (source,)))
        if e.family in _MEETING and e.family != "text"
    ]
    return [key for key in keys if all(key is not other for other in shared)]


def snowflakes(g: Grammar, depth: int) -> Query:
    """Return sums over a relation and others that are joined with it, or with each other, by their keys."""
    taken: set[str] = set()
    sources, conditions = [g.sources.pick(taken)], list[Composable]()
    for _ in range(g.rng.choice((2, 3, 4))):
        other = g.sources.pick(taken)
        named = zip(other.relation.fields, other.scope, strict=True)
        key = [e for field, e in named if (field.name,) == other.relation.key]
        pairs = comparable_pairs([e for s in sources for e in s.scope if e.family in _MEETING], key)
        if pairs:
            a, b = g.rng.choice(pairs)
            conditions.append(SQL("{} = {}").format(a.sql, b.sql))
            sources.append(other)
    if not conditions:
        return sums_of_products(g, depth)
    clause = From(listed([_aliased(source) for source in sources]), tuple(sources))
    keys = g.some_keys(clause, g.rng.choice((1, 2, 2, 3))) if g.chance(0.75) else []
    outputs = [*keys, *(_total(g, sources) for _ in range(g.rng.choice((1, 2))))]
    rest = SQL(" FROM {} WHERE {}").format(clause.sql, SQL(" AND ").join(conditions))
    if keys:
        rest = SQL("{} GROUP BY {}").format(rest, listed([key.sql for key in keys]))
    return g.select(outputs, rest)


def first_of_joins(g: Grammar, depth: int) -> Query:
    """Return the first rows of an equality join, by columns and by sums over several relations."""
    clauses = (_joined(g) for _ in range(4))
    keyed = (c for c in clauses if g.keys(c) and all(s.relation.key for s in c.sources))
    clause = next(keyed, None)
    if clause is None or clause.order is None:
        return sums_of_products(g, depth)
    terms: list[Composable] = []
    for _ in range(g.rng.choice((1, 1, 2))):
        term = g.rng.choice((_sum, _sum, _key))(g, clause)
        terms.append(SQL("{}{}").format(term, SQL(g.rng.choice(DIRECTIONS))))
    parts = [_where(g, source) for source in clause.sources if g.chance(0.1)]
    where = SQL(" WHERE {}").format(SQL(" AND ").join(parts)) if parts else SQL("")
    count = SQL(g.rng.choice(("1", "2", "3", "5", "9", "40")))
    if g.chance(0.25):
        limit = SQL(" FETCH FIRST {} ROWS WITH TIES").format(count)
    else:
        terms.append(clause.order)
        offset = SQL(g.rng.choice((" OFFSET 1", " OFFSET 4"))) if g.chance(0.25) else SQL("")
        limit = SQL(" LIMIT {}{}").format(count, offset)
    rest = SQL(" FROM {}{} ORDER BY {}{}").format(clause.sql, where, listed(terms), limit)
    return replace(g.select(g.outputs(clause.scope), rest), first=True)


def _key(g: Grammar, clause: From) -> Composable:
    return g.rng.choice(g.keys(clause)).sql


def _sum(g: Grammar, clause: From) -> Composable:
    """Return a sum of numbers of some relations, with or without factors and numbers for NULL."""
    summands = list[Composable]()
    for source in g.rng.sample(clause.sources, min(len(clause.sources), 3)):
        numbers = [e for e in source.scope if e.family in ("int", "num")]
        if numbers:
            form = SQL(
                g.rng.choice(
                    (
                        "coalesce({}, 0)::numeric",
                        "2 * coalesce({}::numeric, -1)",
                        "-coalesce({}::numeric, 0.5)",
                        "{}::numeric",
                    )
                )
            )
            summands.append(form.format(g.rng.choice(numbers).sql))
    return SQL(" + ").join(summands) if summands else _key(g, clause)


def _joined(g: Grammar) -> From:
    taken: set[str] = set()
    first = g.sources.pick(taken)
    clause = From(_aliased(first), (first,))
    for _ in range(g.rng.choice((0, 1, 1, 2, 2, 3))):
        repeated = clause.sources[0].relation if g.chance(0.15) else None
        right = g.sources.pick(taken, 0, repeated)
        pairs = comparable_pairs(clause.scope, right.scope)
        keen = [(a, b) for a, b in pairs if a.family in _MEETING] or pairs
        chosen = g.rng.sample(keen, min(len(keen), g.rng.choice((1, 1, 2))))
        conditions = [SQL("{} = {}").format(a.sql, b.sql) for a, b in chosen]
        if conditions and not g.chance(0.06):
            on = SQL(" AND ").join(conditions)
            clause = clause.joined(
                SQL("{} JOIN {} ON {}").format(clause.sql, _aliased(right), on), right
            )
        elif not clause.crossed:
            sql = SQL("{} CROSS JOIN {}").format(clause.sql, _aliased(right))
            clause = clause.joined(sql, right, crossed=True)
    return clause


def _where(g: Grammar, source: Source) -> Composable:
    return SQL("({})").format(g.make.condition(source.scope, 0))


def _total(g: Grammar, sources: Sequence[Source]) -> Expr:
    """Return a count, or a sum or mean of a product of columns of some relations."""
    if g.chance(0.2):
        return Expr(SQL("count(*)"), "int")
    if g.chance(0.15):
        return _covariance(g, sources)
    if g.chance(0.2):
        return _of_ring(g, sources)
    factors: list[Composable] = []
    for source in g.rng.sample(sources, min(len(sources), g.rng.choice((1, 2, 2, 3)))):
        numbers = [e for e in source.scope if e.family in ("int", "num")]
        if numbers:
            # Products of integers may not fit their type.
            factors.append(SQL("{}::numeric").format(g.rng.choice(numbers).sql))
    if not factors:
        return Expr(SQL("count({})").format(g.rng.choice(sources[0].scope).sql), "int")
    product = SQL(" * ").join(factors)
    kind = g.rng.choice(("sum", "sum", "avg", "count"))
    tail = _filter(g, sources)
    text = {"sum": SQL("sum({}){}"), "avg": SQL("avg({}){}"), "count": SQL("count({}){}")}[kind]
    family = "int" if kind == "count" else "num"
    return Expr(text.format(product, tail), family, keyable=kind == "count")


_FEATURES: dict[str, LiteralString] = {
    "int": "idivm.categorical({}::bigint)",
    "enum": "idivm.categorical({})",
    "date": "idivm.categorical({})",
    "num": "{}",
    "float": "{}",
    "text": "{}",
    "bool": "{}",
    "uuid": "{}",
}
"""Arguments of an exact covariance of numbers and categories, by the family of the column."""

_NUMBERS: dict[str, LiteralString] = {"int": "({} % 100)", "num": "{}"}
"""Numbers whose products and sums are exact as floats."""


def _covariance(g: Grammar, sources: Sequence[Source]) -> Expr:
    """Return a covariance of some columns, of numbers only or also of categories."""
    mixed = g.chance(0.6)
    known = _FEATURES if mixed else _NUMBERS
    columns = [e for source in sources for e in source.scope if e.exact and e.family in known]
    if not columns:
        return Expr(SQL("count(*)"), "int")
    chosen = g.rng.choices(columns, k=g.rng.choice((1, 2, 3, 4)))
    arguments: list[Composable] = [SQL(known[e.family]).format(e.sql) for e in chosen]
    if mixed:
        # The type of a number alone would select the covariance of numbers.
        arguments.append(SQL("idivm.feature(true)"))
    call = SQL("idivm.covar({}){}").format(listed(arguments), _filter(g, sources))
    if mixed:
        return Expr(SQL("to_jsonb({})").format(call), "jsonb", keyable=False)
    places = [Literal(g.rng.randint(1, len(chosen))) for _ in range(2)]
    return Expr(SQL("idivm.covar_at({}, {}, {})").format(call, *places), "float", exact=False)


def _of_ring(g: Grammar, sources: Sequence[Source]) -> Expr:
    """Return a sum over a ring that the case registers."""
    ring = g.rng.choice(RINGS)
    columns = [e for source in sources for e in source.scope if e.family in ring.families]
    if not columns:
        return Expr(SQL("count(*)"), "int")
    g.rings.add(ring)
    chosen = g.rng.choices(columns, k=g.rng.choice((1, 2, 2, 3)))
    call = rings.call(ring, g.schema, [e.sql for e in chosen], _filter(g, sources))
    return Expr(call, "int" if ring.element == "bigint" else "jsonb", keyable=False)


def _filter(g: Grammar, sources: Sequence[Source]) -> Composable:
    if not g.chance(0.15):
        return SQL("")
    return SQL(" FILTER (WHERE {})").format(_where(g, g.rng.choice(sources)))


def _aliased(source: Source) -> Composable:
    return SQL("{} AS {}").format(source.relation.sql, source.alias)
