"""The best pairs of two tables: measure costs of a view with the option `ranked` as the data grow.

The bounds are those of ranked enumeration over a q-hierarchical join (docs/papers.md): a change costs O(log N), as does
the step from a row to the next row in the order, and the view stores O(N) rows. The join has O(N^2) rows. The query for
its first rows (`ORDER BY ... LIMIT`) reads them all. A view of this query finds them at each read (`viewtree`) or
stores them (`id`); the first content of the latter reads the whole join.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice, pairwise
from time import perf_counter
from typing import Any

from psycopg import sql

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import (
    Contender,
    in_turn,
    refreshing,
    require,
    require_equal,
)
from orchestrator.bench.measure import states_touched
from orchestrator.bench.report import Bar
from orchestrator.bench.skew import pairs, slopes
from orchestrator.bench.workload import Workload, vacuum
from orchestrator.catalog import readers as catalog_readers
from orchestrator.errors import DatabaseError

RANKED = Workload("ranked")
NAME = "ranked"
SIZES = (3_162, 10_000, 31_623)
BEST = Contender("ranked", "viewtree", (("ranked", "price + fee DESC"),))
LIMITED, STORED = Contender("LIMIT 10", "viewtree"), Contender("LIMIT 10, stored", "id")
WALKED = 1_000
"""The number of rows that are read one after the other."""
REPEATED = 30
"""How often the first row is read, and the first ten."""
MARGIN = 0.15
"""Slopes may exceed the exponents by this margin, in which the logarithm of the theorem shows."""
EXPONENTS = {
    "buffers": ("buffers touched by a change", "log N", 0),
    "first": ("buffers to the first row", "log N", 0),
    "delay": ("buffers to the next row", "log N", 0),
    "stored": ("rows stored", "N", 1),
    "preprocessing": ("buffers of preprocessing", "N log N", 1),
}
"""The measures with their titles, the bounds of the theorem, and the exponents of N in them."""
OF_LIMITED = {
    "buffers": EXPONENTS["buffers"],
    "first": ("buffers of a read", "log N", 0),
    "stored": EXPONENTS["stored"],
    "preprocessing": EXPONENTS["preprocessing"],
}
"""The same for the view of the first rows."""

CHANGES = (
    "INSERT INTO r VALUES (-1, -1, 2000000)",
    "DELETE FROM r WHERE a = -1",
    "INSERT INTO s VALUES (-1, -1, 2000000)",
    "DELETE FROM s WHERE c = -1",
    "UPDATE r SET price = price + 1 WHERE a = 1 AND b = -1",
    "UPDATE s SET fee = fee - 1 WHERE b = -1 AND c = 1",
)
"""Changes of a frequent value: the best row comes and goes, and rows in the middle change."""

Growth = dict[str, Any]


def measured(
    orchestrator: Orchestrator, size: int, updates: int, say: Callable[[str], None]
) -> Iterator[Growth]:
    """Yield a row of the report for the ranked view, and for each view of the first rows."""
    with RANKED.tables(orchestrator, {"rows": size}):
        say(f"{NAME}, {size:,} rows: creating the view")
        name = require(orchestrator, "v", RANKED.text("pairs"), BEST)
        vacuum(orchestrator)
        refresh = refreshing(orchestrator.connection, [name])
        catalog_readers.invalidate(orchestrator.connection, [orchestrator.view(name).id])
        preprocessing = refresh().buffers
        vacuum(orchestrator)
        turns = (sql.SQL(text).format() for text in cycle(CHANGES))
        say(f"{NAME}, {size:,} rows: {updates} changes")
        series = in_turn(
            {BEST.label: refresh},
            lambda: pairs.run(orchestrator, next(turns)),
            updates,
            len(CHANGES),
        )[BEST.label]
        _require_first(orchestrator, name)
        vacuum(orchestrator)
        first, delay, time = _delays(orchestrator, name)
        start = perf_counter()
        orchestrator.connection.execute(RANKED.text("first").encode())
        yield {
            "graph": NAME,
            "rows": size,
            "side": BEST.label,
            "strategy": BEST.strategy,
            "preprocessing": preprocessing,
            "ms": round(statistics.mean(series.times), 3),
            "buffers": round(statistics.mean(run.buffers for run in series.runs), 1),
            "first": first,
            "delay": round(delay, 1),
            "first, ms": time,
            "query, ms": round(1_000 * (perf_counter() - start), 1),
            "stored": slopes.stored(orchestrator, name),
        }
        orchestrator.drop_view(name)
        yield from _limited(orchestrator, size, updates, say)


def _limited(
    orchestrator: Orchestrator, size: int, updates: int, say: Callable[[str], None]
) -> Iterator[Growth]:
    """Yield a row of the report for each view of the first rows."""
    connection = orchestrator.connection
    views, preprocessing = {}, {}
    for side in (LIMITED, STORED):
        say(f"{NAME}, {size:,} rows: creating the view {side.label}")
        views[side] = require(orchestrator, "first", RANKED.text("first"), side)
        vacuum(orchestrator)
        catalog_readers.invalidate(connection, [orchestrator.view(views[side]).id])
        preprocessing[side] = refreshing(connection, [views[side]])().buffers
    vacuum(orchestrator)
    turns = (sql.SQL(text).format() for text in cycle(CHANGES))
    series = in_turn(
        {side.label: refreshing(connection, [name]) for side, name in views.items()},
        lambda: pairs.run(orchestrator, next(turns)),
        updates,
        len(CHANGES),
    )
    require_equal(orchestrator, list(views.values()))
    for side, name in views.items():
        runs, query = series[side.label], sql.SQL("SELECT * FROM {}").format(sql.SQL(name))
        times = []
        for _ in range(REPEATED):
            start = perf_counter()
            connection.execute(query)
            times.append(1_000 * (perf_counter() - start))
        with connection.transaction():
            before = states_touched(connection)
            connection.execute(query)
            first = states_touched(connection) - before
        yield {
            "graph": NAME,
            "rows": size,
            "side": side.label,
            "strategy": side.strategy,
            "preprocessing": preprocessing[side],
            "ms": round(statistics.mean(runs.times), 3),
            "buffers": round(statistics.mean(run.buffers for run in runs.runs), 1),
            "first": first,
            "first, ms": round(statistics.median(times), 2),
            "stored": slopes.stored(orchestrator, name),
        }


def _require_first(orchestrator: Orchestrator, name: str) -> None:
    """Require that the first rows are those of the query; to compare all rows would take too long."""
    wanted = orchestrator.connection.execute(RANKED.text("first").encode()).fetchall()
    first = list(islice(orchestrator.enumerate(name), len(wanted)))
    if [row[-2] + row[-1] for row in first] != [row[-2] + row[-1] for row in wanted]:
        raise DatabaseError(f"The first rows of {name} are {first}, and not {wanted}.")


def _delays(orchestrator: Orchestrator, name: str) -> tuple[int, float, float]:
    """Return the buffers touched for the first row, and on average for each next row, and the time of the first row."""
    connection = orchestrator.connection
    times = []
    for _ in range(REPEATED):
        start = perf_counter()
        with connection.transaction():
            connection.execute("SELECT idivm.enumerate(%s)", [name])
            connection.execute("FETCH 1 FROM idivm_rows")
        times.append(1_000 * (perf_counter() - start))
    with connection.transaction():
        counts = [states_touched(connection)]
        connection.execute("SELECT idivm.enumerate(%s)", [name])
        for _ in range(WALKED):
            connection.execute("FETCH 1 FROM idivm_rows")
            counts.append(states_touched(connection))
    first, *steps = (after - before for before, after in pairwise(counts))
    return first, statistics.mean(steps), round(statistics.median(times), 2)


def bars(rows: Sequence[Growth]) -> Iterator[Bar]:
    """Yield bars that compare the growth of each measure with the bounds of the theorem."""
    for side, measures in ((BEST, EXPONENTS), (LIMITED, OF_LIMITED)):
        called = NAME if side is BEST else f"{NAME}, {side.label}"
        for measure, (title, bound, exponent) in measures.items():
            growth = pairs.growth_of(rows, measure, side=side.label)
            if growth is not None:
                name = f"{called}, slope of {title} (theorem: {bound})"
                yield Bar(name, growth, "<=", exponent + MARGIN)
