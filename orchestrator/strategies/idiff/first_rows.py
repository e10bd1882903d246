"""The first rows of each part of a result: `ORDER BY ... LIMIT 3`, `rank() OVER (PARTITION BY a ORDER BY b) <= 3`.

Two states hold them. The first has a prefix of each part: the rows that the result needs, and a reserve. Deleted
rows leave it. An inserted row enters if it sorts before a stored row of its part, or if the prefix is the whole part,
as a count of the part's rows tells. So the state holds a prefix of each part at any time. The input is read again
only for parts whose prefix has become shorter than needed. The second state is the result, which is computed from
the prefixes of the affected parts and replaced by difference.

If PostgreSQL's statistics show that parts are small, the result alone is stored, and the affected parts are
recomputed from the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from orchestrator.algebra.analysis.first_rows import below_projections, window_of_first_rows
from orchestrator.algebra.columns import Column
from orchestrator.algebra.ids import ids_of
from orchestrator.algebra.operators.base import Operator, SortKey
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.distinct_on import DistinctOn
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.window import Window
from orchestrator.algebra.passes.complete_orders import require_determined
from orchestrator.algebra.scalar import FALSE, TRUE, Scalar, filled
from orchestrator.deltascript.leaves import DiffScan, StateScan
from orchestrator.engine.composer import Composer
from orchestrator.engine.costs.cardinality import Cardinality
from orchestrator.engine.diffs import Bag
from orchestrator.engine.recompute_parts import AFTER, PARTS, exchange, recompute_parts
from orchestrator.engine.states import Upkeep, store
from orchestrator.engine.terms import projected
from orchestrator.strategies.idiff.rules.base import bag
from orchestrator.strategies.idiff.rules.stored import maintain

RESERVE = "needed + 100"
"""The rows stored beyond the needed rows; so many rows can be deleted before their part is read again."""

MOST_NEEDED = 1000.0
"""The greatest number of needed rows for which prefixes are stored, and not all rows with their ranks."""

SMALL = 1000.0
"""The greatest expected number of rows of a partition that is recomputed from the input."""

_READ_AGAIN = 1.0
"""The expected rows that are read again for a deleted row: a part of n rows, once for each n deleted rows or so."""

_ONWARDS = Scalar.of(
    exp.WindowSpec(kind="RANGE", start="CURRENT ROW", end="UNBOUNDED", end_side="FOLLOWING")
)


def picks_first_rows(operator: Operator, cardinality: Cardinality) -> bool:
    """Return whether an operator selects first rows that are maintained without storing all ranks."""
    if isinstance(operator, DistinctOn):
        size = _size(operator.input, operator.on, cardinality)
        return bool(operator.order) and size is not None and size > SMALL
    return _are_small(operator, cardinality) or _prefix(operator) is not None


def _are_small(operator: Operator, cardinality: Cardinality) -> bool:
    """Return whether an operator selects the first rows of partitions that are known to be small."""
    recognized = window_of_first_rows(operator)
    if recognized is None or not recognized[0].partition:
        return False
    size = _size(recognized[0].input, recognized[0].partition, cardinality)
    return size is not None and size <= SMALL


def _size(rows: Operator, parts: Sequence[Column], cardinality: Cardinality) -> float | None:
    """Return the expected number of rows of a part, or None if no statistics tell it."""
    cardinality.learn(rows)
    is_known = cardinality.knows(rows) and any(map(cardinality.is_counted, parts))
    return cardinality.fanout(rows, frozenset(parts)) if is_known else None


def moved_to_window(operator: Operator, cardinality: Cardinality) -> Operator:
    """Return an operator with a selection of first rows moved from above projections to the window."""
    moved = below_projections(operator)
    selection = moved
    while isinstance(selection, Projection):
        selection = selection.input
    is_picked = moved is not operator and picks_first_rows(selection, cardinality)
    return moved if is_picked else operator


def maintain_first_rows(
    operator: Operator, composer: Composer, cardinality: Cardinality, role: str
) -> StateScan:
    """Store the selected rows, add the steps that maintain them, and return a scan of the state."""
    if isinstance(operator, DistinctOn):
        require_determined(operator)
        first = Prefix(operator.input, operator.on, operator.order, Scalar.read("1"), False)
        return maintain_prefix(
            first, lambda rows: replace(operator, input=rows), composer, role, operator.on
        )
    assert isinstance(operator, Selection)
    window, condition = operator.input, operator.condition
    assert isinstance(window, Window)
    require_determined(window)
    prefix = None if _are_small(operator, cardinality) else _prefix(operator)
    if prefix is not None:
        return maintain_prefix(
            prefix, lambda rows: Selection(replace(window, input=rows), condition), composer, role
        )
    changed = bag(window.input, composer)
    state = store(role, operator, ids_of(window.input), composer)
    if changed is not None:
        recompute_parts(Upkeep(state, composer), window, changed, window.partition, condition)
    return state


@dataclass(frozen=True)
class Prefix:
    """The first rows of each part of an input, in an order."""

    input: Operator
    parts: tuple[Column, ...]
    order: tuple[SortKey, ...]
    needed: Scalar
    """How many rows of a part the result needs; NULL for all."""
    with_ties: bool

    @property
    def kept(self) -> Scalar:
        """How many rows of a part are stored."""
        return filled(f"n + {RESERVE}", n=self.needed, needed=self.needed)

    def rank(self, composer: Composer) -> Aggregate:
        """Return the function that numbers the rows of a part."""
        text = "rank()" if self.with_ties else "row_number()"
        return Aggregate(composer.column("rank"), Scalar.read(text))

    def of(self, rows: Operator, composer: Composer) -> Operator:
        """Return the stored first rows of the parts of some rows of the input."""
        if not self.parts:
            return Limit(rows, self.order, self.kept, None, self.with_ties)
        rank = self.rank(composer)
        ranked = Window(rows, (rank,), self.parts, self.order)
        first = Selection(ranked, filled("r <= n", r=rank.column, n=self.kept))
        return projected(first, self.input.columns)


def _prefix(operator: Operator) -> Prefix | None:
    """Return the prefixes from which a selection of first rows can be computed."""
    recognized = window_of_first_rows(operator)
    if recognized is None or recognized[1] > MOST_NEEDED:
        return None
    window, most = recognized
    functions = {function.function for function in window.functions}
    if not functions <= {"row_number", "rank"} or not window.order:
        return None
    needed = Scalar.read(f"{math.ceil(most)}::bigint")
    return Prefix(window.input, window.partition, window.order, needed, "rank" in functions)


def maintain_prefix(
    prefix: Prefix,
    result: Callable[[Operator], Operator],
    composer: Composer,
    role: str,
    key: Sequence[Column] | None = None,
) -> StateScan:
    """Store a result of the first rows of parts, and these rows, and add the steps that maintain both.

    The result has the IDs of the input, or another key.
    """
    below, ids, parts = prefix.input, ids_of(prefix.input), prefix.parts
    composer.comparable(parts)
    changed = bag(below, composer)
    if changed is not None:
        changed = composer.bags[below] = composer.held("change", changed)
    rows = Aggregate(Column(composer.symbols.fresh("rows"), "bigint"), Scalar.read("count(*)"))
    total = maintain(Grouping(below, parts, (rows,)), composer, composer.name("total"))
    first = store(composer.name("first"), prefix.of(below, composer), ids, composer)
    content = result(prefix.of(below, composer))
    state = store(role, content, ids if key is None else key, composer, first=result(first))
    if changed is None:
        return state
    affected = None
    if parts:
        affected = composer.assign(PARTS, Distinct(projected(changed.plan, parts)), parts)
        for stored in (first, state):
            composer.probe(stored, parts)
    upkeep = _Upkeep(prefix, Upkeep(first, composer), total, rows.column, affected)
    upkeep.update(changed)
    upkeep.refill()
    needs = composer.changes[first.role].variables
    recomputed = result(upkeep.of_affected(first))
    fresh = composer.assign(f"{role}{AFTER}", recomputed, recomputed.columns, needs)
    exchange(Upkeep(state, composer), upkeep.of_affected(state), fresh, needs)
    return state


@dataclass(frozen=True)
class _Upkeep:
    """Adds the steps that maintain stored prefixes."""

    prefix: Prefix
    upkeep: Upkeep
    total: StateScan
    rows: Column
    """The number of rows of a part, in `total`."""
    affected: DiffScan | None
    """The parts that a change affects; without parts, None."""

    def of_affected(self, rows: Operator) -> Operator:
        """Return the rows of the affected parts."""
        if self.affected is None:
            return rows
        joined = self.upkeep.composer.identify(self.affected, rows, self.prefix.parts)
        return projected(joined, rows.columns)

    def update(self, changed: Bag) -> None:
        """Apply a change to the prefixes: delete, then insert the rows that belong to them."""
        composer, state = self.upkeep.composer, self.upkeep.state
        deleted, inserted = self.upkeep.net(changed)
        self.upkeep.delete(deleted, state.ids)
        self.upkeep.delete(inserted, state.ids)
        stored = composer.column("there")
        moved = self._moved_rows(inserted, stored)
        subsets = [("deleted", Scalar.column(stored)), ("inserted", filled("NOT x", x=stored))]
        _, leaving, entering = composer.assign_apart(
            f"{state.role}_moved", moved, moved.columns, subsets
        )
        self.upkeep.delete(leaving, state.ids)
        self.upkeep.insert(projected(entering, state.columns))

    def _moved_rows(self, inserted: DiffScan, stored: Column) -> Operator:
        """Return the inserted rows that belong to a prefix, and the stored rows that they push out."""
        composer, state, prefix = self.upkeep.composer, self.upkeep.state, self.prefix
        parts = ((self.of_affected(state), (TRUE,)), (inserted, (FALSE,)))
        both = composer.union_with(state.columns, (stored,), parts)
        # The frame begins with the row's peers, so a row that is equal to the last stored row enters.
        before = Aggregate(composer.column("before"), filled("bool_or(x)", x=stored))
        known = Aggregate(composer.column("known"), Scalar.read("count(*)"))
        numbered = Window(both, (before,), prefix.parts, prefix.order, _ONWARDS)
        counted = Window(numbered, (known,), prefix.parts)
        belongs = filled("b OR k = n", b=before.column, k=known.column, n=self.rows)
        candidates = Selection(composer.identify(self.total, counted, prefix.parts), belongs)
        rank = prefix.rank(composer)
        ranked = Window(candidates, (rank,), prefix.parts, prefix.order)
        beyond = filled("t = coalesce(r > n, false)", t=stored, r=rank.column, n=prefix.kept)
        return projected(Selection(ranked, beyond), (*state.columns, stored))

    def refill(self) -> None:
        """Read the parts again whose prefix is shorter than needed."""
        composer, state, prefix = self.upkeep.composer, self.upkeep.state, self.prefix
        whole, has = composer.fresh(self.rows), composer.column("has")
        parts = (
            (self.of_affected(self.total), (Scalar.column(self.rows), Scalar.read("0"))),
            (self.of_affected(state), (Scalar.read("NULL::bigint"), Scalar.read("1"))),
        )
        both = composer.union_with(prefix.parts, (whole, has), parts)
        wanted = Aggregate(composer.column("wanted"), filled("max(x)", x=whole))
        left = Aggregate(composer.column("left"), filled("sum(x)", x=has))
        counts = Grouping(both, prefix.parts, (wanted, left))
        lacking = filled("x < least(n, m)", x=left.column, n=prefix.needed, m=wanted.column)
        short = composer.assign(
            "short",
            Selection(counts, lacking),
            prefix.parts or (left.column,),
            (composer.changes[state.role].deleted,),
        )
        composer.finds[short.variable] = _READ_AGAIN
        joined = composer.identify(short, prefix.input, prefix.parts)
        again = prefix.of(projected(joined, prefix.input.columns), composer)
        self.upkeep.insert(projected(again, state.columns))
