"""The diffs that rules propagate (papers/idivm.txt, section 2), as plans.

The columns of a diff are those of the result that it is for, so that a condition on the result is
a condition on the diff as it stands. Values before the change have columns of their own.

Diffs are sets of facts: to apply the deletions, then the updates, then the insertions of all diffs
of a result, in any order and as often as one likes, turns its rows before the changes into those
after. So two tables may change at once, and rows found by more than one way do no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.scalar import Scalar
from orchestrator.algebra.traversal import walk
from orchestrator.deltascript.leaves import DiffScan


@dataclass(frozen=True)
class Delete:
    """Δ-(Ī'): the rows with these values of some of their IDs go.

    It may name rows that never were. Rows that it names and that are there afterwards are among
    the insertions.
    """

    plan: Operator
    ids: tuple[Column, ...]


@dataclass(frozen=True)
class Update:
    """Δu(Ī', before, after): in the rows with these IDs, the touched columns have new values.

    Every column of the plan that is one of the result's holds the value after the change.
    """

    plan: Operator
    ids: tuple[Column, ...]
    before: Mapping[Column, Column]
    """Columns of the result, and the columns that hold their values before the change."""
    touched: frozenset[Column]
    present: bool = False
    """Whether it is known to name no rows that the result has not."""

    def known_after(self, columns: Iterable[Column]) -> bool:
        """Whether the diff holds some columns' values after the change."""
        return frozenset(columns) <= frozenset(self.plan.columns)

    def known_before(self, columns: Iterable[Column]) -> bool:
        """Whether the diff holds some columns' values before the change."""
        return frozenset(columns) <= self.before.keys()

    def passed_on(self) -> Update:
        """The same for a result that may lack some of the rows."""
        return replace(self, present=False)

    @property
    def as_before(self) -> dict[Column, Scalar]:
        """What turns an expression over the result into one over the values before."""
        return {column: Scalar.column(old) for column, old in self.before.items()}


@dataclass(frozen=True)
class Insert:
    """Δ+(Ā): whole rows, which are there afterwards, and perhaps were before."""

    plan: Operator


Diff: TypeAlias = Delete | Update | Insert


@dataclass(frozen=True)
class Bag:
    """The change of a bag: rows that come (sign 1) or go (sign -1), each one time."""

    plan: Operator
    sign: Column


def variables(plan: Operator) -> frozenset[str]:
    """The variables without whose rows a plan has none."""
    return frozenset(operator.variable for operator in walk(plan) if isinstance(operator, DiffScan))
