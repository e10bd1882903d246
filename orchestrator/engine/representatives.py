"""Groups whose equal keys look different show a key that some row of theirs has now.

Beside the count of a group's rows, its state holds the sum of a hash of what their keys look like.
If the key that the group shows looks like all of them, the sum is the count times its hash. Otherwise
the rows differ, and when a row goes, the rule reads the group's rows again to choose a key.
"""

from __future__ import annotations

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
from orchestrator.engine.terms import same, shown


@dataclass(frozen=True)
class Looks:
    """What a group's state holds about the looks of its rows' keys, and how that grows."""

    coarse: tuple[Column, ...]
    """The grouping columns of which equal values may look different."""
    call: Aggregate
    """The sum of the hashes, which is 0 for no rows."""
    removed: Column
    """In a delta, how many rows go from the group."""

    def deltas(self, sign: Column) -> list[Aggregate]:
        """Return what a change adds to the sum, and whether rows go."""
        change = filled("coalesce(sum(s * h), 0)", s=sign, h=_hash(self.coarse))
        gone = filled("count(*) FILTER (WHERE s < 0)", s=sign)
        return [Aggregate(self.call.column, change), Aggregate(self.removed, gone)]

    def lost(self, upkeep: Upkeep, delta: DiffScan, rows: Column) -> DiffScan:
        """Return the keys of the groups that may show a key of no row, or would if they came."""
        composer, state = upkeep.composer, upkeep.state
        pairs = [
            (column, composer.fresh(column)) for column in (*state.ids, rows, self.call.column)
        ]
        stored = dict(pairs)
        kept, _ = copied(shown(state, stored), composer.symbols, stored)
        not_null = frozenset(new for old, new in pairs if old in state.not_null)
        equal = same(((column, stored[column]) for column in state.ids), not_null)
        doubt = filled(
            "n IS NULL AND x > 0 OR (n + x) * h <> l + y",
            n=stored[rows],
            x=rows,
            l=stored[self.call.column],
            y=self.call.column,
            h=_hash(tuple(stored[column] for column in self.coarse)),
        )
        found = Selection(LeftJoin(delta, kept, equal), doubt)
        return composer.assign("lost", shown(found, state.ids), state.ids)


def looks_of(coarse: tuple[Column, ...], composer: Composer) -> Looks:
    """Return what to keep for groups by some columns of which equal values may look different."""
    total = Column(composer.symbols.fresh("idivm_looks"), "numeric")
    call = Aggregate(total, filled("coalesce(sum(h), 0)", h=_hash(coarse)))
    return Looks(coarse, call, Column(composer.symbols.fresh("removed"), "bigint"))


def compute_again(upkeep: Upkeep, whole: Grouping, lost: DiffScan) -> None:
    """Insert the groups with some keys as their rows give them."""
    composer = upkeep.composer
    rows: Operator = shown(composer.identify(lost, whole.input, whole.by), whole.input.columns)
    fresh = whole.with_children((rows,))
    upkeep.insert(composer.assign(f"{upkeep.state.role}{AFTER}", fresh, whole.columns))


def _hash(columns: tuple[Column, ...]) -> Scalar:
    return filled("hashtextextended(x, 0::bigint)::numeric", x=image(columns))
