"""σ_φ(R): the rows for which a condition is true.

ID(σ_φ(R)) = ID(R). An equality in φ makes two columns equal or a column constant. A strict
comparison is never true for NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Dependencies, Keys
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import Identified, Operator
from orchestrator.algebra.predicates import Facts, facts
from orchestrator.algebra.rendering import Block, Renderer, with_condition
from orchestrator.algebra.scalar import Scalar
from orchestrator.caching import cached_property


@dataclass(frozen=True)
class Selection(Operator):
    """The rows of the input that satisfy a condition."""

    input: Operator
    condition: Scalar

    symbol: ClassVar[str] = "σ"

    @property
    def children(self) -> tuple[Operator, ...]:
        """The input."""
        return (self.input,)

    def with_children(self, children: tuple[Operator, ...]) -> Selection:
        """Return the same condition on another input."""
        [child] = children
        return replace(self, input=child)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the input."""
        return self.input.columns

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The condition."""
        return (self.condition,)

    def map_scalars(self, change: Callable[[Scalar], Scalar]) -> Selection:
        """Return the selection with a changed condition."""
        return replace(self, condition=change(self.condition))

    @property
    def label(self) -> str:
        """The symbol σ and the condition."""
        return f"σ {self.condition}"

    @cached_property
    def facts(self) -> Facts:
        """The facts that the condition establishes."""
        return facts(self.condition, self.input.columns)

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return ID(σ(R)) = ID(R)."""
        [below] = inputs
        return Identified(replace(self, input=below.operator), below.ids)

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as a condition in WHERE, or in HAVING over groups."""
        block = renderer.block(self.input, outer)
        if block.windowed or not block.ungrouped:
            block = renderer.nested(block)
        condition = renderer.tree(self.condition, {**outer, **block.outputs})
        if block.group is not None:
            return replace(block, having=(*block.having, condition))
        return with_condition(block, condition)

    def _not_null(self) -> Columns:
        return self.input.not_null | self.facts.not_null

    def _dependencies(self) -> Dependencies:
        return self.input.dependencies | Dependencies.of(
            [((), self.facts.constant)], self.facts.equal
        )

    def _keys(self) -> Keys:
        return self.input.keys
