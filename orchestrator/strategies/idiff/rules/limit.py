"""λ(R), ORDER BY ... LIMIT: the first rows are kept with a reserve.

A state holds the first rows of R: as many as the result and what it skips need, and a reserve.
Deleted rows leave it. A row that comes enters it if it sorts before one that is there; where the
state is all of R, which a count of R's rows tells, every row does. What is left is the beginning of
R still. R is read again only when the beginning has become shorter than needed.

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
from orchestrator.engine.terms import shown
from orchestrator.strategies.idiff.rules.base import bag
from orchestrator.strategies.idiff.rules.stored import maintain

RESERVE = "needed + 100"
"""How many rows are kept beyond those needed, so that as many may go before R is read again."""

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
    begun = replace(operator, offset=None, count=kept)
    rows = Aggregate(Column(composer.symbols.fresh("rows"), "bigint"), Scalar.read("count(*)"))
    total = maintain(Grouping(below, (), (rows,)), composer, composer.name("total"))
    begin = store(composer.name("first"), begun, ids, composer)
    result = replace(operator, input=begin)
    state = store(role, replace(result, input=begun), ids, composer)
    if changed is None:
        return state
    _begin(Upkeep(begin, composer), begun, changed, total, rows.column)
    _refill(Upkeep(begin, composer), begun, needed, total, rows.column)
    moved = composer.changes[begin.role]
    needs = moved.variables
    fresh = composer.assign(f"{role}_after", result, result.columns, needs)
    exchange(Upkeep(state, composer), state, fresh, needs)
    return state


def _needed(operator: Limit) -> Scalar:
    """How many rows the result needs, with those that it skips; NULL for all."""
    count = operator.count or Scalar.read("NULL::bigint")
    offset = operator.offset or Scalar.read("0")
    return filled("n::bigint + coalesce(m, 0)::bigint", n=count, m=offset)


def _begin(upkeep: Upkeep, begun: Limit, changed: Bag, total: StateScan, rows: Column) -> None:
    """Takes rows that go out of the beginning, and rows that come into it."""
    composer, state = upkeep.composer, upkeep.state
    goes, comes = upkeep.net(changed)
    upkeep.delete(goes, state.ids)
    upkeep.delete(comes, state.ids)
    there = composer.column("there")
    moved = _moved(begun, state, comes, there, total, rows, composer)
    ways = [("deleted", Scalar.column(there)), ("inserted", filled("NOT x", x=there))]
    _, goes, comes = composer.assign_apart(f"{state.role}_moved", moved, moved.columns, ways)
    upkeep.delete(goes, state.ids)
    upkeep.insert(shown(comes, state.columns))


def _moved(
    begun: Limit,
    state: StateScan,
    comes: DiffScan,
    there: Column,
    total: StateScan,
    rows: Column,
    composer: Composer,
) -> Operator:
    """The rows that come and belong to the beginning, and those that these push out of it."""
    branches = []
    for plan, was in ((state, "true"), (comes, "false")):
        own = composer.fresh(there)
        items = (*map(Item.kept, state.columns), Item(own, Scalar.read(was)))
        branches.append(Branch(Projection(plan, items), (*state.columns, own)))
    both = UnionAll(tuple(branches), (*state.columns, there))
    # The frame begins with the row's peers: a row equal to the last one of the beginning enters.
    before = Aggregate(composer.column("before"), filled("bool_or(x)", x=there))
    known = Aggregate(composer.column("known"), Scalar.read("count(*)"))
    numbered = Window(Window(both, (before,), (), begun.order, _ONWARDS), (known,))
    belongs = filled("b OR k = n", b=before.column, k=known.column, n=rows)
    ranking = "rank()" if begun.with_ties else "row_number()"
    rank = Aggregate(composer.column("rank"), Scalar.read(ranking))
    ranked = Window(Selection(Join(numbered, total), belongs), (rank,), (), begun.order)
    assert begun.count is not None
    beyond = filled("t = coalesce(r > n, false)", t=there, r=rank.column, n=begun.count)
    return shown(Selection(ranked, beyond), (*state.columns, there))


def _refill(
    upkeep: Upkeep,
    begun: Limit,
    needed: Scalar,
    total: StateScan,
    rows: Column,
) -> None:
    """Reads the beginning again where it has become too short."""
    composer, state = upkeep.composer, upkeep.state
    left = Aggregate(composer.column("left"), Scalar.read("count(*)"))
    both = Join(Grouping(state, (), (left,)), total)
    lacking = filled("x < least(n, m)", x=left.column, n=needed, m=rows)
    gone = composer.changes[state.role].deleted
    short = composer.assign("short", Selection(both, lacking), (left.column,), (gone,))
    again = replace(begun, input=Join(short, begun.input))
    upkeep.insert(shown(again, state.columns))
