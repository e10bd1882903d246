"""τ(R): the rows in an order. Relations are unordered, so only the reader of the result sees it.

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
        """The columns in ORDER BY."""
        return frozenset(key.column for key in self.order)

    @property
    def label(self) -> str:
        """The symbol τ and the order."""
        return f"τ {listed(self.order)}"

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as ORDER BY."""
        block = renderer.block(self.input, outer)
        if not (block.ungrouped and block.named(*self.mentions)):
            block = renderer.nested(block)
        return replace(block, order=order_clause(self.order, block.outputs))
