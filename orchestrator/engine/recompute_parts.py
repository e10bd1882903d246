"""Parts of a stored result computed again, where a change says only which parts it affects.

An operator falls into parts if its result over an input is that over the rows of each combination
of some columns' values, put together: groups, partitions of windows, the rows that DISTINCT ON
compares. The parts that a change of the input affects are computed again, and the stored rows of
these parts replaced by difference. Without such columns the whole result is one part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import Scalar, filled
from orchestrator.engine.composer import Composer
from orchestrator.engine.diffs import Bag, variables
from orchestrator.engine.states import Upkeep
from orchestrator.engine.terms import shown

PARTS = "parts"
"""What the variables that hold the affected parts begin with."""

SPAN = "span"
"""What the variables begin with that say which rows of a part are affected."""

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
        if isinstance(operator, Grouping):
            # Without groups it has one row, whatever there is.
            upkeep.replace(fresh, ())
            upkeep.insert(fresh)
            return
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
    ids = upkeep.state.ids
    upkeep.delete(without(before, fresh, ids, upkeep.composer), ids, needs=needs)
    upkeep.replace(fresh, ids)
    upkeep.insert(fresh)


def without(
    rows: Operator, others: Operator, ids: Sequence[Column], composer: Composer
) -> Operator:
    """The IDs of rows that others do not have.

    Grouped, and not joined: PostgreSQL takes diffs for small, and would loop over one within the other.
    """
    among = composer.column("among")
    branches = []
    for plan, value in ((rows, "false"), (others, "true")):
        own = composer.fresh(among)
        items = (*map(Item.kept, ids), Item(own, Scalar.read(value)))
        branches.append(Branch(Projection(plan, items), (*ids, own)))
    both = UnionAll(tuple(branches), (*ids, among))
    aggregate = Aggregate(composer.column("found"), filled("bool_or(x)", x=among))
    groups = Grouping(both, tuple(ids), (aggregate,))
    return shown(Selection(groups, filled("NOT x", x=aggregate.column)), ids)
