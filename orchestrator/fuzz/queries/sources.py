"""FROM clauses: relations, joins of every kind, subqueries, LATERAL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from psycopg.sql import SQL, Composable, Composed, Identifier

from orchestrator.fuzz.queries.expressions import Expr, Expressions
from orchestrator.fuzz.schemas.names import Names
from orchestrator.fuzz.schemas.schema import listed
from orchestrator.fuzz.schemas.values import COMPARABLE


@dataclass(frozen=True)
class Field:
    """A column of a relation or of a query's result; see `Expr` for what it allows."""

    name: str
    family: str
    keyable: bool = True
    exact: bool = True


@dataclass(frozen=True)
class Relation:
    """Something to select from; `key` tells its rows apart, `primary` if declared so."""

    sql: Composable
    fields: tuple[Field, ...]
    key: tuple[str, ...] = ()
    primary: bool = False


@dataclass(frozen=True)
class Source:
    """A relation under an alias."""

    alias: Identifier
    relation: Relation

    @property
    def scope(self) -> list[Expr]:
        """Its columns as expressions."""
        return [
            Expr(SQL("{}.{}").format(self.alias, Identifier(f.name)), f.family, f.keyable, f.exact)
            for f in self.relation.fields
        ]

    @property
    def order(self) -> list[Composable] | None:
        """Expressions that order its rows, equal ones apart; None if no order is reproducible."""
        if self.relation.key:
            return [SQL("{}.{}").format(self.alias, Identifier(name)) for name in self.relation.key]
        if not all(field.exact for field in self.relation.fields):
            return None
        # The text tells 1.0 from 1.00, and json has no order of its own.
        return [SQL('{}::text COLLATE "C"').format(e.sql) for e in self.scope]


@dataclass(frozen=True)
class From:
    """A FROM clause and what it brings into scope."""

    sql: Composable
    sources: tuple[Source, ...]
    crossed: bool = False
    """Whether rows meet without any condition in it: once is enough, as a table may have hundreds."""

    def joined(self, sql: Composable, right: Source, crossed: bool = False) -> From:
        """The clause with another relation."""
        return From(sql, (*self.sources, right), self.crossed or crossed)

    @property
    def scope(self) -> list[Expr]:
        """The columns of all its relations."""
        return [expr for source in self.sources for expr in source.scope]

    @property
    def order(self) -> Composed | None:
        """A total order of its rows, up to equal ones; None if there is none to rely on."""
        parts: list[Composable] = []
        for source in self.sources:
            if source.order is None:
                return None
            parts += source.order
        return listed(parts) if parts else None


class Sources:
    """Makes FROM clauses out of the relations that a query may read."""

    def __init__(
        self,
        rng: Random,
        names: Names,
        make: Expressions,
        nested: Callable[[int], Relation | None],
    ) -> None:
        """`nested(depth)` gives a subquery as a relation, when the depth allows one."""
        self.rng = rng
        self.names = names
        self.make = make
        self.nested = nested
        self.relations: list[Relation] = []
        self.common = False
        """Whether to leave out what few views hold."""

    def pick(self, taken: set[str], depth: int = 0, like: Relation | None = None) -> Source:
        """A relation, or a subquery, under a fresh alias."""
        relation = like or self.rng.choice(self.relations)
        if like is None and self.rng.random() < 0.12:
            relation = self.nested(depth) or relation
        return Source(Identifier(self.names.relation(taken)), relation)

    def single(self, depth: int = 0) -> From:
        """A FROM clause of one relation."""
        source = self.pick(set(), depth)
        return From(_aliased(source), (source,))

    def joined(self, depth: int = 0, taken: set[str] | None = None) -> From:
        """A FROM clause of one to three relations."""
        taken = set() if taken is None else taken
        first = self.pick(taken, depth)
        clause = From(_aliased(first), (first,))
        for _ in range(self.rng.choice((0, 1, 1, 1, 2))):
            again = clause.sources[0].relation if self.rng.random() < 0.15 else None
            clause = self._join(clause, self.pick(taken, depth, again))
        if self.rng.random() < 0.1 and not self.common:
            clause = self._lateral(clause, taken)
        return clause

    def _join(self, left: From, right: Source) -> From:
        pairs = self._pairs(left, right)
        roll = self.rng.random()
        shared = self._shared(left, right)
        if not pairs and left.crossed:
            return left
        if not pairs or (roll < 0.1 and not left.crossed):
            sql = SQL("{} CROSS JOIN {}").format(left.sql, _aliased(right))
            return left.joined(sql, right, crossed=True)
        kinds = (" JOIN", " JOIN", " LEFT JOIN", " LEFT JOIN", " RIGHT JOIN", " FULL JOIN")
        kind = self.rng.choice(kinds[:4] if self.common else kinds)
        if shared and roll < 0.2:
            names = self.rng.sample(shared, min(len(shared), self.rng.choice((1, 1, 2))))
            return left.joined(
                SQL("{}{} {} USING ({})").format(
                    left.sql, SQL(kind), _aliased(right), listed([Identifier(n) for n in names])
                ),
                right,
            )
        if shared and roll < 0.3 and len(left.sources) == 1:
            return left.joined(
                SQL("{} NATURAL{} {}").format(left.sql, SQL(kind), _aliased(right)), right
            )
        chosen = self.rng.sample(pairs, 1 if self.rng.random() < 0.9 else min(2, len(pairs)))
        conditions = [SQL("{} = {}").format(a.sql, b.sql) for a, b in chosen]
        if kind != " FULL JOIN" and roll > 0.94:
            a, b = chosen[0]
            conditions[0] = SQL(self.rng.choice(("{} < {}", "{} >= {}"))).format(a.sql, b.sql)
        # A full join takes nothing but equalities.
        if kind != " FULL JOIN" and self.rng.random() < 0.2:
            conditions.append(SQL("{}").format(self.make.condition([*left.scope, *right.scope], 0)))
        return left.joined(
            SQL("{}{} {} ON {}").format(
                left.sql, SQL(kind), _aliased(right), SQL(" AND ").join(conditions)
            ),
            right,
        )

    def _pairs(self, left: From, right: Source) -> list[tuple[Expr, Expr]]:
        """Columns that may meet, those that are few or keys of something first in number."""
        found = [
            (a, b)
            for a in left.scope
            for b in right.scope
            if a.family == b.family and a.family in COMPARABLE and a.exact and b.exact
        ]
        keen = [(a, b) for a, b in found if a.family in ("int", "text", "uuid", "enum", "date")]
        return keen or found

    def _shared(self, left: From, right: Source) -> list[str]:
        """Columns of the same name and family on both sides, if no others have the same name."""
        theirs = {field.name: field for field in right.relation.fields}
        mine = [field for source in left.sources for field in source.relation.fields]
        common = [field for field in mine if field.name in theirs]
        fitting = all(
            field.family == theirs[field.name].family
            and field.family in COMPARABLE
            and field.exact
            and theirs[field.name].exact
            for field in common
        )
        names = [field.name for field in common]
        return names if fitting and len(set(names)) == len(names) else []

    def _lateral(self, left: From, taken: set[str]) -> From:
        """With something behind LATERAL that reads the relations before it."""
        alias = Identifier(self.names.relation(taken))
        arrays = [e for e in left.scope if e.family in ("int[]", "text[]")]
        roll = self.rng.random()
        if arrays and roll < 0.5:
            array = self.rng.choice(arrays)
            fields: tuple[Field, ...] = (
                Field("el", array.family.removesuffix("[]")),
                Field("nth", "int"),
            )
            item = SQL("unnest({}) WITH ORDINALITY AS {} (el, nth)").format(array.sql, alias)
        elif roll < 0.7:
            fields = (Field("num", "int"),)
            item = SQL("generate_series(1, abs(mod({}, 3)) + 1) AS {} (num)").format(
                self.make.value("int", left.scope, 0).sql, alias
            )
        elif roll < 0.8:
            fields = (Field("one", "int"), Field("two", "text"))
            item = SQL(
                "jsonb_to_recordset(jsonb_build_array(jsonb_build_object('one', {}, 'two', {})))"
                " AS {} (one int, two text)"
            ).format(
                self.make.value("int", left.scope, 0).sql,
                self.make.value("text", left.scope, 0).sql,
                alias,
            )
        else:
            fields = (Field("one", "int"), Field("two", "text"))
            item = SQL("LATERAL (VALUES ({}, {}), (1, 'a')) AS {} (one, two)").format(
                self.make.value("int", left.scope, 0).sql,
                self.make.value("text", left.scope, 0).sql,
                alias,
            )
        joint = SQL("{} CROSS JOIN {}" if self.rng.random() < 0.6 else "{} LEFT JOIN {} ON true")
        return left.joined(joint.format(left.sql, item), Source(alias, Relation(alias, fields)))


def _aliased(source: Source) -> Composed:
    return SQL("{} AS {}").format(source.relation.sql, source.alias)
