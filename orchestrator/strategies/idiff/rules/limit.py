"""λ(R), ORDER BY ... LIMIT: store the first rows and a reserve of the next rows.

A state holds the first rows of R: the rows of the result, the rows that OFFSET skips, and a reserve.
Deleted rows leave the state. An inserted row enters it if it sorts before a stored row, or if the state
holds all of R, as the count of R's rows tells. So the state remains a prefix of R. R is read again only
when the prefix is shorter than needed.

The result is computed from the state, and replaced by difference.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from orchestrator.algebra.columns import Column
from orchestrator.algebra.ids import ids_of
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.operators.window import Window
from orchestrator.algebra.passes.complete_orders import require_determined
from orchestrator.algebra.scalar import Scalar, filled
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.deltascript.leaves import DiffScan, StateScan
from orchestrator.engine.composer import Composer
from orchestrator.engine.diffs import Bag
from orchestrator.engine.recompute_parts import exchange
from orchestrator.engine.states import Upkeep, store
from orchestrator.engine.terms import projected
from orchestrator.strategies.idiff.rules.base import bag
from orchestrator.strategies.idiff.rules.stored import maintain

RESERVE = "needed + 100"
"""The rows stored beyond the needed rows; so many rows can be deleted before R is read again."""

_ONWARDS = Scalar.of(
    exp.WindowSpec(kind="RANGE", start="CURRENT ROW", end="UNBOUNDED", end_side="FOLLOWING")
)


@maintain.register
def _(operator: Limit, composer: Composer, role: str) -> StateScan:
    require_determined(operator)
    if any(scalar.references or scalar.subqueries for scalar in operator.scalars):
        raise NotModelledError("how many rows are wanted is not constant", operator.label)
    below, ids = operator.input, ids_of(operator.input)
    changed = bag(below, composer)
    if changed is not None:
        changed = composer.bags[below] = composer.held("change", changed)
    needed = _needed(operator)
    kept = filled(f"n + {RESERVE}", n=needed, needed=needed)
    prefix = replace(operator, offset=None, count=kept)
    rows = Aggregate(Column(composer.symbols.fresh("rows"), "bigint"), Scalar.read("count(*)"))
    total = maintain(Grouping(below, (), (rows,)), composer, composer.name("total"))
    prefix_state = store(composer.name("first"), prefix, ids, composer)
    result = replace(operator, input=prefix_state)
    state = store(role, replace(result, input=prefix), ids, composer)
    if changed is None:
        return state
    _update_prefix(Upkeep(prefix_state, composer), prefix, changed, total, rows.column)
    _refill(Upkeep(prefix_state, composer), prefix, needed, total, rows.column)
    prefix_change = composer.changes[prefix_state.role]
    needs = prefix_change.variables
    fresh = composer.assign(f"{role}_after", result, result.columns, needs)
    exchange(Upkeep(state, composer), state, fresh, needs)
    return state


def _needed(operator: Limit) -> Scalar:
    """Return how many rows the result and the skipped rows need; NULL for all."""
    count = operator.count or Scalar.read("NULL::bigint")
    offset = operator.offset or Scalar.read("0")
    return filled("n::bigint + coalesce(m, 0)::bigint", n=count, m=offset)


def _update_prefix(
    upkeep: Upkeep, prefix: Limit, changed: Bag, total: StateScan, rows: Column
) -> None:
    """Apply a change to the stored prefix: delete, then insert the rows that belong to it."""
    composer, state = upkeep.composer, upkeep.state
    deleted, inserted = upkeep.net(changed)
    upkeep.delete(deleted, state.ids)
    upkeep.delete(inserted, state.ids)
    stored = composer.column("there")
    moved = _moved_rows(prefix, state, inserted, stored, total, rows, composer)
    subsets = [("deleted", Scalar.column(stored)), ("inserted", filled("NOT x", x=stored))]
    _, leaving, entering = composer.assign_apart(
        f"{state.role}_moved", moved, moved.columns, subsets
    )
    upkeep.delete(leaving, state.ids)
    upkeep.insert(projected(entering, state.columns))


def _moved_rows(
    prefix: Limit,
    state: StateScan,
    inserted: DiffScan,
    stored: Column,
    total: StateScan,
    rows: Column,
    composer: Composer,
) -> Operator:
    """Return the inserted rows that belong to the prefix, and the stored rows that they push out."""
    branches = []
    for plan, is_stored in ((state, "true"), (inserted, "false")):
        own = composer.fresh(stored)
        items = (*map(Item.kept, state.columns), Item(own, Scalar.read(is_stored)))
        branches.append(Branch(Projection(plan, items), (*state.columns, own)))
    both = UnionAll(tuple(branches), (*state.columns, stored))
    # The frame begins with the row's peers, so a row that is equal to the last stored row enters.
    before = Aggregate(composer.column("before"), filled("bool_or(x)", x=stored))
    known = Aggregate(composer.column("known"), Scalar.read("count(*)"))
    numbered = Window(Window(both, (before,), (), prefix.order, _ONWARDS), (known,))
    belongs = filled("b OR k = n", b=before.column, k=known.column, n=rows)
    ranking = "rank()" if prefix.with_ties else "row_number()"
    rank = Aggregate(composer.column("rank"), Scalar.read(ranking))
    ranked = Window(Selection(Join(numbered, total), belongs), (rank,), (), prefix.order)
    assert prefix.count is not None
    beyond = filled("t = coalesce(r > n, false)", t=stored, r=rank.column, n=prefix.count)
    return projected(Selection(ranked, beyond), (*state.columns, stored))


def _refill(
    upkeep: Upkeep,
    prefix: Limit,
    needed: Scalar,
    total: StateScan,
    rows: Column,
) -> None:
    """Read the prefix of R again if the stored prefix is shorter than needed."""
    composer, state = upkeep.composer, upkeep.state
    left = Aggregate(composer.column("left"), Scalar.read("count(*)"))
    both = Join(Grouping(state, (), (left,)), total)
    lacking = filled("x < least(n, m)", x=left.column, n=needed, m=rows)
    deleted = composer.changes[state.role].deleted
    short = composer.assign("short", Selection(both, lacking), (left.column,), (deleted,))
    whole = replace(prefix, input=Join(short, prefix.input))
    upkeep.insert(projected(whole, state.columns))
