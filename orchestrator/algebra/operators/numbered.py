"""ν(R): the rows of a bag, distinguished by their content and a number among rows of equal content.

ID(ν(R)) = a digest of the text of the row, and the number. This gives IDs to a table without a key.
It does not matter which of several equal rows has which number, as long as the numbers have no
gaps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Dependencies, Keys
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import Identified, Operator
from orchestrator.algebra.operators.group import Aggregate
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.unary import Unary
from orchestrator.algebra.operators.window import Window
from orchestrator.algebra.rendering import Block, Renderer
from orchestrator.algebra.scalar import Scalar, filled


@dataclass(frozen=True)
class Numbered(Unary):
    """The input with the digest of each row, and its number among the rows with this digest."""

    row: Column
    nth: Column

    symbol: ClassVar[str] = "ν"

    @staticmethod
    def of(rows: Operator, symbols: Symbols) -> Numbered:
        """Return the rows with new columns that identify them."""
        row = Column(symbols.fresh("idivm_row"), "bytea", "bytea_ops 17", exact=True)
        nth = Column(symbols.fresh("idivm_nth"), "bigint", "integer_ops", exact=True)
        return Numbered(rows, row, nth)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the input, then digest and number."""
        return (*self.input.columns, self.row, self.nth)

    @property
    def label(self) -> str:
        """The symbol ν and the columns that it adds."""
        return f"ν → {self.row} {self.nth}"

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return ID = digest and number."""
        return Identified(self, (self.row, self.nth))

    def with_digest(self, rows: Operator) -> Projection:
        """Return rows that have the columns of the input, with the digest of these columns."""
        names = {f"c{number}": column for number, column in enumerate(self.input.columns)}
        image = filled(f"ROW({', '.join(names)})::text", **names)
        encoded = filled("convert_to(x, getdatabaseencoding()::text)", x=image)
        digest = filled("substr(sha256(x), 1, 16)", x=encoded)
        return Projection(rows, (*map(Item.kept, rows.columns), Item(self.row, digest)))

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as row_number() over the rows with equal digests."""
        number = Aggregate(self.nth, Scalar.read("row_number()"))
        rows = self.with_digest(self.input)
        return renderer.nested(Window(rows, (number,), (self.row,)).render(renderer, outer))

    def _not_null(self) -> Columns:
        return self.input.not_null | {self.row, self.nth}

    def _dependencies(self) -> Dependencies:
        content = Dependencies.of([(frozenset({self.row}), frozenset(self.input.columns))])
        return self.input.dependencies | content

    def _keys(self) -> Keys:
        return self.input.keys | {frozenset({self.row, self.nth})}
