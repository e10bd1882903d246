"""Slim caches: leave out values that sums add up if many rows of the cache share a row of their table.

A cache of joined rows (papers/idivm.txt, section 4) repeats a table's row for each row that it joins, so
a change of one value changes all these rows. Values that no condition reads, and that the plan above
only adds up, can stay in their table. The cache then holds the key of the table and joins it when the
values are needed. An update holds the old values, so the affected rows of the cache are only read.
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
from orchestrator.engine.terms import projected, renamed, same
from orchestrator.strategies.idiff.rules.base import bag

FEWEST = 3.0
"""The fewest rows that share a table's row for which a slim cache pays: each deletion needs two lookups."""

Few = Callable[[Operator, frozenset[Column]], bool]
"""Whether statistics say that few rows of a result share the values of some columns."""


@dataclass(frozen=True)
class _UncachedTable:
    """A table whose values are not cached."""

    table: Scan
    """A scan of its key and the uncached values, under fresh names."""
    key: tuple[tuple[Column, Column], ...]
    """Columns of the cache, and the key columns that they equal."""
    names: dict[Column, Column]
    """The fresh names of the table's columns."""


@dataclass(frozen=True)
class SlimCache:
    """The rows to cache, and the tables that complete them."""

    rows: Operator
    items: dict[Column, Scalar]
    """The needed columns, as expressions over the rows and the tables."""
    tables: tuple[_UncachedTable, ...]

    def whole(self, state: Operator, composer: Composer) -> Operator:
        """Return the rows with all needed columns, given the stored rows."""
        wanted = _references(self.items.values())
        for n, table in enumerate(self.tables):
            needed = wanted.union(column for later in self.tables[n:] for column, _ in later.key)
            rows = projected(state, (column for column in state.columns if column in needed))
            if isinstance(state, StateScan):
                composer.keep_together(state, [column for column, _ in table.key])
            scan = table.table
            state = Join(rows, scan, same(((c, k) for c, k in table.key), scan.not_null))
            later_keys = (column for later in self.tables[n + 1 :] for column, _ in later.key)
            still_needed = wanted.union(later_keys)
            read = [column for column in state.columns if column in still_needed]
            composer.bags[state] = _change(state, scan, read, composer)
        return Projection(state, tuple(Item(c, scalar) for c, scalar in self.items.items()))


def slim_cache(
    operator: Operator,
    wanted: Iterable[Column],
    kept: Iterable[Column],
    have_few: Few,
    composer: Composer,
) -> SlimCache | None:
    """Return a slim cache of a result, or None if it saves nothing.

    The `wanted` columns must be available above the cache, the `kept` columns in its rows.
    """
    top, items = _under_projections(operator)
    wanted, kept = frozenset(wanted), frozenset(kept)
    items = {column: scalar for column, scalar in items.items() if column in wanted}
    if any(scalar.subqueries for scalar in items.values()):
        return None
    flat = flattened(top)
    read = _references(items.values())
    fixed = _references(scalar for column, scalar in items.items() if column in kept)
    fixed |= frozenset(ids_of(top))
    uncached: list[_UncachedTable] = []
    uncached_columns = frozenset[Column]()
    for table in flat.atoms:
        if not isinstance(table, Scan) or table.table.oid in composer.static:
            continue
        key = _key(table, composer)
        places = [(_stored(column, top, fixed), column) for column in key]
        # Columns that no condition reads.
        free = frozenset(table.columns) - _references(flat.conditions)
        values = frozenset(
            column
            for column in read - fixed
            if flat.items[column].references - {*key}
            and flat.items[column].references <= free | {*key}
            and not flat.items[column].subqueries
        )
        by = frozenset(key)
        if not values or not key or not all(place for place, _ in places):
            continue
        if has_key(top.keys, top.dependencies, by) or have_few(top, by):
            continue
        used = by | _references(flat.items[column] for column in values)
        uncached.append(_table_for(table, used, [(p, c) for p, c in places if p], composer))
        uncached_columns |= values
    if not uncached:
        return None
    names = {old: new for table in uncached for old, new in table.names.items()}
    read_from_tables = {
        column: flat.items[column].substitute(
            {c: Scalar.column(names[c]) for c in flat.items[column].references}
        )
        for column in uncached_columns
    }
    key_columns = {column for table in uncached for column, _ in table.key}
    stored = (read - uncached_columns) | fixed | key_columns
    return SlimCache(
        projected(top, (column for column in top.columns if column in stored)),
        {column: in_terms(scalar, read_from_tables) for column, scalar in items.items()},
        tuple(uncached),
    )


def _under_projections(operator: Operator) -> tuple[Operator, dict[Column, Scalar]]:
    """Return the plan below the topmost projections, and the plan's columns as expressions over it."""
    items = {column: Scalar.column(column) for column in operator.columns}
    while isinstance(operator, Projection):
        below = {item.column: item.scalar for item in operator.items}
        items = {column: in_terms(scalar, below) for column, scalar in items.items()}
        operator = operator.input
    return operator, items


def _references(scalars: Iterable[Scalar]) -> frozenset[Column]:
    return frozenset[Column]().union(*(scalar.references for scalar in scalars))


def _key(table: Scan, composer: Composer) -> tuple[Column, ...]:
    """Return the columns by which a table's changes are tracked; none if the scan lacks some of them."""
    source = composer.sources.get(table.table.oid)
    numbers = (
        {column.attnum for column in source.columns if column.in_key} if source else set[int]()
    )
    columns = tuple(output.column for output in table.outputs if output.attnum in numbers)
    return columns if len(columns) == len(numbers) else ()


def _stored(column: Column, plan: Operator, kept: frozenset[Column]) -> Column | None:
    """Return a column of a plan that equals another, preferably a column that is kept anyway."""
    equal = plan.dependencies.same(column)
    candidates = [candidate for candidate in plan.columns if candidate in equal]
    return next(
        (candidate for candidate in candidates if candidate in kept), next(iter(candidates), None)
    )


def _table_for(
    table: Scan,
    columns: frozenset[Column],
    key: Sequence[tuple[Column, Column]],
    composer: Composer,
) -> _UncachedTable:
    """Return a second scan of a table, with some of its columns."""
    names = {column: composer.fresh(column, "") for column in table.columns if column in columns}
    outputs = tuple(output for output in table.outputs if output.column in columns)
    scan, _ = copied(replace(table, outputs=outputs), composer.symbols, names)
    assert isinstance(scan, Scan)
    return _UncachedTable(scan, tuple((place, names[column]) for place, column in key), names)


def _change(whole: Join, table: Scan, read: Sequence[Column], composer: Composer) -> Bag:
    """Return Δ(R ⋈ S) over the read columns, as by the join rule, but look up the rows of an update once."""
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
        change_of_rows = composer.assign("joined", joined.plan, joined.plan.columns, needs)
        parts.append((joined.sign, change_of_rows))
    sign = changes.rest.sign
    rest = Join(rows, changes.rest.plan, on)
    parts.append((sign, composer.assign("reached", rest, (*read, sign))))
    for update in changes.updates:
        olds = {c: old for c, old in update.before.items() if c != old and c in read}
        reached = Join(rows, update.plan, on)
        held = composer.assign("reached", reached, (*read, *olds.values()))
        before = renamed(held, ((olds.get(column, column), column) for column in read))
        parts += [(1, held), (-1, before)]
    return composer.union(read, parts)
