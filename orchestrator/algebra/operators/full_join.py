"""R ⟗_φ S: R ⋈_φ S, and the rows of either side without a partner, padded with NULLs.

ID(R ⟗ S) = ID(R) ∪ ID(S). A padded row of R and a padded row of S differ in their IDs, unless all
IDs of both sides may be NULL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Dependencies, Keys
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import Identified
from orchestrator.algebra.operators.joining import (
    Binary,
    join_blocks,
    padded_side,
    surviving,
)
from orchestrator.algebra.rendering import Block, Renderer
from orchestrator.algebra.unsupported import NotModelledError


@dataclass(frozen=True)
class FullJoin(Binary):
    """The matching pairs, and all other rows of both sides."""

    symbol: ClassVar[str] = "⟗"

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return ID(R ⟗ S) = ID(R) ∪ ID(S)."""
        left, right = inputs
        over_inputs = replace(self, left=left.operator, right=right.operator)
        never_null_ids = left.operator.not_null & set(left.ids) or right.operator.not_null & set(
            right.ids
        )
        if not never_null_ids:
            raise NotModelledError("a full join of sides whose IDs may all be NULL", self.label)
        return Identified(over_inputs, (*left.ids, *right.ids))

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as FULL JOIN in FROM."""
        left = padded_side(renderer, self.left, outer)
        right = padded_side(renderer, self.right, outer)
        names = {**outer, **left.outputs, **right.outputs}
        return join_blocks(renderer, left, right, renderer.tree(self.condition, names), "FULL")

    def _dependencies(self) -> Dependencies:
        left = surviving(self.left.dependencies, self.left.not_null)
        return left | surviving(self.right.dependencies, self.right.not_null)

    def _keys(self) -> Keys:
        return frozenset(
            key | other
            for key in self.left.keys
            for other in self.right.keys
            if key & self.left.not_null or other & self.right.not_null
        )
