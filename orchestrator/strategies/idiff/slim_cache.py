"""Slim caches: what sums add up stays in its table where a row of that is joined with many.

A cache of joined rows (papers/idivm.txt, section 4) repeats a table's row for all that it is joined
with, and a change of its values is one of them all. Values that no condition reads, and nothing above
but what sums add up, need not be in the cache: it holds the key of their table, where they are found by
it. An update says what they were, so the rows of the cache that it is joined with are read only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from orchestrator.algebra.analysis.flat import flattened, in_terms
from orchestrator.algebra.columns import Column
from orchestrator.algebra.copies import copied
from orchestrator.algebra.dependencies import has_key
from orchestrator.algebra.ids import ids_of
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.scalar import Scalar, filled
from orchestrator.deltascript.leaves import StateScan
from orchestrator.engine.composer import Composer, Part
from orchestrator.engine.diffs import Bag, variables
from orchestrator.engine.leaves import changes_apart
from orchestrator.engine.terms import renamed, same, shown
from orchestrator.strategies.idiff.rules.base import bag

FEWEST = 3.0
"""Rows that share a row of a table; for fewer, it is not worth looking twice for one that goes."""

Few = Callable[[Operator, frozenset[Column]], bool]
"""Whether it is known that few rows of a result share values of some columns."""


@dataclass(frozen=True)
class _Apart:
    """A table whose values are not cached."""

    table: Scan
    """Its key and these values, under names of their own."""
    key: tuple[tuple[Column, Column], ...]
    """Columns of the cache, and those of the key that they are equal to."""
    became: dict[Column, Column]


@dataclass(frozen=True)
class Slim:
    """What to cache, and how the rest is found."""

    rows: Operator
    items: dict[Column, Scalar]
    """The columns that are wanted, over those of the rows and of the tables."""
    apart: tuple[_Apart, ...]

    def whole(self, state: Operator, composer: Composer) -> Operator:
        """The rows with all that is wanted, given what is stored of them."""
        wanted = _references(self.items.values())
        for n, item in enumerate(self.apart):
            needed = wanted.union(column for two in self.apart[n:] for column, _ in two.key)
            rows = shown(state, (column for column in state.columns if column in needed))
            if isinstance(state, StateScan):
                composer.keep_together(state, [column for column, _ in item.key])
            state = Join(rows, item.table, same(((c, k) for c, k in item.key), item.table.not_null))
            later = wanted.union(column for two in self.apart[n + 1 :] for column, _ in two.key)
            read = [column for column in state.columns if column in later]
            composer.bags[state] = _change(state, item.table, read, composer)
        return Projection(state, tuple(Item(c, scalar) for c, scalar in self.items.items()))


def slimmed(
    operator: Operator,
    wanted: Iterable[Column],
    kept: Iterable[Column],
    have_few: Few,
    composer: Composer,
) -> Slim | None:
    """What to cache of a result, of which some columns are wanted and some must be kept."""
    top, items = _under_projections(operator)
    wanted, kept = frozenset(wanted), frozenset(kept)
    items = {column: scalar for column, scalar in items.items() if column in wanted}
    if any(scalar.subqueries for scalar in items.values()):
        return None
    flat = flattened(top)
    read = _references(items.values())
    fixed = _references(scalar for column, scalar in items.items() if column in kept)
    fixed |= frozenset(ids_of(top))
    apart, late = [], frozenset[Column]()
    for table in flat.atoms:
        if not isinstance(table, Scan) or table.table.oid in composer.static:
            continue
        key = _key(table, composer)
        places = [(_stored(column, top, fixed), column) for column in key]
        # What is computed of the table's values alone, and compared with nothing.
        free = frozenset(table.columns) - _references(flat.conditions)
        found = frozenset(
            column
            for column in read - fixed
            if flat.items[column].references - {*key}
            and flat.items[column].references <= free | {*key}
            and not flat.items[column].subqueries
        )
        by = frozenset(key)
        if not found or not key or not all(place for place, _ in places):
            continue
        if has_key(top.keys, top.dependencies, by) or have_few(top, by):
            continue
        used = by | _references(flat.items[column] for column in found)
        apart.append(_renamed(table, used, [(p, c) for p, c in places if p], composer))
        late |= found
    if not apart:
        return None
    became = {old: new for item in apart for old, new in item.became.items()}
    found_again = {
        column: flat.items[column].substitute(
            {c: Scalar.column(became[c]) for c in flat.items[column].references}
        )
        for column in late
    }
    stored = (read - late) | fixed | {column for item in apart for column, _ in item.key}
    return Slim(
        shown(top, (column for column in top.columns if column in stored)),
        {column: in_terms(scalar, found_again) for column, scalar in items.items()},
        tuple(apart),
    )


def _under_projections(operator: Operator) -> tuple[Operator, dict[Column, Scalar]]:
    """What is below the projections at the top of a plan, and what its columns are there."""
    items = {column: Scalar.column(column) for column in operator.columns}
    while isinstance(operator, Projection):
        below = {item.column: item.scalar for item in operator.items}
        items = {column: in_terms(scalar, below) for column, scalar in items.items()}
        operator = operator.input
    return operator, items


def _references(scalars: Iterable[Scalar]) -> frozenset[Column]:
    return frozenset[Column]().union(*(scalar.references for scalar in scalars))


def _key(table: Scan, composer: Composer) -> tuple[Column, ...]:
    """The columns by which a table's changes are followed; none if not all are there."""
    source = composer.sources.get(table.table.oid)
    numbers = {item.attnum for item in source.columns if item.in_key} if source else set[int]()
    found = tuple(output.column for output in table.outputs if output.attnum in numbers)
    return found if len(found) == len(numbers) else ()


def _stored(column: Column, plan: Operator, kept: frozenset[Column]) -> Column | None:
    """A column of a plan that is equal to another; one that is kept anyway, if there is."""
    equal = plan.dependencies.same(column)
    found = [item for item in plan.columns if item in equal]
    return next((item for item in found if item in kept), next(iter(found), None))


def _renamed(
    table: Scan,
    columns: frozenset[Column],
    key: Sequence[tuple[Column, Column]],
    composer: Composer,
) -> _Apart:
    """A further scan of a table, for some columns."""
    became = {column: composer.fresh(column, "") for column in table.columns if column in columns}
    outputs = tuple(output for output in table.outputs if output.column in columns)
    scan, _ = copied(replace(table, outputs=outputs), composer.symbols, became)
    assert isinstance(scan, Scan)
    return _Apart(scan, tuple((place, became[column]) for place, column in key), became)


def _change(whole: Join, table: Scan, read: Sequence[Column], composer: Composer) -> Bag:
    """Δ(R ⋈ S) as the rule of the join has it, but that an update finds its rows once and not twice.

    It is in those columns that are read.
    """
    rows, on = whole.left, whole.condition
    changes = changes_apart(table, composer)
    parts: list[Part] = []
    own = bag(rows, composer)
    if own is not None:
        own = composer.held("rows", own)
        both = filled("- x * y", x=own.sign, y=changes.every.sign)
        joined = composer.union(
            read,
            [
                (own.sign, Join(own.plan, table, on)),
                (both, Join(own.plan, changes.every.plan, on)),
            ],
        )
        needs = variables(own.plan)
        found = composer.assign("joined", joined.plan, joined.plan.columns, needs)
        parts.append((joined.sign, found))
    sign = changes.rest.sign
    rest = Join(rows, changes.rest.plan, on)
    parts.append((sign, composer.assign("reached", rest, (*read, sign))))
    for update in changes.updates:
        olds = {c: old for c, old in update.before.items() if c != old and c in read}
        seen = Join(rows, update.plan, on)
        held = composer.assign("reached", seen, (*read, *olds.values()))
        before = renamed(held, ((olds.get(column, column), column) for column in read))
        parts += [(1, held), (-1, before)]
    return composer.union(read, parts)
