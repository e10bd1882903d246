"""Keeps the shown keys of groups valid, if equal keys may look different.

A group must show a key that one of its current rows has. Besides the number of rows, the state
stores the sum of a hash of the texts of their keys. If all rows have the shown key's text, the sum
is the count times its hash. Otherwise the rows differ; when a row is deleted, the rule reads the
rows of the group again to choose a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from orchestrator.algebra.columns import Column
from orchestrator.algebra.copies import copied
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.scalar import Scalar, filled
from orchestrator.deltascript.leaves import DiffScan
from orchestrator.engine.composer import Composer
from orchestrator.engine.distinguishable import image
from orchestrator.engine.recompute_parts import AFTER
from orchestrator.engine.states import Upkeep
from orchestrator.engine.terms import projected, same

LOST = "lost"
"""The prefix of variables that hold groups which may show a key that no row has."""


@dataclass(frozen=True)
class Looks:
    """The hash sum that the state of a group stores about the texts of its keys, and its changes."""

    coarse: tuple[Column, ...]
    """The grouping columns whose equal values may look different."""
    call: Aggregate
    """The sum of the hashes, which is 0 without rows."""

    def delta(self, sign: Column) -> Aggregate:
        """Return the change of the sum."""
        change = filled("coalesce(sum(s * h), 0)", s=sign, h=_hash(self.coarse))
        return Aggregate(self.call.column, change)

    def doubt(self, stored: Mapping[Column, Column], rows: Column) -> Scalar:
        """Return the condition that a group may show a key that no row has, after a change by
        `rows`.
        """
        return filled(
            "(n + x) * h <> l + y",
            n=stored[rows],
            x=rows,
            l=stored[self.call.column],
            y=self.call.column,
            h=_hash(tuple(stored[column] for column in self.coarse)),
        )


def lost_groups(
    upkeep: Upkeep,
    whole: Grouping,
    delta: DiffScan,
    rows: Column,
    read: Iterable[Column],
    doubt: Callable[[Mapping[Column, Column]], Scalar],
) -> DiffScan:
    """Return the keys of new groups, and of changed groups that may show a key that no row has.

    The condition `doubt` reads the change of a group and the stored group, whose columns it
    receives. It may read the stored keys and the columns in `read`.
    """
    composer, state = upkeep.composer, upkeep.state
    stored = {column: composer.fresh(column) for column in (*state.ids, *read)}
    groups, _ = copied(projected(state, stored), composer.symbols, stored)
    not_null = frozenset(new for old, new in stored.items() if old in state.not_null)
    equal = same(((column, stored[column]) for column in state.ids), not_null)
    condition = filled("n IS NULL AND x > 0 OR d", n=stored[rows], x=rows, d=doubt(stored))
    selection = Selection(LeftJoin(delta, groups, equal), condition)
    lost = composer.assign(LOST, projected(selection, state.ids or (rows,)), state.ids or (rows,))
    composer.seldom[lost.variable] = whole.input, frozenset(whole.by)
    return lost


def looks_of(coarse: tuple[Column, ...], composer: Composer) -> Looks:
    """Return the hash sum to store for groups by some columns whose equal values may look
    different.
    """
    total = Column(composer.symbols.fresh("idivm_looks"), "numeric")
    call = Aggregate(total, filled("coalesce(sum(h), 0)", h=_hash(coarse)))
    return Looks(coarse, call)


def recompute_groups(
    upkeep: Upkeep, whole: Grouping, lost: DiffScan, *, replaces: bool = False
) -> None:
    """Recompute the groups with some keys from their rows, and store them.

    With `replaces`, the state may still contain the groups.
    """
    composer = upkeep.composer
    rows: Operator = projected(composer.identify(lost, whole.input, whole.by), whole.input.columns)
    fresh = composer.assign(
        f"{upkeep.state.role}{AFTER}", whole.with_children((rows,)), whole.columns
    )
    if replaces:
        upkeep.replace(fresh, whole.by)
    if whole.by:
        upkeep.insert(fresh)


def _hash(columns: tuple[Column, ...]) -> Scalar:
    return filled("hashtextextended(x, 0::bigint)::numeric", x=image(columns))
