"""The first row, in a given order, for each combination of values of some columns (DISTINCT ON).

ID = the columns in ON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from sqlglot import exp

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Keys
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import Identified, SortKey, listed
from orchestrator.algebra.operators.unary import Unary
from orchestrator.algebra.rendering import Block, Renderer, order_clause


@dataclass(frozen=True)
class DistinctOn(Unary):
    """The first row for each combination of values."""

    on: tuple[Column, ...]
    order: tuple[SortKey, ...] = ()

    symbol: ClassVar[str] = "δ1"

    @property
    def mentions(self) -> Columns:
        """The columns in ON and in ORDER BY."""
        return frozenset(self.on) | {key.column for key in self.order}

    @property
    def label(self) -> str:
        """The symbol δ1, the columns and the order."""
        order = f" by {listed(self.order)}" if self.order else ""
        return f"δ1 {listed(self.on)}{order}"

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return ID = the columns in ON."""
        [below] = inputs
        return Identified(replace(self, input=below.operator), self.on)

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as SELECT DISTINCT ON."""
        block = renderer.block(self.input, outer)
        if not (block.ungrouped and block.named(*self.mentions)):
            block = renderer.nested(block)
        columns = [block.outputs[column].copy() for column in self.on]
        # Nest the block now: a later projection must not add columns to the SELECT list of DISTINCT
        # ON.
        on = exp.Distinct(on=exp.Tuple(expressions=columns))
        order = order_clause(self.order, block.outputs) if self.order else None
        return renderer.nested(replace(block, distinct=on, order=order))

    def _keys(self) -> Keys:
        return self.input.keys | {frozenset(self.on)}
