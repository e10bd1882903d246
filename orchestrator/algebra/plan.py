"""A plan: operators, and which of their columns a view shows under which names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TypeVar

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator

Made = TypeVar("Made")


def once(make: Callable[[Plan], Made]) -> Callable[[Plan], Made]:
    """Keep what is made of a plan with the plan, for whoever asks again."""

    @wraps(make)
    def kept(plan: Plan) -> Made:
        known: dict[str, Made] = plan.__dict__.setdefault("made", {})
        if make.__name__ not in known:
            known[make.__name__] = make(plan)
        return known[make.__name__]

    return kept


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
