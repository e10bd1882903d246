"""A plan: operators, and the columns that a view shows with their names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TypeVar

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator

Result = TypeVar("Result")


def once(function: Callable[[Plan], Result]) -> Callable[[Plan], Result]:
    """Cache the result of a function in the plan that it gets."""

    @wraps(function)
    def cached(plan: Plan) -> Result:
        known: dict[str, Result] = plan.__dict__.setdefault("cached_results", {})
        if function.__name__ not in known:
            known[function.__name__] = function(plan)
        return known[function.__name__]

    return cached


@dataclass(frozen=True)
class Plan:
    """The algebra of a query."""

    root: Operator
    names: tuple[str, ...]
    columns: tuple[Column, ...]
    """The columns that the view shows under these names, in order; a column may occur twice."""

    @property
    def hidden(self) -> tuple[Column, ...]:
        """The columns of the result that the view does not show."""
        visible = set(self.columns)
        return tuple(column for column in self.root.columns if column not in visible)
