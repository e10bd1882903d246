"""R ⋉_φ S: the rows of R that have a partner in S, each once.

ID(R ⋉ S) = ID(R).
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
from orchestrator.algebra.operators.joining import Binary
from orchestrator.algebra.rendering import Block, Renderer, with_condition


@dataclass(frozen=True)
class Semijoin(Binary):
    """The rows of the left side for which some row of the right side satisfies the condition."""

    symbol: ClassVar[str] = "⋉"

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the left side."""
        return self.left.columns

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return ID(R ⋉ S) = ID(R)."""
        left, right = inputs
        return Identified(replace(self, left=left.operator, right=right.operator), left.ids)

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as EXISTS in WHERE."""
        left = renderer.plain(self.left, outer)
        return with_condition(left, self.partner(renderer, left, outer))

    def partner(self, renderer: Renderer, left: Block, outer: Mapping[Column, Tree]) -> Tree:
        """Return the condition that a partner exists."""
        right = renderer.plain(self.right, outer)
        names = {**outer, **left.outputs, **right.outputs}
        matching = with_condition(right, renderer.tree(self.condition, names))
        return exp.Exists(this=matching.select([]))

    def _not_null(self) -> Columns:
        return self.left.not_null | self.facts.not_null

    def _dependencies(self) -> Dependencies:
        return self.left.dependencies

    def _keys(self) -> Keys:
        return self.left.keys
