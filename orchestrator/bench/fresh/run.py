"""Measure what a view costs in each mode, and how quickly an on_read view answers a lookup.

pgbench's default script runs on two databases in turn. One of them has a view of sums over `pgbench_tellers`. Then
1,000 changes are left pending, and a lookup of one group is measured beside a lookup in a table with the same rows.
Last, the changes are read from the WAL (`from_wal`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from itertools import cycle
from typing import Any, Literal, TypeAlias

from psycopg import Connection
from psycopg.sql import SQL, Identifier

from orchestrator import catalog
from orchestrator.api import Orchestrator, connect
from orchestrator.bench.fresh import from_wal
from orchestrator.bench.measure import (
    Paired,
    alternate,
    in_c_or_say,
    logical_server,
    machine,
    timed,
)
from orchestrator.bench.measure import require_durable_commits as require_durable
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.bench.writers import (
    KEPT,
    SLICE,
    database,
    databases,
    rate_row,
    rates,
    require_right,
    served_by_serve,
)
from orchestrator.errors import UsageError

Mode: TypeAlias = Literal["deferred", "eager", "on_commit", "on_read"]

VIEW, PLAIN = "branch_totals", "branch_totals_plain"
QUERY = "SELECT bid, sum(tbalance) AS total, count(*) AS tellers FROM pgbench_tellers GROUP BY bid"

MODES: tuple[Mode, ...] = ("deferred", "eager", "on_commit", "on_read")
SERVED = ("deferred", "on_read")

RATE_AT_LEAST, EAGER_AT_LEAST = 0.85, 0.5
LOOKUP_AT_MOST = 3.0

PENDING = 1000
"""The changes that are pending when a group is looked up."""


def run(
    *,
    dsn: str | None = None,
    seconds: float = 20,
    scale: int = 10,
    clients: int = 10,
    lookups: int = 500,
    repeat: int = 1,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Run the benchmark on its own server, or in two new databases on the server at `dsn`."""
    given = {"seconds": seconds, "scale": scale, "clients": clients, "lookups": lookups}
    for name, value in given.items():
        if value < 1:
            raise UsageError(f"The benchmark needs --{name} of 1 or more, not {value}.")
    slices = max(1, round(seconds / SLICE)) * repeat
    if dsn is not None:
        with databases(dsn, scale, say):
            return _measure(dsn, clients, slices, lookups, say)
    with logical_server(pg) as server:
        own = server.up().dsn
        with databases(own, scale, say):
            in_c_or_say(server, "So capture is measured in plpgsql.", say, KEPT)
            return _measure(own, clients, slices, lookups, say)


def _measure(
    dsn: str, clients: int, slices: int, lookups: int, say: Callable[[str], None]
) -> Report:
    kept = database(dsn, KEPT)
    measured: dict[str, Paired] = {}
    with connect(kept) as orchestrator:
        require_durable(orchestrator.connection)
        in_c = catalog.captures_in_c(orchestrator.connection)
        described = {**machine(orchestrator.connection), "capture in": "C" if in_c else "plpgsql"}
        for mode in MODES:
            orchestrator.create_view(VIEW, QUERY, maintain=mode, replace=bool(measured))
            with served_by_serve(kept) if mode in SERVED else nullcontext():
                measured[mode] = rates(
                    dsn, orchestrator, clients, slices, say, None, script="tpcb-like"
                )
            require_right(orchestrator)
        say(f"looking up groups with {PENDING:,} pending changes")
        looked_up = _lookups(orchestrator, lookups)
        require_right(orchestrator)
        logged = list(from_wal.measured(dsn, orchestrator, VIEW, clients, slices, say))
    rows = [rate_row(f"pgbench, {clients} clients, view {mode}", measured[mode]) for mode in MODES]
    plain, merged = looked_up.medians
    least, most = looked_up.spread
    rows.append(
        {
            "measured": f"lookup of a group, {PENDING:,} changes pending, on_read beside a table",
            "unit": "us",
            "without view": plain,
            "with view": merged,
            "ratio": looked_up.ratio,
            "ratios from": least,
            "to": most,
        }
    )
    bars = (
        Bar("rate, on_read / without", measured["on_read"].ratio, ">=", RATE_AT_LEAST),
        Bar("rate, eager / without", measured["eager"].ratio, ">=", EAGER_AT_LEAST),
        Bar("lookup, on_read / table", merged / plain, "<=", LOOKUP_AT_MOST),
        *(bar for _, bar in logged),
    )
    return Report("fresh", described, (*rows, *(row for row, _ in logged)), bars)


def _lookups(orchestrator: Orchestrator, lookups: int) -> Paired:
    """Measure lookups in a table and in the view in turn, in microseconds."""
    connection = orchestrator.connection
    connection.execute(
        SQL("CREATE TABLE {0} AS {1}; ALTER TABLE {0} ADD PRIMARY KEY (bid)").format(
            Identifier(PLAIN), SQL(QUERY)
        )
    )
    orchestrator.refresh()
    tellers = _count_tellers(connection)
    for _ in range(max(1, PENDING // tellers)):
        connection.execute("UPDATE pgbench_tellers SET tbalance = tbalance + 1 WHERE tid <= 1000")
    connection.execute("ANALYZE")
    groups = cycle(range(1, tellers // 10 + 1))

    def side(relation: str) -> Callable[[], float]:
        statement = SQL("SELECT * FROM {} WHERE bid = %s").format(Identifier(relation))

        def look() -> float:
            bid = next(groups)
            return 1e6 * timed(
                lambda: connection.execute(statement, [bid], prepare=True).fetchall()
            )

        return look

    return alternate(side(PLAIN), side(VIEW), lookups, warm_up=20)


def _count_tellers(connection: Connection[Any]) -> int:
    row = connection.execute("SELECT count(*) FROM pgbench_tellers").fetchone()
    assert row is not None
    return int(row[0])
