"""Read a large result row by row: measure a row over 20 to 320 heavy values, and LIMIT 1 in SQL.

The pairs of different heavy values are disjoint, so a row is in one bucket. Its cost should not depend on the
number of buckets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import log
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Literal

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import Contender, require
from orchestrator.bench.measure import states_touched
from orchestrator.bench.report import Bar
from orchestrator.bench.workload import Workload

DISJOINT = Workload("disjoint")
NAME = "pages"
HEAVY = (20, 80, 320)
SIZES = (32_000, 1_000_000)
"""The rows from which rows are fetched, and of which one is fetched."""
ROWS = 20_000
"""Rows that are fetched one page after the other."""
SELECTED = 1_000_000
"""The largest result that is also read by SELECT."""
REPEATS = 5
TIMES_OF_FEW, TIMES_OF_SELECT, FIRST_MS = 2, 20, 5

Measures = dict[str, Any]


def measured(
    orchestrator: Orchestrator, size: int, say: Callable[[str], None]
) -> Iterator[Measures]:
    """Yield a row of the report for each number of heavy values."""
    for heavy in HEAVY:
        fan = size // (2 * heavy)
        # Half of the rows of a value make it heavy.
        epsilon = Fraction(round(1000 * log(fan / 2) / log(2 * size)), 1000)
        side = Contender(f"skew {epsilon}", "skew", (("epsilon", str(epsilon)),))
        settings = {"rows": size, "heavy": heavy, "in_turn": 0}
        with DISJOINT.tables(orchestrator, settings):
            say(f"{NAME}, {size:,} rows, {heavy} heavy values: creating the view")
            name = require(orchestrator, "v", DISJOINT.text("pairs"), side)
            orchestrator.connection.execute("VACUUM ANALYZE")
            yield {
                "graph": NAME,
                "rows": size,
                "heavy": heavy,
                "epsilon": str(epsilon),
                **_read(orchestrator.connection, name, fan * fan * heavy),
            }


def _read(connection: Connection[Any], name: str, rows: int) -> Measures:
    """Return the cost of the first row, of a row in pages, and of a row of a full SELECT."""
    wanted = min(ROWS, rows)
    _fetch(connection, name, 1)
    first = min(_fetch(connection, name, 1)[0] for _ in range(REPEATS))
    paged, pages = min(_fetch(connection, name, wanted) for _ in range(REPEATS))
    full = None
    if rows <= SELECTED:
        began = time.perf_counter()
        connection.execute(SQL("SELECT * FROM {}").format(SQL(name))).fetchall()
        full = round(1e6 * (time.perf_counter() - began) / rows, 2)
    return {
        "LIMIT 1, ms": round(1000 * first, 2),
        "a row in pages, us": round(1e6 * paged / wanted, 2),
        "buffers of a row": round(pages / wanted, 2),
        "a row of SELECT, us": full,
    }


def _fetch(connection: Connection[Any], name: str, rows: int) -> tuple[float, int]:
    """Return the seconds and the buffers of states for the first rows."""
    with connection.transaction():
        before = states_touched(connection)
        began = time.perf_counter()
        connection.execute("SELECT idivm.enumerate(%s)", [name])
        connection.execute(SQL("FETCH {} FROM idivm_rows").format(Literal(rows))).fetchall()
        took = time.perf_counter() - began
        return took, states_touched(connection) - before


def bars(rows: Sequence[Measures]) -> Iterator[Bar]:
    """Yield bars for many heavy values beside few, for a SELECT, and for the first row."""
    for size in dict.fromkeys(row["rows"] for row in rows):
        few, *_, many = (row for row in rows if row["rows"] == size)
        for measure in ("a row in pages, us", "buffers of a row"):
            times = round(many[measure] / few[measure], 2)
            name = f"{NAME}, {size:,} rows, {measure.partition(',')[0]}: {HEAVY[-1]} heavy values, times {HEAVY[0]}"
            yield Bar(name, times, "<=", TIMES_OF_FEW)
        if many["a row of SELECT, us"] is not None:
            times = round(many["a row in pages, us"] / many["a row of SELECT, us"], 2)
            name = f"{NAME}, {size:,} rows, a row in pages, times a row of SELECT"
            yield Bar(name, times, "<=", TIMES_OF_SELECT)
        if size >= SIZES[-1]:
            yield Bar(f"{NAME}, {size:,} rows, LIMIT 1, ms", many["LIMIT 1, ms"], "<=", FIRST_MS)
