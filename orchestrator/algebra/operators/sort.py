"""τ(R): the rows in an order. A relation has none; it matters to who reads the result alone.

ID(τ(R)) = ID(R).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from orchestrator.algebra.columns import Column
from orchestrator.algebra.dependencies import Columns
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import SortKey, listed
from orchestrator.algebra.operators.unary import Unary
from orchestrator.algebra.rendering import Block, Renderer, order_clause


@dataclass(frozen=True)
class Sort(Unary):
    """The input, sorted."""

    order: tuple[SortKey, ...]

    symbol: ClassVar[str] = "τ"

    @property
    def mentions(self) -> Columns:
        """The columns sorted by."""
        return frozenset(key.column for key in self.order)

    @property
    def label(self) -> str:
        """τ and the order."""
        return f"τ {listed(self.order)}"

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """ORDER BY."""
        block = renderer.block(self.input, outer)
        if not (block.ungrouped and block.named(*self.mentions)):
            block = renderer.nested(block)
        return replace(block, order=order_clause(self.order, block.outputs))
