"""How long it takes to plan and install views over ever longer chains of joins.

Every table refers to the next; a view groups by a column of the first and sums one of the last. The
tables are empty, so that what is measured is the compiler, and what PostgreSQL takes to install its
programs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.api import Orchestrator, connect
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
"""Measured when nothing else is asked for; `recursive` stores a join for every part of a chain."""

TABLES = (5, 10, 20)
JUDGED = 10
SECONDS_AT_MOST = 2.0
MOST_TABLES = 40


def run(
    *,
    dsn: str | None = None,
    tables: Sequence[int] = TABLES,
    strategies: Sequence[str] = (),
    repeat: int = 3,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Measures on a server of its own, or in schema idivm_bench of the database at `dsn`."""
    if repeat < 1 or not all(2 <= number <= MOST_TABLES for number in tables):
        raise UsageError(f"It needs --tables from 2 to {MOST_TABLES}, and --repeat of 1 or more.")
    if dsn is None:
        with own_server(pg) as server:
            own = server.up().dsn
            return run(dsn=own, tables=tables, strategies=strategies, repeat=repeat, say=say)
    with connect(dsn) as orchestrator, WORKLOAD.tables(orchestrator, {"tables": max(tables)}):
        described = machine(orchestrator.connection)
        chosen = offered(orchestrator, CONTENDERS, query(2), strategies or USUAL)
        found: dict[str, dict[int, dict[str, Any]]] = {one.label: {} for one in chosen}
        for number in sorted(tables):
            for one in chosen:
                say(f"{number} tables by {one.label}")
                found[one.label][number] = _compiled(orchestrator, number, one, repeat)
    rows = []
    for label, sizes in found.items():
        before: dict[str, Any] | None = None
        for measured in sizes.values():
            rows.append(
                {"strategy": label, **measured, "grows with power": _power(before, measured)}
            )
            before = measured
    bars = tuple(
        Bar(f"{label}, {JUDGED} tables, seconds", sizes[JUDGED]["seconds"], "<", SECONDS_AT_MOST)
        for label, sizes in found.items()
        if JUDGED in sizes and label != SDBT_STREAMS.label
    )
    return Report("compile", described, tuple(rows), bars)


def query(tables: int) -> str:
    """A view over a chain of tables.

    >>> query(2)
    'SELECT t1.kind, count(*) AS n, sum(t2.amount) AS total FROM t1 JOIN t2 ON t2.id = t1.next GROUP BY t1.kind'
    """
    joins = " ".join(f"JOIN t{n} ON t{n}.id = t{n - 1}.next" for n in range(2, tables + 1))
    shown = f"SELECT t1.kind, count(*) AS n, sum(t{tables}.amount) AS total"
    return f"{shown} FROM t1 {joins} GROUP BY t1.kind"


def _compiled(
    orchestrator: Orchestrator, tables: int, contender: Contender, repeat: int
) -> dict[str, Any]:
    view = view_name("chain", contender)
    taken = []
    for _ in range(repeat):
        taken.append(timed(lambda: require(orchestrator, "chain", query(tables), contender)))
        script = orchestrator.explain(view).script
        orchestrator.drop_view(view)
    return {
        "tables": tables,
        "seconds": statistics.median(taken),
        "from": min(taken),
        "to": max(taken),
        "script, kB": len(script) / 1000,
    }


def _power(before: dict[str, Any] | None, after: dict[str, Any]) -> float | None:
    """The exponent with which the time grew since fewer tables.

    >>> _power({"tables": 5, "seconds": 1.0}, {"tables": 10, "seconds": 4.0})
    2.0
    """
    if before is None:
        return None
    return math.log(after["seconds"] / before["seconds"]) / math.log(
        after["tables"] / before["tables"]
    )
