"""R ⋈_φ S and R × S.

ID(R ⋈ S) = ID(R) ∪ ID(S). Two IDs that φ equates count as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Dependencies, Keys
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import Identified
from orchestrator.algebra.operators.joining import Binary, join_blocks, product, united_ids
from orchestrator.algebra.rendering import Block, Renderer
from orchestrator.algebra.scalar import TRUE


@dataclass(frozen=True)
class Join(Binary):
    """The pairs of rows that satisfy a condition."""

    symbol: ClassVar[str] = "⋈"

    @property
    def label(self) -> str:
        """The symbol ⋈ and the condition, or × without a condition."""
        return "×" if self.condition == TRUE else f"⋈ {self.condition}"

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return ID(R ⋈ S) = ID(R) ∪ ID(S)."""
        left, right = inputs
        over_inputs = replace(self, left=left.operator, right=right.operator)
        return Identified(over_inputs, united_ids(left, right, over_inputs.dependencies))

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as a join in FROM."""
        left = renderer.plain(self.left, outer)
        right = renderer.plain(self.right, outer)
        names = {**outer, **left.outputs, **right.outputs}
        return join_blocks(renderer, left, right, renderer.tree(self.condition, names))

    def _not_null(self) -> Columns:
        return self.left.not_null | self.right.not_null | self.facts.not_null

    def _dependencies(self) -> Dependencies:
        own = Dependencies.of([((), self.facts.constant)], self.facts.equal)
        return self.left.dependencies | self.right.dependencies | own

    def _keys(self) -> Keys:
        return product(self.left.keys, self.right.keys)
