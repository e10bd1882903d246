"""R ⋈ S(R) and R ⟕ S(R): the right side is evaluated once for each row of the left side (LATERAL).

ID = ID(R) ∪ ID(S). A fact that holds within one evaluation of S holds here for each row of R.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from sqlglot import exp

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Dependencies, Keys
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import Identified
from orchestrator.algebra.operators.joining import (
    Binary,
    join_blocks,
    product,
    surviving,
    united_ids,
)
from orchestrator.algebra.rendering import Block, Renderer
from orchestrator.algebra.scalar import TRUE
from orchestrator.caching import cached_property


@dataclass(frozen=True)
class DependentJoin(Binary):
    """Each row of the left side, joined with the rows that the right side returns for it."""

    outer: bool = False
    """Whether a left row without a partner stays in the result, padded with NULLs."""

    symbol: ClassVar[str] = "⋈→"

    @property
    def label(self) -> str:
        """The symbol and the condition."""
        symbol = "⟕→" if self.outer else "⋈→"
        return symbol if self.condition == TRUE else f"{symbol} {self.condition}"

    @cached_property
    def outer_columns(self) -> Columns:
        """The columns of surrounding queries; the right side may also read columns of the left
        side.
        """
        both = self.left.columns + self.right.columns
        inner = self.right.outer_columns.difference(self.left.columns)
        return self.left.outer_columns | inner | self.references.difference(both)

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """ID(R) ∪ ID(S)."""
        left, right = inputs
        over_inputs = replace(self, left=left.operator, right=right.operator)
        return Identified(over_inputs, united_ids(left, right, over_inputs.dependencies))

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as a LATERAL item in FROM."""
        left = renderer.plain(self.left, outer)
        around = {**outer, **left.outputs}
        right = renderer.block(self.right, around)
        if not (right.from_only(around) and len(right.items) == 1 and _is_function(right.items[0])):
            right = renderer.nested(right)
            [item] = right.items
            lateral = exp.Lateral(this=exp.Subquery(this=item.this), alias=item.args["alias"])
            right = replace(right, items=(lateral,))
        names = {**outer, **left.outputs, **right.outputs}
        on = renderer.tree(self.condition, names)
        return join_blocks(renderer, left, right, on, "LEFT" if self.outer else "")

    def _not_null(self) -> Columns:
        if self.outer:
            return self.left.not_null
        return self.left.not_null | self.right.not_null | self.facts.not_null

    def _dependencies(self) -> Dependencies:
        right = self.right.dependencies
        if self.outer:
            right = surviving(right, self.right.not_null | self.facts.not_null)
        known = self.left.dependencies
        known |= Dependencies.of([], map(sorted_pair, right.equal))
        for key in self.left.keys:
            known |= Dependencies.of(
                [(key | item.determinant, item.dependent) for item in right.items]
            )
        if not self.outer:
            known |= Dependencies.of([((), self.facts.constant)], self.facts.equal)
        return known

    def _keys(self) -> Keys:
        return product(self.left.keys, self.right.keys)


def sorted_pair(pair: Columns) -> tuple[Column, Column]:
    """Return the two columns of a pair in a fixed order."""
    first, second = sorted(pair, key=str)
    return first, second


def _is_function(item: Tree) -> bool:
    return isinstance(item, exp.Table) and (
        isinstance(item.this, exp.Anonymous) or bool(item.args.get("rows_from"))
    )
