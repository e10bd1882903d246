"""The layout of stored results: which columns are indexed, and which rows are stored together.

A script finds rows by some of their columns, and each such set of columns has an index. If rows
with equal values change together, the first content stores them together. A change of a single
user's rows then touches one page instead of one page for each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.scan import Scan
from orchestrator.deltascript.leaves import StateScan
from orchestrator.deltascript.plan import Apply, ChangeKind, Probe, StateTable, Step
from orchestrator.engine.access import Lookup
from orchestrator.engine.composer import Composer
from orchestrator.engine.costs.cardinality import Cardinality


def laid_out(
    state: StateTable,
    script: tuple[Step, ...],
    lookups: Iterable[Lookup],
    composer: Composer,
    cardinality: Cardinality,
) -> StateTable:
    """Return a state with its indexes and the order of its rows."""
    scan = composer.scans[state.role]
    columns = {name: column for column, name in scan.outputs}
    own = [
        tuple(_indexable_columns(lookup.rows, lookup.by, composer))
        for lookup in lookups
        if isinstance(lookup.rows, StateScan) and lookup.rows.role == state.role
    ]
    accesses = [(False, by) for by in own if by]
    accesses += [(True, by) for by in composer.together.get(state.role, ())]
    in_place = set()
    for step in script:
        if isinstance(step, Apply) and step.state == state.role and step.keys:
            by = tuple(name for name, _, _ in step.keys)
            accesses.append((step.kind is ChangeKind.UPDATE, by))
            if step.kind is ChangeKind.UPDATE:
                in_place.add(by)
    total = cardinality.rows(scan)
    candidates = [
        (is_update, cardinality.fanout(scan, frozenset(columns[name] for name in by)), by)
        for is_update, by in accesses
        if not set(state.key) <= set(by)
    ]
    # A lookup may use a part of the key, and diffs come in the order of the key.
    otherwise = (False, 1.0, state.key)
    # Updates leave rows in place, and take precedence over lookups and deletes.
    _, rows, together = max(
        candidates,
        default=otherwise,
        key=lambda candidate: (candidate[0], _saved_pages(total, candidate[1])),
    )
    is_reserved = state.role in composer.rewritten
    return replace(
        state,
        probes=_probes(state, script, own, composer),
        together=together,
        at_once=total if is_reserved else rows if together in in_place and rows <= _MANY else 1.0,
    )


_ON_A_PAGE = 100
"""The approximate number of rows on a page."""

_MANY = 4 * _ON_A_PAGE
"""Changes of more rows at once are too rare to reserve free space for them."""


def _saved_pages(rows: float, together: float) -> float:
    """Return how many fewer pages are touched if rows that are found together are stored together.

    It is assumed that all rows are found once. A lookup that finds thousands of rows touches every
    page anyway, but happens rarely. A lookup that finds a single row gains nothing.

    >>> [round(_saved_pages(20_000, together)) for together in (1, 5, 100, 1_000)]
    [0, 16000, 19800, 3800]
    """
    scattered, near = min(together, rows / _ON_A_PAGE), max(1.0, together / _ON_A_PAGE)
    return rows / max(together, 1.0) * max(scattered - near, 0.0)


def _indexable_columns(rows: StateScan, by: Iterable[Column], composer: Composer) -> Iterator[str]:
    """Yield the columns of a lookup that an index can contain."""
    for column in by:
        known = composer.types.get(column.symbol)
        if known is None or known.comparable:
            yield rows.called(column)


def _probes(
    state: StateTable,
    script: tuple[Step, ...],
    lookups: Iterable[tuple[str, ...]],
    composer: Composer,
) -> tuple[tuple[str, ...], ...]:
    """Return the sets of columns to index besides the key. Prefixes of an index need no other
    index.
    """
    nullable = set(state.nullable)
    wanted = [
        {name for name, _, _ in step.keys}
        for step in script
        if isinstance(step, Apply) and step.state == state.role and step.keys
    ]
    wanted += map(set, lookups)
    result: list[tuple[str, ...]] = []
    for ordered in sorted(composer.probes.get(state.role, ()), key=len, reverse=True):
        # The last column may bound a range, so it stays behind the columns that are equal.
        length = len(ordered)
        if not any(
            set(index[:length]) == set(ordered) and index[length - 1] == ordered[-1]
            for index in (state.key, *result)
            if len(index) >= length
        ):
            result.append(ordered)
    for names in sorted(filter(None, wanted), key=len, reverse=True):
        if names > set(state.key) and nullable.isdisjoint(state.key):
            # The key alone finds a single row.
            continue
        position_in_key = {name: n for n, name in enumerate(state.key)}
        ordered = tuple(sorted(names, key=lambda n: (n in nullable, position_in_key.get(n, 0), n)))
        indexes = [state.key, *result]
        if not any(set(index[: len(names)]) == names for index in indexes):
            result.append(ordered)
    return tuple(result)


def table_probes(lookups: Iterable[Lookup]) -> tuple[Probe, ...]:
    """Return the sets of columns by which rows of tables are looked up."""
    columns_of_tables = {
        (
            lookup.rows.table.oid,
            frozenset(o.attnum for o in lookup.rows.outputs if o.column in lookup.by),
        )
        for lookup in lookups
        if isinstance(lookup.rows, Scan)
    }
    return tuple(
        Probe(oid, tuple(sorted(by))) for oid, by in sorted(columns_of_tables, key=_in_order)
    )


def _in_order(probe: tuple[int, frozenset[int]]) -> tuple[int, list[int]]:
    return probe[0], sorted(probe[1])
