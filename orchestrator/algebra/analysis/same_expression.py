"""Whether two expressions are the same, regardless of the names of columns in their subqueries.

Each subquery of a query text gets columns and aliases of its own, also if PostgreSQL takes two
subqueries for equal, as in `SELECT (SELECT ...), count(*) FROM t GROUP BY (SELECT ...)`.

>>> from orchestrator.algebra.examples import DEVICES, DID
>>> from orchestrator.algebra.copies import copied
>>> from orchestrator.algebra.dialect import reference
>>> from orchestrator.algebra.ids import used_symbols
>>> plan, became = copied(DEVICES, used_symbols(DEVICES))
>>> tree = exp.GT(this=reference("x"), expression=exp.Parameter(this=exp.Literal.number(1)))
>>> first, second = (
...     Scalar.of(tree, [Column("x")], (Subquery(rows, (shown,)),))
...     for rows, shown in ((DEVICES, DID), (plan, became[DID]))
... )
>>> first == second, alike(first, second)
(False, True)
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from sqlglot import exp

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.scalar import Scalar, Subquery


def alike(scalar: Scalar, other: Scalar) -> bool:
    """Return whether two expressions always have the same value; surrounding parentheses are
    ignored.
    """
    if str(scalar) != str(other) or scalar.columns != other.columns:
        return False
    return scalar.subqueries == other.subqueries or all(
        map(alike_queries, scalar.subqueries, other.subqueries)
    )


def alike_queries(subquery: Subquery, other: Subquery) -> bool:
    """Return whether two subqueries only differ in the names of their own columns."""
    outer = subquery.correlated
    return outer == other.correlated and _Pairs(outer).are(subquery, other)


@dataclass
class _Pairs:
    """Compares two plans, and pairs the columns and aliases of the first with those of the second."""

    outer: frozenset[Column]
    names: dict[tuple[type, str], str] = field(default_factory=dict)
    taken: set[tuple[type, str]] = field(default_factory=set)

    def are(self, value: Any, other: Any) -> bool:
        """Return whether two parts of plans are the same under the pairs of names so far."""
        if type(value) is not type(other):
            return False
        if isinstance(value, Column):
            return self._columns(value, other)
        if isinstance(value, Scalar):
            return self._scalars(value, other)
        if isinstance(value, tuple | list):
            return len(value) == len(other) and all(map(self.are, value, other))
        if isinstance(value, frozenset):
            # The columns of a set were already paired where they are defined.
            return len(value) == len(other) and all(
                any(self.are(a, b) for b in other) for a in value
            )
        if isinstance(value, Operator):
            return self._operators(value, other)
        if is_dataclass(value):
            return all(
                self.are(getattr(value, f.name), getattr(other, f.name)) for f in fields(value)
            )
        return bool(value == other)

    def _operators(self, operator: Operator, other: Operator) -> bool:
        for field_ in fields(operator):  # type: ignore[arg-type]
            own, others = getattr(operator, field_.name), getattr(other, field_.name)
            if field_.name in ("alias", "name") and isinstance(own, str):
                same = self._paired(str, own, others)
            elif field_.name == "names":
                # The scan of a recursion names the columns of the recursion by their symbols.
                same = self.are(tuple(map(Column, own)), tuple(map(Column, others)))
            else:
                same = self.are(own, others)
            if not same:
                return False
        return True

    def _columns(self, column: Column, other: Column) -> bool:
        if column in self.outer or other in self.outer:
            return column == other
        return self._paired(Column, column.symbol, other.symbol)

    def _paired(self, kind: type, text: str, other: str) -> bool:
        if (kind, text) not in self.names:
            if (kind, other) in self.taken:
                return False
            self.names[kind, text] = other
            self.taken.add((kind, other))
        return self.names[kind, text] == other

    def _scalars(self, scalar: Scalar, other: Scalar) -> bool:
        columns = {column.symbol for column in scalar.columns | other.columns}
        return self._trees(scalar.tree, other.tree, columns) and self.are(
            scalar.subqueries, other.subqueries
        )

    def _trees(self, value: Any, other: Any, columns: set[str]) -> bool:
        if type(value) is not type(other):
            return False
        if isinstance(value, exp.Column) and value.name in columns:
            return self._columns(Column(value.name), Column(other.name))
        if isinstance(value, list):
            return len(value) == len(other) and all(
                self._trees(a, b, columns) for a, b in zip(value, other, strict=True)
            )
        if isinstance(value, exp.Expr):
            present = [{k for k, v in tree.args.items() if v} for tree in (value, other)]
            return present[0] == present[1] and all(
                self._trees(value.args[name], other.args[name], columns) for name in present[0]
            )
        return bool(value == other)
