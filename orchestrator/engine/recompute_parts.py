"""Recomputes parts of a stored result, if a change only says which parts it affects.

An operator has parts if its result is the union of its results over the input rows with equal
values of some columns: groups, partitions of windows, the rows that DISTINCT ON compares. The parts
that a change of the input affects are recomputed, and the differences replace their stored rows.
Without such columns, the whole result is a single part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.scalar import FALSE, TRUE, Scalar, filled
from orchestrator.engine.composer import Composer
from orchestrator.engine.diffs import Bag, variables
from orchestrator.engine.states import Upkeep
from orchestrator.engine.terms import projected

PARTS = "parts"
"""The prefix of variables that hold the affected parts."""

SPAN = "span"
"""The prefix of variables that hold the affected span of a part."""

AFTER = "_after"
"""The suffix of variables that hold a recomputed result."""


def recompute_parts(
    upkeep: Upkeep,
    operator: Operator,
    changed: Bag,
    parts: Sequence[Column],
    condition: Scalar = TRUE,
) -> None:
    """Recompute the parts of a result that a change of the operator's input affects.

    The state holds the rows of the result that satisfy a condition.
    """
    composer, state = upkeep.composer, upkeep.state
    after = f"{state.role}{AFTER}"
    [below] = operator.children
    composer.comparable(parts)
    if not parts:
        needs = variables(changed.plan)
        fresh = composer.assign(after, operator, operator.columns, needs)
        if isinstance(operator, Grouping):
            # Without groups, the result always has exactly one row.
            upkeep.replace(fresh, ())
            upkeep.insert(fresh)
            return
        exchange(upkeep, state, fresh, needs)
        return
    affected = composer.assign(PARTS, Distinct(projected(changed.plan, parts)), parts)
    rows = projected(composer.identify(affected, below, parts), below.columns)
    result = operator.with_children((rows,))
    if condition != TRUE:
        result = Selection(result, condition)
    fresh = composer.assign(after, result, operator.columns)
    if set(state.ids) <= set(parts):
        # A part has at most one row, which is deleted if the part is empty.
        exchange(upkeep, projected(affected, state.ids), fresh)
        return
    composer.probe(state, parts)
    exchange(upkeep, composer.identify(affected, state, parts), fresh)


def exchange(
    upkeep: Upkeep, before: Operator, fresh: Operator, needs: Iterable[str] | None = None
) -> None:
    """Replace some stored rows by other rows, and write only the differences."""
    ids = upkeep.state.ids
    upkeep.delete(without(before, fresh, ids, upkeep.composer), ids, needs=needs)
    upkeep.replace(fresh, ids)
    upkeep.insert(fresh)


def without(
    rows: Operator, others: Operator, ids: Sequence[Column], composer: Composer
) -> Operator:
    """Return the IDs of rows that other rows do not have.

    It groups instead of joining: PostgreSQL expects small diffs, and would loop over one within the
    other.
    """
    among = composer.column("among")
    parts = ((rows, (FALSE,)), (others, (TRUE,)))
    both = composer.union_with(tuple(ids), (among,), parts)
    aggregate = Aggregate(composer.column("found"), filled("bool_or(x)", x=among))
    groups = Grouping(both, tuple(ids), (aggregate,))
    return projected(Selection(groups, filled("NOT x", x=aggregate.column)), ids)
