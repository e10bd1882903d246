"""Measure planning and installing views over longer and longer joins, and over larger queries.

Each table refers to the next one. A view groups by a column of the first table and sums a column of
the last table. The tables are empty, so the benchmark measures the compiler and the time in which
PostgreSQL installs its programs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from orchestrator.api import Orchestrator, connect
from orchestrator.bench.compile.shapes import SHAPES, Shape
from orchestrator.bench.contenders import (
    AUTO,
    ID,
    SDBT_STREAMS,
    TREE,
    TUPLE,
    Contender,
    offered,
    require,
    view_name,
)
from orchestrator.bench.measure import machine, own_server, timed
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.bench.workload import Workload
from orchestrator.errors import UsageError

WORKLOAD = Workload("chain")
CONTENDERS = (ID, TUPLE, TREE, AUTO, SDBT_STREAMS)
USUAL = ("id", "tuple", "viewtree", "auto")
"""The default strategies, without `recursive`, which stores a join for every part of a chain."""

TABLES = (5, 10, 20)
JUDGED = 10
SECONDS_AT_MOST = 2.0
MOST_TABLES = 40

GROWTH_AT_MOST = 1.5
"""The largest exponent with which a shape's time may grow from its smallest to its largest size."""


def run(
    *,
    dsn: str | None = None,
    tables: Sequence[int] = TABLES,
    strategies: Sequence[str] = (),
    repeat: int = 3,
    shapes: Sequence[str] = tuple(SHAPES),
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Run the benchmark on its own server, or in schema idivm_bench of the database at `dsn`."""
    if repeat < 1 or not all(2 <= number <= MOST_TABLES for number in tables):
        raise UsageError(f"It needs --tables from 2 to {MOST_TABLES}, and --repeat of 1 or more.")
    if unknown := sorted(set(shapes) - SHAPES.keys()):
        raise UsageError(f"There is no shape {unknown[0]!r}; choose from {', '.join(SHAPES)}.")
    if dsn is None:
        with own_server(pg) as server:
            own = server.up().dsn
            return run(
                dsn=own,
                tables=tables,
                strategies=strategies,
                repeat=repeat,
                shapes=shapes,
                say=say,
            )
    with connect(dsn) as orchestrator, WORKLOAD.tables(orchestrator, {"tables": max(tables)}):
        described = machine(orchestrator.connection)
        chosen = offered(orchestrator, CONTENDERS, query(2), strategies or USUAL)
        results: dict[str, dict[int, dict[str, Any]]] = {each.label: {} for each in chosen}
        for number in sorted(tables):
            for item in chosen:
                say(f"{number} tables by {item.label}")
                results[item.label][number] = _compiled(orchestrator, number, item, repeat)
        grown = {name: _grown(orchestrator, SHAPES[name], repeat, say) for name in shapes}
    rows = []
    for label, sizes in results.items():
        before: dict[str, Any] | None = None
        for measured in sizes.values():
            rows.append(
                {"strategy": label, **measured, "grows with power": _power(before, measured)}
            )
            before = measured
    bars = tuple(
        Bar(f"{label}, {JUDGED} tables, seconds", sizes[JUDGED]["seconds"], "<", SECONDS_AT_MOST)
        for label, sizes in results.items()
        if JUDGED in sizes and label != SDBT_STREAMS.label
    )
    for name, measured_sizes in grown.items():
        for before, measured in zip([None, *measured_sizes], measured_sizes, strict=False):
            rows.append(
                {
                    "shape": name,
                    **measured,
                    "grows with power": _power(before, measured, "size"),
                }
            )
        power = _power(measured_sizes[0], measured_sizes[-1], "size")
        assert power is not None
        bars += (Bar(f"{name}, grows with power", power, "<", GROWTH_AT_MOST),)
    return Report("compile", described, tuple(rows), bars)


def query(tables: int) -> str:
    """Return a query over a chain of tables.

    >>> query(2)
    'SELECT t1.kind, count(*) AS n, sum(t2.amount) AS total FROM t1 JOIN t2 ON t2.id = t1.next GROUP BY t1.kind'
    """
    joins = " ".join(f"JOIN t{n} ON t{n}.id = t{n - 1}.next" for n in range(2, tables + 1))
    select = f"SELECT t1.kind, count(*) AS n, sum(t{tables}.amount) AS total"
    return f"{select} FROM t1 {joins} GROUP BY t1.kind"


def _compiled(
    orchestrator: Orchestrator, tables: int, contender: Contender, repeat: int
) -> dict[str, Any]:
    view = view_name("chain", contender)
    taken = []
    for _ in range(repeat):
        taken.append(timed(lambda: require(orchestrator, "chain", query(tables), contender)))
        script = orchestrator.explain(view).sql
        orchestrator.drop_view(view)
    return {
        "tables": tables,
        "seconds": statistics.median(taken),
        "from": min(taken),
        "to": max(taken),
        "script, kB": len(script) / 1000,
    }


def _grown(
    orchestrator: Orchestrator, shape: Shape, repeat: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Measure each size of a shape, with the strategy that `auto` chooses."""
    measured = []
    for size in shape.sizes:
        say(f"{size} {shape.name}")
        for statement in shape.tables(size):
            orchestrator.connection.execute(statement)
        query = shape.query(size)
        taken = []
        for _ in range(repeat):
            taken.append(timed(partial(orchestrator.create_view, "grown", query)))
            strategy = orchestrator.view("grown").strategy
            orchestrator.drop_view("grown")
        measured.append(
            {
                "size": size,
                "strategy": strategy,
                "seconds": statistics.median(taken),
                "from": min(taken),
                "to": max(taken),
                "query, kB": len(query) / 1000,
            }
        )
    return measured


def _power(
    before: dict[str, Any] | None, after: dict[str, Any], size: str = "tables"
) -> float | None:
    """Return the exponent with which the time grew since a smaller size.

    >>> _power({"tables": 5, "seconds": 1.0}, {"tables": 10, "seconds": 4.0})
    2.0
    """
    if before is None:
        return None
    return math.log(after["seconds"] / before["seconds"]) / math.log(after[size] / before[size])
