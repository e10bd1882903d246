"""The best pairs of two tables: measure costs of a view with the option `ranked` as the data grow.

The bounds are those of ranked enumeration over a q-hierarchical join (docs/papers.md): a change costs O(log N), as does
the step from a row to the next row in the order, and the view stores O(N) rows. The join has O(N^2) rows. A view of the
first rows alone (`ORDER BY ... LIMIT`) is maintained by the strategy `id` beside it: a row of a frequent value meets
O(N) rows, each of which may be among the first.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, pairwise
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
from orchestrator.bench.skew import pairs
from orchestrator.bench.workload import Workload, vacuum
from orchestrator.catalog import readers as catalog_readers

RANKED = Workload("ranked")
NAME = "ranked"
SIZES = (3_162, 10_000, 31_623)
BEST = Contender("ranked", "viewtree", (("ranked", "price + fee DESC"),))
FIRST = Contender("first rows", "id")
WALKED = 1_000
"""The number of rows that are read one after the other."""
REPEATED = 30
"""How often the first row is read."""
MARGIN = 0.15
"""Slopes may exceed the exponents by this margin, in which the logarithm of the theorem shows."""
FIRST_AT_LEAST = 0.7
EXPONENTS = {
    "buffers": ("buffers touched by a change", "log N", 0),
    "first": ("buffers to the first row", "log N", 0),
    "delay": ("buffers to the next row", "log N", 0),
    "stored": ("rows stored", "N", 1),
    "preprocessing": ("buffers of preprocessing", "N log N", 1),
}
"""The measures with their titles, the bounds of the theorem, and the exponents of N in them."""

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
    """Yield a row of the report for the ranked view and for the view of the first rows."""
    queries = {BEST: RANKED.text("pairs"), FIRST: RANKED.text("first")}
    with RANKED.tables(orchestrator, {"rows": size}):
        names = {}
        for item, query in queries.items():
            say(f"{NAME}, {size:,} rows: creating {item.label}")
            names[item.label] = require(orchestrator, "v", query, item)
        vacuum(orchestrator)
        rows = {
            item.label: {
                "graph": NAME,
                "rows": size,
                "side": item.label,
                "strategy": item.strategy,
            }
            for item in queries
        }
        refreshes = {
            label: refreshing(orchestrator.connection, [name]) for label, name in names.items()
        }
        best = names[BEST.label]
        catalog_readers.invalidate(orchestrator.connection, [orchestrator.view(best).id])
        rows[BEST.label]["preprocessing"] = refreshes[BEST.label]().buffers
        vacuum(orchestrator)
        turns = (sql.SQL(text).format() for text in cycle(CHANGES))
        say(f"{NAME}, {size:,} rows: {updates} changes")
        series = in_turn(
            refreshes, lambda: pairs.run(orchestrator, next(turns)), updates, len(CHANGES)
        )
        require_equal(orchestrator, [names[FIRST.label]])
        vacuum(orchestrator)
        first, delay, time = _delays(orchestrator, best)
        rows[BEST.label] |= {"first": first, "first, ms": time, "delay": round(delay, 1)}
        for label, name in names.items():
            yield {
                **rows[label],
                "ms": round(statistics.mean(series[label].times), 3),
                "buffers": round(statistics.mean(run.buffers for run in series[label].runs), 1),
                "stored": pairs.stored(orchestrator, name),
            }


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
    for measure, (title, bound, exponent) in EXPONENTS.items():
        growth = pairs.growth_of(rows, measure, side=BEST.label)
        if growth is not None:
            name = f"{NAME}, slope of {title} (theorem: {bound})"
            yield Bar(name, growth, "<=", exponent + MARGIN)
    growth = pairs.growth_of(rows, "buffers", side=FIRST.label)
    if growth is not None:
        name = f"{NAME}, the first rows alone, slope of buffers touched by a change"
        yield Bar(name, growth, ">=", FIRST_AT_LEAST)
