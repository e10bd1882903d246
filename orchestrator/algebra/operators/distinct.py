"""δ(R): duplicate elimination.

ID(δ(R)) = all columns. As in the paper, δ(R) becomes γ over all columns of R as soon as R carries
IDs, which must not occur in the result of δ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from sqlglot import exp

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Keys
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import Identified
from orchestrator.algebra.operators.group import Grouping
from orchestrator.algebra.operators.unary import Unary
from orchestrator.algebra.rendering import Block, Renderer
from orchestrator.algebra.unsupported import NotModelledError


@dataclass(frozen=True)
class Distinct(Unary):
    """Each distinct row once."""

    symbol: ClassVar[str] = "δ"

    @property
    def mentions(self) -> Columns:
        """All columns, because each of them decides which rows are equal."""
        return frozenset(self.columns)

    @property
    def label(self) -> str:
        """The symbol δ."""
        return "δ"

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return ID(δ(R)) = all columns."""
        [below] = inputs
        if not self.columns:
            raise NotModelledError("a result without columns", self.label)
        return Identified(Grouping(below.operator, self.columns), self.columns)

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as SELECT DISTINCT."""
        block = renderer.block(self.input, outer)
        if not block.ungrouped:
            block = renderer.nested(block)
        return replace(block, distinct=exp.Distinct())

    def _keys(self) -> Keys:
        return self.input.keys | {frozenset(self.columns)}
