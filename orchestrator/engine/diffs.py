"""The diffs that rules propagate (papers/idivm.txt, section 2), as plans.

A diff has the columns of the result that it changes, so a condition on the result can be applied to
the diff directly. Values before the change have separate columns.

Diffs are sets of facts. If the deletes, then the updates, then the inserts of all diffs of a result
are applied, in any order within a kind and any number of times, the old rows become the new rows.
Therefore several tables may change at once, and it is harmless to find a row more than once.
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
    """Δ-(Ī'): the rows with these values of some of their IDs are deleted.

    The diff may name rows that never existed. If a row that it names exists afterwards, an insert
    has it.
    """

    plan: Operator
    ids: tuple[Column, ...]


@dataclass(frozen=True)
class Update:
    """Δu(Ī', before, after): in the rows with these IDs, the touched columns have new values.

    A column of the plan that is a column of the result holds the value after the change.
    """

    plan: Operator
    ids: tuple[Column, ...]
    before: Mapping[Column, Column]
    """Columns of the result, and the columns that hold their values before the change."""
    touched: frozenset[Column]
    present: bool = False
    """Whether the diff is known to name only rows of the result."""

    def known_after(self, columns: Iterable[Column]) -> bool:
        """Return whether the diff holds the values of some columns after the change."""
        return frozenset(columns) <= frozenset(self.plan.columns)

    def known_before(self, columns: Iterable[Column]) -> bool:
        """Return whether the diff holds the values of some columns before the change."""
        return frozenset(columns) <= self.before.keys()

    def passed_on(self) -> Update:
        """Return the diff for a result that may lack some of the rows."""
        return replace(self, present=False)

    @property
    def as_before(self) -> dict[Column, Scalar]:
        """A substitution that turns an expression over the result into one over the old values."""
        return {column: Scalar.column(old) for column, old in self.before.items()}


@dataclass(frozen=True)
class Insert:
    """Δ+(Ā): complete rows that exist after the change, and perhaps before it."""

    plan: Operator


Diff: TypeAlias = Delete | Update | Insert


@dataclass(frozen=True)
class Bag:
    """The change of a bag: inserted rows (sign 1) and deleted rows (sign -1), each for a single
    copy.
    """

    plan: Operator
    sign: Column


def variables(plan: Operator) -> frozenset[str]:
    """Return the variables that a plan reads.

    If none of them holds rows, the plan has no rows, unless it aggregates all rows into one.
    """
    return frozenset(operator.variable for operator in walk(plan) if isinstance(operator, DiffScan))


def needed(plan: Operator, prepared: Operator) -> frozenset[str]:
    """Return the variables of which at least one must hold rows so that the query of a plan runs.

    If `prepared` begins with the result of an earlier lookup and aggregates all rows into one, it has a row
    even if that lookup found nothing.
    """
    whole = any(below.is_never_empty for below in walk(prepared))
    return variables(plan if whole else prepared)
