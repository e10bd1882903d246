"""Measure a window that moves: the last hour's counts and sums by key, refreshed while the time passes.

The time is under control: the benchmark replaces `idivm.clock()` in a server of its own. Each second, as many
events arrive as leave the window.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from psycopg import Connection

from orchestrator.api import connect
from orchestrator.bench.measure import (
    STEADY,
    Execution,
    explained,
    machine,
    own_server,
    prepare_explained,
)
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.errors import DatabaseError, UsageError

LEAST_RATIO = 50.0
"""How many times less a refresh takes than the query, in the median."""

_WINDOW = 3600
"""The seconds of the window."""

_TABLES = """
    CREATE TABLE events (id bigint PRIMARY KEY, key int NOT NULL, amount bigint NOT NULL, at timestamptz NOT NULL);
"""

_CLOCK = """
    CREATE OR REPLACE FUNCTION idivm.clock() RETURNS timestamptz LANGUAGE sql STABLE
        RETURN current_setting('bench.now')::timestamptz;
    SET bench.now = '2026-01-01 12:00:00+00'
"""

_QUERY = """
    SELECT key, count(*) AS events, sum(amount) AS amount FROM events
    WHERE at > {} - interval '1 hour' GROUP BY key
"""


def run(
    *,
    events: int = 1_000_000,
    keys: int = 100,
    refreshes: int = 30,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Run the benchmark on its own server."""
    if events < _WINDOW or keys < 1 or refreshes < 1:
        raise UsageError(
            f"It needs --events of {_WINDOW} or more, and --keys and --refreshes of 1 or more."
        )
    each = events // _WINDOW
    with own_server(pg, STEADY) as server, connect(server.up().dsn) as orchestrator:
        connection = orchestrator.connection
        described = machine(connection)
        connection.execute(_TABLES)
        connection.execute(_CLOCK)
        say(f"loading {events:,} events of an hour")
        connection.execute(
            "INSERT INTO events SELECT n, n %% %(keys)s, n %% 97,"
            " timestamptz '2026-01-01 11:00:00+00' + n * interval '1 s' / %(each)s"
            " FROM generate_series(1, %(events)s) AS n",
            {"keys": keys, "each": each, "events": events},
        )
        connection.execute("CREATE INDEX ON events (at)")
        connection.execute("VACUUM ANALYZE events")
        orchestrator.create_view("last_hour", _QUERY.format("now()"))
        prepare_explained(connection)
        refreshed: list[Execution] = []
        queried: list[Execution] = []
        say(f"refreshing {refreshes} times, one second after the other")
        for number in range(refreshes + 5):
            _pass_second(connection, events + number * each, keys, each)
            refresh = explained(connection, "SELECT * FROM idivm.refresh('last_hour')")
            other = explained(connection, _QUERY.format("idivm.clock()"))
            if number >= 5:
                refreshed.append(refresh)
                queried.append(other)
            orchestrator.connection.execute("SELECT idivm.collect()")
        if not all(report.equal for report in orchestrator.check()):
            raise DatabaseError("The view differs from its query: what was measured is wrong.")
        reported = connection.execute(
            "SELECT count(*) FILTER (WHERE recomputed), max(rows_changed) FROM idivm.history"
        ).fetchone() or (0, 0)
    ratio = statistics.median(
        other.milliseconds / refresh.milliseconds
        for refresh, other in zip(refreshed, queried, strict=True)
    )
    rows = (
        _row(f"refresh: {each} events come and {each} go", refreshed),
        _row("query", queried),
    )
    bars = (
        Bar("query, times the refresh", ratio, ">=", LEAST_RATIO),
        Bar("refreshes that recomputed", reported[0], "=", 0),
    )
    return Report("temporal", described, rows, bars)


def _pass_second(connection: Connection[Any], last: int, keys: int, each: int) -> None:
    """Move the time by a second, in which events arrive."""
    connection.execute(
        "SELECT set_config('bench.now', (idivm.clock() + interval '1 s')::text, false)"
    )
    connection.execute(
        "INSERT INTO events SELECT n, n %% %s, n %% 97, idivm.clock() FROM generate_series(%s, %s) AS n",
        [keys, last + 1, last + each],
    )


def _row(name: str, runs: list[Execution]) -> dict[str, Any]:
    return {
        "measured": name,
        "ms": statistics.median(run.milliseconds for run in runs),
        "buffers": statistics.median(run.buffers for run in runs),
    }
