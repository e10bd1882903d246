"""Triangles and pairs over heavy and light parts: measure a one-row change as the data grow.

The bounds are from papers/ivm-eps-counting-triangles.txt. A one-row change costs O(N^max(ε, 1-ε))
on average, including rebalancing, and the view stores O(N^(1 + min(ε, 1-ε))) rows. The benchmark
measures rebalancing separately, because there are too many changes between two rebalances to run
them all. It assumes the number of changes in the paper's proof.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import cycle
from math import ceil
from random import Random
from types import ModuleType
from typing import Any

from psycopg import sql

from orchestrator.api import Orchestrator, connect
from orchestrator.bench.contenders import (
    TREE,
    TUPLE,
    Contender,
    in_turn,
    refreshing,
    require,
    require_equal,
)
from orchestrator.bench.measure import STEADY, Execution, in_c_or_say, machine, own_server, slope
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.bench.skew import (
    counts,
    cycles,
    hubs,
    lookups,
    mixes,
    pages,
    pairs,
    ranked,
    slopes,
    streams,
)
from orchestrator.bench.skew.rebalancing import BESIDE, Rebalancing, grow
from orchestrator.bench.workload import Workload, vacuum
from orchestrator.errors import DatabaseError, UsageError
from orchestrator.runtime.enumeration import ordered

GRAPH = Workload("graph")
SIZES = (10_000, 31_623, 100_000, 316_228)
EPSILONS = ("0", "1/4", "1/2", "3/4", "1")
GRAPHS = ("worst", "zipf")
"""Graphs whose triangles are counted."""
SHAPES = (
    *(*GRAPHS, streams.NAME, pairs.NAME, pages.NAME, lookups.NAME, ranked.NAME, mixes.NAME),
    *(*cycles.NAMES, *counts.COUNTS, *hubs.SHAPES),
)
"""All queries: triangle counts, a stream, pairs, reading them, lookups, ranked pairs, mixes of changes and reads,
triangles with free variables, counts, and what edges between hubs close."""
CLASSICAL_AT_LEAST = 0.9
HALF = "skew 1/2"
"""The side to which the bars on times apply; the graph is most expensive at this ε."""
TIMES_AT_LEAST = 10
LARGE = 1_000_000
SETTLE = 18
"""Warm-up rounds: each kind of change occurs once, so that its statements are planned."""


@dataclass(frozen=True)
class Row:
    """A row of a relation that is inserted and deleted in turn."""

    table: str
    columns: tuple[str, str]
    values: tuple[int, int]

    def toggle(self, orchestrator: Orchestrator) -> None:
        """Delete the row, or insert it if it does not exist."""
        first, second = map(sql.Identifier, self.columns)
        table = sql.Identifier(self.table)
        deleted = orchestrator.connection.execute(
            sql.SQL("DELETE FROM {} WHERE {} = %s AND {} = %s").format(table, first, second),
            self.values,
        )
        if not deleted.rowcount:
            orchestrator.connection.execute(
                sql.SQL("INSERT INTO {} VALUES (%s, %s)").format(table), self.values
            )


TABLES = {"r": ("a", "b"), "s": ("b", "c"), "t": ("c", "a")}


def run(
    *,
    dsn: str | None = None,
    sizes: Sequence[int] | None = None,
    epsilons: Sequence[str] = EPSILONS,
    shapes: Sequence[str] = SHAPES,
    updates: int = 60,
    seed: int = 1,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Run the benchmark on its own server, or in schema idivm_bench of the database at `dsn`."""
    if updates < 6 or any(size < 1_000 for size in sizes or ()):
        raise UsageError("The benchmark needs --updates of 6 or more, and sizes of 1,000 or more.")
    contenders = [
        *(Contender(f"skew {Fraction(item)}", "skew", (("epsilon", item),)) for item in epsilons),
        TUPLE,
        TREE,
    ]

    def on(at: str) -> Report:
        with connect(at) as orchestrator:
            described = machine(orchestrator.connection)
            triangles = [
                row
                for shape in shapes
                if shape in GRAPHS
                for size in sizes or SIZES
                for row in _measured(orchestrator, shape, size, contenders, updates, seed, say)
            ]
            streamed = [
                row
                for size in sizes or streams.SIZES
                if streams.NAME in shapes
                for row in streams.measured(orchestrator, size, updates, seed, say)
            ]
            paged = [
                row
                for size in sizes or pages.SIZES
                if pages.NAME in shapes
                for row in pages.measured(orchestrator, size, say)
            ]
            asked = [
                row
                for size in sizes or lookups.SIZES
                if lookups.NAME in shapes
                for row in lookups.measured(orchestrator, size, updates, say)
            ]
            sorted_pairs = [
                row
                for size in sizes or ranked.SIZES
                if ranked.NAME in shapes
                for row in ranked.measured(orchestrator, size, updates, say)
            ]
            mixed = [
                row
                for size in sizes or mixes.SIZES
                if mixes.NAME in shapes
                for row in mixes.measured(orchestrator, size, updates, say)
            ]
            closed = [
                row
                for name in shapes
                if name in hubs.SHAPES
                for size in sizes or hubs.SIZES
                for row in hubs.measured(orchestrator, name, size, updates, say)
            ]
            met, grouped, counted = (
                [
                    row
                    for name in names
                    for epsilon in epsilons
                    if name in shapes and epsilon in cycles.EPSILONS
                    for row in _by_kind(orchestrator, bench, name, epsilon, sizes, updates, say)
                ]
                for bench, names in (
                    (pairs, (pairs.NAME,)),
                    (cycles, cycles.NAMES),
                    (counts, counts.COUNTS),
                )
            )
            rows = (
                *triangles,
                *streamed,
                *met,
                *paged,
                *asked,
                *sorted_pairs,
                *mixed,
                *grouped,
                *counted,
                *closed,
            )
            checked = (
                *_bars(triangles),
                *streams.bars(streamed),
                *pairs.bars(met),
                *pages.bars(paged),
                *lookups.bars(asked),
                *ranked.bars(sorted_pairs),
                *mixes.bars(mixed),
                *cycles.bars(grouped),
                *counts.bars(counted),
                *hubs.bars(closed),
            )
            return Report("skew", described, rows, checked)

    if dsn is not None:
        return on(dsn)
    with own_server(pg, {**STEADY, "shared_buffers": "1GB"}) as server:
        in_c_or_say(server, "So capture is measured in plpgsql.", say)
        return on(server.up().dsn)


def _by_kind(
    orchestrator: Orchestrator,
    bench: ModuleType,
    name: str,
    epsilon: str,
    sizes: Sequence[int] | None,
    updates: int,
    say: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """Yield rows of the report for each kind of change, and for what is stored."""
    for size in sizes or bench.SIZES:
        yield from bench.measured(orchestrator, name, size, epsilon, updates, say)
    for size in sizes or bench.STORED:
        yield bench.filled(orchestrator, name, size, epsilon, say)
    for size in (sizes or pairs.SIZES) if bench is pairs else ():
        yield pairs.read(orchestrator, name, size, epsilon, say)


def changes(shape: str, size: int, seed: int) -> Iterator[Row]:
    """Yield rows to toggle, each twice in a row: the most expensive ones, or random ones.

    >>> from itertools import islice
    >>> [(row.table, row.values) for row in islice(changes("worst", 600, 1), 0, 6, 2)]
    [('r', (2, 1)), ('s', (2, 1)), ('t', (2, 1))]
    """
    rng = Random(seed)
    rows = size // 3
    side = round((rows / 2) ** 0.5)

    def value() -> int:
        return int(rows ** rng.random())

    def of_zipf(table: str) -> tuple[int, int]:
        return value(), value()

    kinds: tuple[Callable[[str], tuple[int, int]], ...] = (
        lambda table: (2, 1),
        lambda table: (10_000_000 + rng.randint(1, side), 10_000_000 + rng.randint(1, side)),
        lambda table: (1, 30_000_000 + rng.randint(1, rows)),
    )
    for kind in cycle(kinds if shape == "worst" else (of_zipf,)):
        for table, columns in TABLES.items():
            row = Row(table, columns, kind(table))
            yield from (row, row)


def _measured(
    orchestrator: Orchestrator,
    shape: str,
    size: int,
    contenders: Sequence[Contender],
    updates: int,
    seed: int,
    say: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """Yield a row of the report for each contender, over one graph."""
    settings = {"rows": size, "zipf": int(shape == "zipf"), "seed": seed}
    with GRAPH.tables(orchestrator, settings):
        names = {}
        for contender in contenders:
            say(f"{shape}, {size:,} rows: creating {contender.label}")
            names[contender.label] = require(orchestrator, "v", GRAPH.text("triangles"), contender)
        vacuum(orchestrator)
        sides = {
            label: refreshing(orchestrator.connection, [name]) for label, name in names.items()
        }
        wanted = changes(shape, size, seed)
        say(f"{shape}, {size:,} rows: {updates} changes")
        series = in_turn(sides, lambda: next(wanted).toggle(orchestrator), updates, SETTLE)
        require_equal(orchestrator, list(names.values()))
        by_lookups = _by_lookups(
            orchestrator, sides[TUPLE.label], lambda: next(wanted).toggle(orchestrator)
        )
        parted = [item.label for item in contenders if item.strategy == "skew"]
        extra = {label: Rebalancing(orchestrator, names[label], sides[label]) for label in parted}
        for label, view in extra.items():
            say(f"{shape}, {size:,} rows: a value that becomes heavy, {label}")
            _one_value(orchestrator, view)
        say(f"{shape}, {size:,} rows: growing to twice as many")
        grow(orchestrator, list(extra.values()), "r", 2)
        require_equal(orchestrator, [names[label] for label in parted])
        for label, runs in series.items():
            mean = statistics.mean(run.buffers for run in runs.runs)
            more = extra[label].share if label in extra else 0.0
            yield {
                "graph": shape,
                "rows": size,
                "side": label,
                "ms": round(statistics.mean(runs.times), 3),
                "buffers": round(mean, 1),
                "with rebalancing": round(mean + more, 1),
                "by lookups": round(by_lookups, 1) if label == TUPLE.label else None,
                "a value moves": extra[label].minor if label in extra else None,
                "all are divided": extra[label].major if label in extra else None,
                "stored": slopes.stored(orchestrator, names[label]),
            }


def _by_lookups(
    orchestrator: Orchestrator, refresh: Callable[[], Execution], change: Callable[[], None]
) -> float:
    """Return the buffers of a change if the classical delta is joined by lookups only.

    PostgreSQL uses a hash join as soon as a change meets very many rows, which costs fewer buffers
    for each row. Such a change of the constant would hide how the cost grows.
    """
    names = [*map(sql.Identifier, ordered.OFF)]
    for name in names:
        orchestrator.connection.execute(sql.SQL("SET {} = off").format(name))
    orchestrator.connection.execute("DISCARD PLANS")
    runs = in_turn({TUPLE.label: refresh}, change, SETTLE, SETTLE)[TUPLE.label].runs
    for name in names:
        orchestrator.connection.execute(sql.SQL("RESET {}").format(name))
    orchestrator.connection.execute("DISCARD PLANS")
    return statistics.mean(run.buffers for run in runs)


def _one_value(orchestrator: Orchestrator, view: Rebalancing) -> None:
    """Make a light value with many rows heavy, if one exists, preferably by rows that meet `s`."""
    connection, parts = orchestrator.connection, view.parts
    row = connection.execute(
        "SELECT a, count(*) FROM r GROUP BY a HAVING count(*) < %s ORDER BY 2 DESC LIMIT 1",
        [parts.threshold / 2],
    ).fetchone()
    if row is None or parts.threshold * 2 > parts.size:
        if parts.relations[0].epsilon in ("0", "1"):
            # All values are heavy, or none can become heavy.
            return
        raise DatabaseError(
            f"{view.name} has no light value that could become heavy: give larger --sizes, or another --epsilon."
        )
    value, rows = row
    view.one_value(
        rows,
        lambda some: connection.execute(
            "INSERT INTO r SELECT %(a)s, b FROM"
            " (SELECT b, false AS alone FROM s GROUP BY b UNION ALL"
            " SELECT %(beside)s + n, true FROM generate_series(1, %(enough)s) AS n) AS s"
            " WHERE NOT EXISTS (SELECT FROM r WHERE a = %(a)s AND r.b = s.b)"
            " ORDER BY alone LIMIT %(some)s",
            {"a": value, "some": some, "beside": 2 * BESIDE, "enough": ceil(2 * parts.threshold)},
        ),
    )


def _bars(rows: Sequence[dict[str, Any]]) -> Iterator[Bar]:
    """Yield bars on the growth of a change of `tuple` on the most expensive graph, and on times.

    The changes of `skew` are of several kinds, so their slope is measured elsewhere, for each kind alone.
    """

    points = [
        (row["rows"], row["by lookups"])
        for row in rows
        if row["side"] == TUPLE.label and row["graph"] == "worst"
    ]
    if len(points) > 1:
        name = f"{TUPLE.label}, slope of buffers touched by a change"
        yield Bar(name, slope(points), ">=", CLASSICAL_AT_LEAST)
    largest = {
        row["side"]: row["ms"] for row in rows if row["graph"] == "worst" and row["rows"] >= LARGE
    }
    for side in (TUPLE.label, TREE.label):
        if side in largest and HALF in largest:
            times = round(largest[side] / largest[HALF], 1)
            yield Bar(f"at {LARGE:,} rows, times as fast as {side}", times, ">=", TIMES_AT_LEAST)
