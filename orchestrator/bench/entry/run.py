"""Measure idivm.create_view, then dump a database of such views, restore the dump elsewhere and serve it."""

from __future__ import annotations

import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from orchestrator.api import Orchestrator, connect
from orchestrator.bench.measure import STEADY, machine, own_server, timed
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.errors import UsageError
from orchestrator.server.binaries import Installation, find

MILLISECONDS_AT_MOST = 50

TOGETHER = 200
"""How many views one transaction creates."""

_TABLES = """
    CREATE TABLE customers (id int PRIMARY KEY, region int NOT NULL, name text NOT NULL);
    CREATE TABLE orders (id int PRIMARY KEY, customer int NOT NULL REFERENCES customers, day date NOT NULL,
                         amount numeric(12, 2) NOT NULL);
    CREATE INDEX ON orders (customer);
    INSERT INTO customers SELECT i, i % 20, 'customer ' || i FROM generate_series(1, 1000) AS i;
    INSERT INTO orders
    SELECT i, 1 + i % 1000, date '2024-01-01' + i % 365, i % 1000 FROM generate_series(1, {rows}) AS i;
    ANALYZE customers, orders
"""

_QUERIES = (
    "SELECT customer, sum(amount) AS total FROM orders WHERE id % 50 <> {n} GROUP BY customer",
    "SELECT c.region, o.day, sum(o.amount) AS total, count(*) AS n FROM orders o JOIN customers c ON c.id = o.customer"
    " WHERE o.id % 50 <> {n} GROUP BY c.region, o.day",
    "SELECT o.id, c.name, o.amount FROM orders o JOIN customers c ON c.id = o.customer WHERE o.id % 10 = {n} % 10",
    "SELECT day, max(amount) AS largest FROM orders WHERE customer % 50 <> {n} GROUP BY day",
    "SELECT DISTINCT customer, day FROM orders WHERE amount > 900 AND id % 50 <> {n}",
)
"""Queries of the views; each view puts its own number into its query."""

_MODES = ("deferred", "eager", "on_commit")

_CHANGES = """
    UPDATE orders SET amount = amount + 1 WHERE id % 97 = 0;
    DELETE FROM orders WHERE id % 101 = 0;
    UPDATE customers SET name = upper(name) WHERE id % 13 = 0
"""

PATIENCE = 600
"""After so many seconds, the views that are not planned yet are counted."""


def run(
    *,
    views: int = 100,
    rows: int = 10_000,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Run the benchmark on a server of its own."""
    if views < 1 or rows < 100:
        raise UsageError("It needs --views of 1 and --rows of 100 or more.")
    with own_server(pg, STEADY) as server:
        dsn = server.up().dsn
        with connect(dsn) as orchestrator:
            connection = orchestrator.connection
            connection.execute(_TABLES.format(rows=rows).encode())
            say("creating views")
            single = sorted(_create(connection, f"single{n}", n) for n in range(50))
            together = _together(connection)
            for number in range(views):
                _create(connection, f"view{number}", number)
            say("restoring a dump elsewhere")
            restored = _restore(find(pg), dsn, connection)
            planned, equal, seconds = _served(restored, views, say)
            return Report(
                "entry",
                machine(connection),
                (
                    {
                        "create_view, ms": statistics.median(single),
                        "slowest of 20, ms": single[round(len(single) * 0.95) - 1],
                        f"{TOGETHER} in a transaction, s": together,
                        f"planning {views}, s": seconds,
                    },
                ),
                (
                    Bar(
                        "create_view, ms (19 of 20)",
                        single[round(len(single) * 0.95) - 1],
                        "<=",
                        MILLISECONDS_AT_MOST,
                    ),
                    Bar("restored views that are planned", planned, ">=", views),
                    Bar("restored views that equal their queries", equal, ">=", views),
                ),
            )


def _create(connection: Connection[Any], name: str, number: int) -> float:
    """Create a view by SQL, and return how many milliseconds that took."""
    query = _QUERIES[number % len(_QUERIES)].format(n=number)
    given = [name, query, _MODES[number % len(_MODES)]]
    call = "SELECT idivm.create_view(%s, %s, maintain => %s)"
    return 1000 * timed(lambda: connection.execute(call, given))


def _together(connection: Connection[Any]) -> float:
    """Create many views in one transaction, read them, and drop them with the views created one by one."""
    started = time.perf_counter()
    with connection.transaction():
        for number in range(TOGETHER):
            _create(connection, f"together{number}", number)
    seconds = time.perf_counter() - started
    for number in range(TOGETHER):
        name = Identifier(f"together{number}")
        connection.execute(SQL("SELECT count(*) FROM {}").format(name))
    with connection.transaction():
        connection.execute(
            "SELECT idivm.drop_view(relation::text) FROM idivm.unplanned_views ORDER BY relation"
        )
    return seconds


def _restore(installation: Installation, dsn: str, connection: Connection[Any]) -> str:
    restored = make_conninfo(dsn, dbname="restored")
    connection.execute("CREATE DATABASE restored TEMPLATE template0")
    with TemporaryDirectory() as folder:
        dump = str(Path(folder) / "dump.sql")
        subprocess.run([installation.program("pg_dump"), "-f", dump, dsn], check=True)
        subprocess.run(
            [
                installation.program("psql"),
                *("-q", "-X", "-v", "ON_ERROR_STOP=1", "-f", dump, restored),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return restored


def _served(dsn: str, views: int, say: Callable[[str], None]) -> tuple[int, int, float]:
    """Serve a database until its views are planned, change its tables, and count the planned and the equal views."""
    stop = threading.Event()
    with connect(dsn) as orchestrator, psycopg.connect(dsn, autocommit=True) as watcher:
        server = threading.Thread(target=_serve, args=(dsn, stop))
        started = time.perf_counter()
        server.start()
        try:
            # A refused view is tried again later, but not planned.
            while _waiting(watcher, refused=False) and time.perf_counter() - started < PATIENCE:
                time.sleep(0.2)
            seconds = time.perf_counter() - started
        finally:
            stop.set()
            server.join()
        say(f"{views - _waiting(watcher)} of {views} views are planned")
        watcher.execute(_CHANGES.encode())
        reports = orchestrator.check()
        return len(orchestrator.views()) - _waiting(watcher), sum(r.equal for r in reports), seconds


def _serve(dsn: str, stop: threading.Event) -> None:
    with connect(dsn) as orchestrator, suppress(KeyboardInterrupt):
        Orchestrator.serve(orchestrator, stop=stop)


def _waiting(connection: Connection[Any], *, refused: bool = True) -> int:
    """Count the views without a plan, with or without those whose planning failed."""
    row = connection.execute(
        "SELECT count(*) FROM idivm.unplanned_views WHERE %s OR refusal IS NULL", [refused]
    ).fetchone()
    assert row is not None
    return int(row[0])
