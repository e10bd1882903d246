"""Parts of a stored result computed again, where a change says only which parts it affects.

An operator falls into parts if its result over an input is that over the rows of each combination
of some columns' values, put together: groups, partitions of windows, the rows that DISTINCT ON
compares. The parts that a change of the input affects are computed again, and the stored rows of
these parts replaced by difference. Without such columns the whole result is one part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.strategies.idiff.diffs import Bag, variables
from orchestrator.strategies.idiff.states import Upkeep
from orchestrator.strategies.idiff.terms import renamed, same, shown

PARTS = "parts"
"""What the variables that hold the affected parts begin with."""

AFTER = "_after"
"""What the variables that hold a result computed again end with."""


def again(upkeep: Upkeep, operator: Operator, changed: Bag, parts: Sequence[Column]) -> None:
    """Computes the parts that a change of an operator's input affects again."""
    composer, state = upkeep.composer, upkeep.state
    after = f"{state.role}{AFTER}"
    [below] = operator.children
    composer.comparable(parts)
    if not parts:
        needs = variables(changed.plan)
        fresh = composer.assign(after, operator, operator.columns, needs)
        exchange(upkeep, state, fresh, needs)
        return
    affected = composer.assign(PARTS, Distinct(shown(changed.plan, parts)), parts)
    rows = shown(composer.identify(affected, below, parts), below.columns)
    fresh = composer.assign(after, operator.with_children((rows,)), operator.columns)
    if set(state.ids) <= set(parts):
        # A part has one row at most, which goes if the part is empty.
        exchange(upkeep, shown(affected, state.ids), fresh)
        return
    composer.probe(state, parts)
    exchange(upkeep, composer.identify(affected, state, parts), fresh)


def exchange(
    upkeep: Upkeep, before: Operator, fresh: Operator, needs: Iterable[str] | None = None
) -> None:
    """Replaces some stored rows by others, and rewrites only what differs."""
    state, ids = upkeep.state, upkeep.state.ids
    if not ids:
        upkeep.replace(fresh, ())
        upkeep.insert(fresh)
        return
    pairs = [(column, upkeep.composer.fresh(column)) for column in ids]
    equal = same([(new, old) for old, new in pairs], state.not_null)
    gone = Antisemijoin(shown(before, ids), renamed(fresh, pairs), equal)
    upkeep.delete(gone, ids, needs=needs)
    upkeep.replace(fresh, ids)
    upkeep.insert(fresh)
