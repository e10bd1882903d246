"""The common parts of all forms of queries: relations in reach, outputs, conditions, keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from psycopg.sql import SQL, Composable, Composed, Identifier

from orchestrator.fuzz.queries.expressions import Expr, Expressions
from orchestrator.fuzz.queries.rings import Ring
from orchestrator.fuzz.queries.sources import Field, From, Relation, Source, Sources
from orchestrator.fuzz.schemas.names import Names
from orchestrator.fuzz.schemas.schema import listed
from orchestrator.fuzz.schemas.values import COMPARABLE, ColumnType


@dataclass(frozen=True)
class Query:
    """A query and its output columns."""

    sql: Composable
    fields: tuple[Field, ...]
    parted: tuple[Source, ...] = ()
    """The sources that may be divided into heavy and light parts, each with its own threshold."""
    divided: bool = False
    """Whether values are probably divided, with a threshold that may change."""
    first: bool = False
    """Whether it returns the first rows of a join, which a view may find when it is read."""


NOTHING = SQL("")


class Grammar:
    """Makes queries over the given relations."""

    def __init__(
        self, rng: Random, names: Names, enum: ColumnType, schema: str, forms: Sequence[Form]
    ) -> None:
        """Draw random numbers only from `rng`; every case has its own mix of forms."""
        self.rng = rng
        self.names = names
        self.schema = schema
        self.rings: set[Ring] = set()
        """The rings that queries sum over; the schema must define them."""
        self.make = Expressions(rng, enum)
        self.sources = Sources(rng, names, self.make, self._nested)
        self.forms = tuple(form for form in forms if rng.random() < 0.5) or tuple(forms)

    def query(self, depth: int = 2) -> Query:
        """Return a random query with subqueries up to this depth."""
        return self.rng.choice(self.forms)(self, depth)

    def _nested(self, depth: int) -> Relation | None:
        if depth <= 0:
            return None
        query = self.query(depth - 1)
        return Relation(SQL("({})").format(query.sql), query.fields)

    def chance(self, share: float) -> bool:
        """Return True in this share of calls."""
        return self.rng.random() < share

    def where(self, scope: Sequence[Expr], share: float = 0.45) -> Composed | SQL:
        """Return a WHERE clause, or an empty text."""
        return (
            SQL(" WHERE {}").format(self.make.condition(scope)) if self.chance(share) else SQL("")
        )

    def outputs(self, scope: Sequence[Expr], safe: bool = False) -> list[Expr]:
        """Return one to five output columns; with `safe`, all of them can be made distinct."""
        result: list[Expr] = []
        for _ in range(self.rng.choice((1, 2, 3, 3, 4, 5))):
            expr = self.rng.choice(scope)
            if self.chance(0.35):
                expr = self.make.value(expr.family, scope, 1)
            if safe and (not expr.safe or expr.family not in COMPARABLE):
                expr = self.make.value("int", [e for e in scope if e.safe], 0)
            result.append(expr)
        return result

    def select(
        self, outputs: Sequence[Expr], rest: Composable, head: Composable = NOTHING
    ) -> Query:
        """Return `SELECT head outputs rest`, with new names for the outputs."""
        taken: set[str] = set()
        named = [(e, self.names.column(e.family, taken)) for e in outputs]
        columns = [SQL("{} AS {}").format(e.sql, Identifier(name)) for e, name in named]
        fields = tuple(Field(name, e.family, e.keyable, e.exact) for e, name in named)
        return Query(SQL("SELECT {}{}{}").format(head, listed(columns), rest), fields)

    def keys(self, clause: From) -> list[Expr]:
        """Return the columns that can distinguish rows."""
        return [e for e in clause.scope if e.safe and e.family in COMPARABLE]

    def some_keys(self, clause: From, count: int | None = None) -> list[Expr]:
        """Return one or two expressions to group by."""
        keys = self.keys(clause)
        if not keys:
            return [Expr(SQL("1 + 1"), "int")]
        chosen = self.rng.sample(keys, min(len(keys), count or self.rng.choice((1, 1, 2))))
        if self.chance(0.2):
            computed = self.make.value(chosen[0].family, keys, 1)
            # A constant number would refer to an output by its position.
            if computed.keyable and any(_within(key, computed) for key in keys):
                chosen[0] = computed
        return chosen

    def meeting(self, outer: Sequence[Expr], inner: Sequence[Expr]) -> Composable:
        """Return a condition that correlates a subquery with the outer query."""
        pairs = comparable_pairs(inner, outer)
        if not pairs or self.chance(0.15):
            return self.make.condition(inner, 0)
        operator = SQL(self.rng.choice(("{} = {}", "{} = {}", "{} = {}", "{} < {}", "{} <> {}")))
        mine, theirs = self.rng.choice(pairs)
        return operator.format(mine.sql, theirs.sql)


Form: TypeAlias = Callable[[Grammar, int], Query]
"""Makes a query of one form, with subqueries up to a depth."""


def comparable_pairs(left: Sequence[Expr], right: Sequence[Expr]) -> list[tuple[Expr, Expr]]:
    """Return the pairs of columns that can be compared with each other."""
    return [
        (a, b)
        for a in left
        for b in right
        if a.family == b.family and a.family in COMPARABLE and a.exact and b.exact
    ]


def _within(part: Expr, whole: Expr) -> bool:
    return part.sql.as_string(None) in whole.sql.as_string(None)
