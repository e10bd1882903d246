"""How stored results lie in their tables: what is indexed, and which rows are near each other.

A script finds rows by some of their columns. There is an index for each such set of columns. And
where rows with equal values are changed together, they lie together at first: a change of one
user's rows then touches one page, and not as many as there are rows.
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
    """A state with its indexes and its order."""
    scan = composer.scans[state.role]
    columns = {name: column for column, name in scan.outputs}
    own = [
        tuple(_compared(lookup.rows, lookup.by, composer))
        for lookup in lookups
        if isinstance(lookup.rows, StateScan) and lookup.rows.role == state.role
    ]
    ways = [(False, by) for by in own if by]
    ways += [(True, by) for by in composer.together.get(state.role, ())]
    in_place = set()
    for step in script:
        if isinstance(step, Apply) and step.state == state.role and step.keys:
            by = tuple(name for name, _, _ in step.keys)
            ways.append((step.kind is ChangeKind.UPDATE, by))
            if step.kind is ChangeKind.UPDATE:
                in_place.add(by)
    total = cardinality.rows(scan)
    found = [
        (is_update, cardinality.fanout(scan, frozenset(columns[name] for name in by)), by)
        for is_update, by in ways
        if not set(state.key) <= set(by)
    ]
    # A lookup may go by a part of the key, and diffs come in its order.
    otherwise = (False, 1.0, state.key)
    # Updates, which leave rows where they are, come before what finds them or takes them away.
    _, rows, together = max(
        found, default=otherwise, key=lambda way: (way[0], _spared(total, way[1]))
    )
    return replace(
        state,
        probes=_probes(state, script, own, composer),
        together=together,
        at_once=rows if together in in_place and rows <= _MANY else 1.0,
    )


_ON_A_PAGE = 100
"""Rows, about."""

_MANY = 4 * _ON_A_PAGE
"""More rows than these change at once too rarely for room to be left for it."""


def _spared(rows: float, together: float) -> float:
    """How many pages fewer are touched where rows that are found together lie together, if all rows
    are found once.

    What finds thousands at a time finds them on every page, and does so a few times; what finds a
    single row has nothing to gain.

    >>> [round(_spared(20_000, together)) for together in (1, 5, 100, 1_000)]
    [0, 16000, 19800, 3800]
    """
    scattered, near = min(together, rows / _ON_A_PAGE), max(1.0, together / _ON_A_PAGE)
    return rows / max(together, 1.0) * max(scattered - near, 0.0)


def _compared(rows: StateScan, by: Iterable[Column], composer: Composer) -> Iterator[str]:
    """The columns of a lookup that an index can hold."""
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
    """The sets of columns to index beside the key, whose first columns need no other index."""
    nullable = set(state.nullable)
    wanted = [
        {name for name, _, _ in step.keys}
        for step in script
        if isinstance(step, Apply) and step.state == state.role and step.keys
    ]
    wanted += map(set, lookups)
    result: list[tuple[str, ...]] = []
    wanted += [set(names) for names in composer.probes.get(state.role, ())]
    for names in sorted(filter(None, wanted), key=len, reverse=True):
        place = {name: n for n, name in enumerate(state.key)}
        ordered = tuple(sorted(names, key=lambda n: (n in nullable, place.get(n, 0), n)))
        indexes = [state.key, *result]
        if not any(set(index[: len(names)]) == names for index in indexes):
            result.append(ordered)
    return tuple(result)


def table_probes(lookups: Iterable[Lookup]) -> tuple[Probe, ...]:
    """The columns by which rows of tables are looked up; fewer columns of the same stand for more."""
    found = {
        (
            lookup.rows.table.oid,
            frozenset(o.attnum for o in lookup.rows.outputs if o.column in lookup.by),
        )
        for lookup in lookups
        if isinstance(lookup.rows, Scan)
    }
    return tuple(Probe(oid, tuple(sorted(by))) for oid, by in sorted(found, key=_in_order))


def _in_order(probe: tuple[int, frozenset[int]]) -> tuple[int, list[int]]:
    return probe[0], sorted(probe[1])
