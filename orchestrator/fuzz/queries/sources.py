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
    """A column of a relation or of a query's result; `Expr` explains its properties."""

    name: str
    family: str
    keyable: bool = True
    exact: bool = True


@dataclass(frozen=True)
class Relation:
    """A relation in FROM; `key` distinguishes its rows, and `primary` marks a primary key."""

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
        """Expressions that order all rows except equal ones; None if no order is reproducible."""
        if self.relation.key:
            return [SQL("{}.{}").format(self.alias, Identifier(name)) for name in self.relation.key]
        if not all(field.exact for field in self.relation.fields):
            return None
        # The text distinguishes 1.0 from 1.00, and json has no order.
        return [SQL('{}::text COLLATE "C"').format(e.sql) for e in self.scope]


@dataclass(frozen=True)
class From:
    """A FROM clause and its sources."""

    sql: Composable
    sources: tuple[Source, ...]
    crossed: bool = False
    """Whether the clause has a join without a condition; one is enough, as tables may be large."""

    def joined(self, sql: Composable, right: Source, crossed: bool = False) -> From:
        """Return the clause with another relation."""
        return From(sql, (*self.sources, right), self.crossed or crossed)

    @property
    def scope(self) -> list[Expr]:
        """The columns of all its relations."""
        return [expr for source in self.sources for expr in source.scope]

    @property
    def order(self) -> Composed | None:
        """A total order of its rows except equal ones; None if no order is reproducible."""
        parts: list[Composable] = []
        for source in self.sources:
            if source.order is None:
                return None
            parts += source.order
        return listed(parts) if parts else None


class Sources:
    """Makes FROM clauses from the relations that a query may read."""

    def __init__(
        self,
        rng: Random,
        names: Names,
        make: Expressions,
        nested: Callable[[int], Relation | None],
    ) -> None:
        """Take `nested(depth)`, which returns a subquery as a relation if the depth allows it."""
        self.rng = rng
        self.names = names
        self.make = make
        self.nested = nested
        self.relations: list[Relation] = []
        self.common = False
        """Whether to leave out joins that few views have."""

    def pick(self, taken: set[str], depth: int = 0, like: Relation | None = None) -> Source:
        """Return a relation or a subquery under a new alias."""
        relation = like or self.rng.choice(self.relations)
        if like is None and self.rng.random() < 0.12:
            relation = self.nested(depth) or relation
        return Source(Identifier(self.names.relation(taken)), relation)

    def single(self, depth: int = 0) -> From:
        """Return a FROM clause of one relation."""
        source = self.pick(set(), depth)
        return From(_aliased(source), (source,))

    def joined(self, depth: int = 0, taken: set[str] | None = None) -> From:
        """Return a FROM clause of one to three relations."""
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
        # PostgreSQL supports a full join only with equalities.
        if kind != " FULL JOIN" and self.rng.random() < 0.2:
            conditions.append(SQL("{}").format(self.make.condition([*left.scope, *right.scope], 0)))
        return left.joined(
            SQL("{}{} {} ON {}").format(
                left.sql, SQL(kind), _aliased(right), SQL(" AND ").join(conditions)
            ),
            right,
        )

    def _pairs(self, left: From, right: Source) -> list[tuple[Expr, Expr]]:
        """Return the pairs of comparable columns, preferably of families whose values often meet."""
        pairs = [
            (a, b)
            for a in left.scope
            for b in right.scope
            if a.family == b.family and a.family in COMPARABLE and a.exact and b.exact
        ]
        keen = [(a, b) for a, b in pairs if a.family in ("int", "text", "uuid", "enum", "date")]
        return keen or pairs

    def _shared(self, left: From, right: Source) -> list[str]:
        """Return columns with equal names and families on both sides, if all equal names fit."""
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
        """Return the clause with a lateral item that reads the relations before it."""
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
        else:
            fields = (Field("one", "int"), Field("two", "text"))
            values = [self.make.value(field.family, left.scope, 0).sql for field in fields]
            if roll < 0.8:
                item = SQL(
                    "jsonb_to_recordset(jsonb_build_array(jsonb_build_object('one', {}, 'two', {})))"
                    " AS {} (one int, two text)"
                ).format(*values, alias)
            elif roll < 0.9:
                item = SQL("LATERAL (SELECT {} AS one, {} AS two WHERE {}) AS {}").format(
                    *values, self.make.condition(left.scope), alias
                )
            else:
                item = SQL("LATERAL (VALUES ({}, {}), (1, 'a')) AS {} (one, two)").format(
                    *values, alias
                )
        joint = SQL("{} CROSS JOIN {}" if self.rng.random() < 0.6 else "{} LEFT JOIN {} ON true")
        return left.joined(joint.format(left.sql, item), Source(alias, Relation(alias, fields)))


def _aliased(source: Source) -> Composed:
    return SQL("{} AS {}").format(source.relation.sql, source.alias)
