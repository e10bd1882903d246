"""The ends of a path for given values in the middle: measure costs of a query with inputs as the data grow.

The bounds are those of Kara, Nikolic, Olteanu and Zhang for queries with free access patterns whose fracture is
q-hierarchical and input-dominant (docs/papers.md): a change and the step to the next row of a lookup cost O(1), the
views store O(N) rows, and their first content costs O(N). Without inputs, the query is not q-hierarchical: in any view
tree over it, some change of a row costs O(N).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, pairwise
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

LOOKUPS = Workload("lookups")
NAME = "lookups"
SIZES = (3_162, 10_000, 31_623)
INPUTS = Contender("inputs", "viewtree", (("inputs", "b, c"),))
WITHOUT = Contender("factorized", "viewtree", (("representation", "factorized"),))
ASKED = ((-1, -1), (-2, -2), (0, 0))
"""The values of b and c that are looked up: with many rows, with rows in one table alone, and with a single row."""
WALKED = 1_000
"""The number of rows of a lookup that are read one after the other."""
MARGIN = pairs.MARGIN
"""Slopes may exceed the exponents by this margin."""
WITHOUT_AT_LEAST = 0.9
EXPONENTS = {
    "buffers": ("buffers touched by a change", 0),
    "delay": ("buffers to the next row", 0),
    "longest delay": ("buffers to the next row at most", 0),
    "stored": ("rows stored", 1),
    "preprocessing": ("buffers of preprocessing", 1),
}
"""The measures with their titles, and with the exponents of the theorem."""

CHANGES = (
    "INSERT INTO r VALUES (-1, 0)",
    "DELETE FROM r WHERE a = -1",
    "INSERT INTO t VALUES (0, -1)",
    "DELETE FROM t WHERE d = -1",
    "INSERT INTO s VALUES (0, -3)",
    "DELETE FROM s WHERE c = -3",
)
"""The most expensive changes without inputs: of the ends of frequent values, and of a pair between them."""

Growth = dict[str, Any]


def measured(
    orchestrator: Orchestrator, size: int, updates: int, say: Callable[[str], None]
) -> Iterator[Growth]:
    """Yield a row of the report for the query with inputs and without."""
    sides = (INPUTS, WITHOUT)
    with LOOKUPS.tables(orchestrator, {"rows": size}):
        names = {}
        for item in sides:
            say(f"{NAME}, {size:,} rows: creating {item.label}")
            names[item.label] = require(orchestrator, "v", LOOKUPS.text("ends"), item)
        vacuum(orchestrator)
        rows = {
            label: {"graph": NAME, "rows": size, "side": label, "strategy": "viewtree"}
            for label in names
        }
        refreshes = {
            label: refreshing(orchestrator.connection, [name]) for label, name in names.items()
        }
        for label, name in names.items():
            catalog_readers.invalidate(orchestrator.connection, [orchestrator.view(name).id])
            rows[label]["preprocessing"] = refreshes[label]().buffers
        vacuum(orchestrator)
        turns = (sql.SQL(text).format() for text in cycle(CHANGES))
        say(f"{NAME}, {size:,} rows: {updates} changes")
        series = in_turn(
            refreshes, lambda: pairs.run(orchestrator, next(turns)), updates, len(CHANGES)
        )
        require_equal(orchestrator, list(names.values()))
        vacuum(orchestrator)
        for label, name in names.items():
            mean, longest = _delays(orchestrator, name)
            yield {
                **rows[label],
                "ms": round(statistics.mean(series[label].times), 3),
                "buffers": round(statistics.mean(run.buffers for run in series[label].runs), 1),
                "delay": round(mean, 3),
                "longest delay": longest,
                "stored": slopes.stored(orchestrator, name),
            }


def _delays(orchestrator: Orchestrator, name: str) -> tuple[float, int]:
    """Return the buffers touched between two rows of lookups: their mean and their maximum."""
    connection = orchestrator.connection
    steps: list[int] = []
    for asked in ASKED:
        with connection.transaction(), connection.cursor(f"{NAME}_rows") as cursor:
            cursor.itersize = 1
            # The first query of a view in a session reads the catalog.
            connection.execute(_lookup(name, "EXPLAIN"), asked)
            counts = [states_touched(connection)]
            cursor.execute(_lookup(name), asked)
            while len(counts) <= WALKED and cursor.fetchone():
                counts.append(states_touched(connection))
            counts.append(states_touched(connection))
        steps += [after - before for before, after in pairwise(counts)]
    return statistics.mean(steps), max(steps)


def _lookup(name: str, before: str = "") -> sql.Composed:
    text = "{} SELECT * FROM {} WHERE b = %s AND c = %s"
    return sql.SQL(text).format(sql.SQL(before), sql.SQL(name))


def bars(rows: Sequence[Growth]) -> Iterator[Bar]:
    """Yield bars that compare the growth of each measure with the exponents of the theorem."""
    for measure, (title, exponent) in EXPONENTS.items():
        growth = pairs.growth_of(rows, measure, side=INPUTS.label)
        if growth is not None:
            name = f"{NAME}, slope of {title} (theorem: {exponent})"
            yield Bar(name, growth, "<=", exponent + MARGIN)
    growth = pairs.growth_of(rows, "buffers", side=WITHOUT.label)
    if growth is not None:
        name = f"{NAME}, without inputs, slope of buffers touched by a change"
        yield Bar(name, growth, ">=", WITHOUT_AT_LEAST)
