"""R ⟕_φ S: R ⋈_φ S, and the rows of R without a partner, padded with NULLs.

ID(R ⟕ S) = ID(R) ∪ ID(S); the IDs of S are NULL in padded rows. This is a key, because a row of R
is padded at most once, and only if it has no partner. A RIGHT JOIN is a left join with swapped
sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Dependencies, Keys
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import Identified
from orchestrator.algebra.operators.joining import (
    Binary,
    join_blocks,
    padded_side,
    product,
    surviving,
    united_ids,
)
from orchestrator.algebra.predicates import equated_only
from orchestrator.algebra.rendering import Block, Renderer


@dataclass(frozen=True)
class LeftJoin(Binary):
    """The matching pairs, and every other row of the left side."""

    symbol: ClassVar[str] = "⟕"

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return ID(R ⟕ S) = ID(R) ∪ ID(S)."""
        left, right = inputs
        join = replace(self, left=left.operator, right=right.operator)
        return Identified(join, united_ids(left, right, join.dependencies))

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as LEFT JOIN in FROM."""
        left = renderer.plain(self.left, outer)
        right = padded_side(renderer, self.right, outer)
        names = {**outer, **left.outputs, **right.outputs}
        return join_blocks(renderer, left, right, renderer.tree(self.condition, names), "LEFT")

    def _not_null(self) -> Columns:
        return self.left.not_null

    def _dependencies(self) -> Dependencies:
        matched = self.right.not_null | self.facts.not_null
        known = self.left.dependencies | surviving(self.right.dependencies, matched)
        return known | Dependencies.of(self._through_condition())

    def _through_condition(self) -> list[tuple[Columns, Columns]]:
        """Return the dependencies of columns of S on columns of R that the condition equates.

        Whether a row of R has a partner depends on the columns of R that the condition reads: on
        their values if they are only compared, otherwise on how they look.
        """
        left = frozenset(self.left.columns)
        read = self.condition.references & left
        if self.condition.subqueries:
            return []
        if not all(c.exact or equated_only(self.condition, c) for c in read):
            return []
        result = []
        for pair in self.facts.equal:
            if len(set(pair) & left) == 1:
                result.append((read, frozenset(pair) - left))
        return result

    def _keys(self) -> Keys:
        return product(self.left.keys, self.right.keys)
