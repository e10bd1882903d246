"""Common parts of operators with a single input whose columns they pass on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Dependencies, Keys
from orchestrator.algebra.operators.base import Identified, Operator

Self = TypeVar("Self", bound="Unary")


@dataclass(frozen=True)
class Unary(Operator):
    """An operator with one input. Columns, IDs, keys and dependencies are those of the input."""

    input: Operator

    @property
    def children(self) -> tuple[Operator, ...]:
        """The input."""
        return (self.input,)

    def with_children(self: Self, children: tuple[Operator, ...]) -> Self:
        """Return the same operator over another input."""
        [child] = children
        return replace(self, input=child)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the input."""
        return self.input.columns

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return ID = ID(R)."""
        [below] = inputs
        return Identified(self.with_children((below.operator,)), below.ids)

    def _not_null(self) -> Columns:
        return self.input.not_null

    def _dependencies(self) -> Dependencies:
        return self.input.dependencies

    def _keys(self) -> Keys:
        return self.input.keys
