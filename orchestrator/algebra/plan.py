"""A plan: operators, and which of their columns a view shows under which names."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator


@dataclass(frozen=True)
class Plan:
    """The algebra of one query."""

    root: Operator
    names: tuple[str, ...]
    columns: tuple[Column, ...]
    """What the names stand for, in order; one column may be shown twice."""

    @property
    def hidden(self) -> tuple[Column, ...]:
        """The columns of the result that the view does not show."""
        shown = set(self.columns)
        return tuple(column for column in self.root.columns if column not in shown)
