"""VALUES: rows written in the query. SELECT without FROM reads one row without columns.

A single row has empty IDs; several rows are numbered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from sqlglot import exp

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Keys
from orchestrator.algebra.dialect import Tree, identifier, reference
from orchestrator.algebra.operators.base import Identified, Operator
from orchestrator.algebra.predicates import never_null
from orchestrator.algebra.rendering import Block, Renderer
from orchestrator.algebra.scalar import Scalar


@dataclass(frozen=True)
class Values(Operator):
    """Constant rows."""

    rows: tuple[tuple[Scalar, ...], ...]
    outputs: tuple[Column, ...]
    number: Column | None = None
    """The output column with the number of the row, if any."""

    symbol: ClassVar[str] = "values"

    @property
    def children(self) -> tuple[Operator, ...]:
        """No inputs."""
        return ()

    def with_children(self, children: tuple[Operator, ...]) -> Values:
        """Return the operator itself, which has no inputs."""
        return self

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the rows."""
        return self.outputs

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """All values, row by row."""
        return tuple(scalar for row in self.rows for scalar in row)

    def map_scalars(self, change: Callable[[Scalar], Scalar]) -> Values:
        """Return the operator with changed values."""
        return replace(self, rows=tuple(tuple(change(s) for s in row) for row in self.rows))

    @property
    def label(self) -> str:
        """The first rows and the columns."""
        if not self.outputs:
            return "one row"
        rows = ", ".join(f"({', '.join(map(str, row))})" for row in self.rows[:3])
        more = ", ..." if len(self.rows) > 3 else ""
        return f"values {rows}{more} → {' '.join(map(str, self.outputs))}"

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return ID = the number of the row, which is added if it is missing."""
        if len(self.rows) == 1:
            return Identified(self, ())
        if self.number is not None:
            return Identified(self, (self.number,))
        number = Column(symbols.fresh("row"), "integer", "integer_ops", exact=True)
        rows = tuple(
            (*row, Scalar.of(exp.Literal.number(position)))
            for position, row in enumerate(self.rows)
        )
        return Identified(Values(rows, (*self.outputs, number), number), (number,))

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as VALUES in FROM."""
        if not self.outputs and len(self.rows) == 1:
            return Block((), {})
        alias = renderer.symbols.fresh("v")
        rows = [
            exp.Tuple(expressions=[renderer.tree(scalar, outer) for scalar in row])
            for row in self.rows
        ]
        names = [identifier(column.symbol) for column in self.outputs]
        # Use a subquery: sqlglot would write joins that follow VALUES before its alias.
        item = exp.Subquery(
            this=exp.Values(expressions=rows),
            alias=exp.TableAlias(this=identifier(alias), columns=names),
        )
        return Block((item,), {c: reference(c.symbol, alias) for c in self.outputs})

    def _not_null(self) -> Columns:
        return frozenset(
            column
            for position, column in enumerate(self.outputs)
            if all(never_null(row[position], ()) for row in self.rows)
        )

    def _keys(self) -> Keys:
        if len(self.rows) <= 1:
            return frozenset({frozenset()})
        return frozenset() if self.number is None else frozenset({frozenset({self.number})})
