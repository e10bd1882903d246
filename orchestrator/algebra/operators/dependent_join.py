"""R ⋈ S(R) and R ⟕ S(R): the right side is evaluated once for each row of the left one (LATERAL).

ID = ID(R) ∪ ID(S). What holds within one evaluation of S holds here per row of R.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
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


@dataclass(frozen=True)
class DependentJoin(Binary):
    """Each row of the left side with the rows that the right side gives for it."""

    outer: bool = False
    """Whether a row of the left side without a partner is kept, padded with NULLs."""

    symbol: ClassVar[str] = "⋈→"

    @property
    def label(self) -> str:
        """The symbol and the condition."""
        symbol = "⟕→" if self.outer else "⋈→"
        return symbol if self.condition == TRUE else f"{symbol} {self.condition}"

    @cached_property
    def outer_columns(self) -> Columns:
        """The left side's columns are at the right side's disposal."""
        both = self.left.columns + self.right.columns
        inner = self.right.outer_columns.difference(self.left.columns)
        return self.left.outer_columns | inner | self.references.difference(both)

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """ID(R) ∪ ID(S)."""
        left, right = inputs
        made = replace(self, left=left.operator, right=right.operator)
        return Identified(made, united_ids(left, right, made.dependencies))

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """A LATERAL item in FROM."""
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
        equal = [(each, other) for each, other in map(sorted_pair, right.equal)]
        known |= Dependencies.of([], equal)
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
    """A pair of equal columns in a fixed order."""
    item, other = sorted(pair, key=str)
    return item, other


def _is_function(item: Tree) -> bool:
    return isinstance(item, exp.Table) and (
        isinstance(item.this, exp.Anonymous) or bool(item.args.get("rows_from"))
    )
