"""Measure what writers pay for views whose changes are read from the WAL: pgbench's script, and bulk statements.

Such capture adds nothing to a transaction. But `idivm serve` reads the WAL beside the writers, and the server may log
old values of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
from psycopg import Connection

from orchestrator.api import Orchestrator
from orchestrator.bench.measure import Paired, timed
from orchestrator.bench.report import Bar
from orchestrator.bench.writers import (
    BARE,
    KEPT,
    database,
    rate_row,
    rates,
    require_right,
    served_by_serve,
)
from orchestrator.errors import IdivmError

RATE_AT_LEAST, BULK_AT_MOST = 0.96, 1.1

BULK = 100_000
"""The rows that a bulk statement changes."""

TABLE = """
CREATE TABLE bulk (id int PRIMARY KEY, a int, t text, n numeric);
INSERT INTO bulk SELECT i, i, 'some text ' || i, i * 1.5 FROM generate_series(1, {rows}) AS i
"""
QUERY = "SELECT a % 10 AS g, sum(n) AS s, count(*) AS c FROM bulk GROUP BY 1"
STATEMENTS = {
    "insert": "INSERT INTO bulk SELECT i, i, 'some text ' || i, i * 1.5"
    " FROM generate_series({rows} + 1, 2 * {rows}) AS i",
    "update": "UPDATE bulk SET a = a + 1 WHERE id <= {rows}",
    "delete": "DELETE FROM bulk WHERE id > {rows}",
}

Rows = list[dict[str, Any]]


def measured(
    dsn: str,
    orchestrator: Orchestrator,
    view: str,
    clients: int,
    slices: int,
    say: Callable[[str], None],
) -> Iterator[tuple[dict[str, Any], Bar]]:
    """Yield rows of the report with their bars. Changes of the view's table are read from the WAL from now on."""
    orchestrator.alter_view(view, maintain="deferred")
    try:
        orchestrator.capture("pgbench_tellers", "wal")
    except IdivmError as error:
        say(f"capture from the WAL is not measured: {error}")
        return

    @contextmanager
    def served() -> Iterator[None]:
        # The slot reads the WAL of all databases, so that serve would slow down the other side too.
        orchestrator.refresh()
        with served_by_serve(database(dsn, KEPT)):
            yield

    rate = rates(dsn, orchestrator, clients, slices, say, None, "tpcb-like", served)
    require_right(orchestrator)
    yield (
        rate_row(f"pgbench, {clients} clients, view deferred, from the WAL", rate),
        Bar("rate, from the WAL / without", rate.ratio, ">=", RATE_AT_LEAST),
    )
    with psycopg.connect(database(dsn, BARE), autocommit=True) as bare:
        for connection in (bare, orchestrator.connection):
            _run(connection, TABLE)
        orchestrator.create_view("of_bulk", QUERY)
        orchestrator.capture("bulk", "wal")
        for kind, times in _bulk(bare, orchestrator.connection, max(3, slices), say).items():
            name = f"{kind} of {BULK:,} rows"
            yield (
                {**rate_row(f"{name}, from the WAL", times), "unit": "ms"},
                Bar(f"{name}, from the WAL / without", times.ratio, "<=", BULK_AT_MOST),
            )
    require_right(orchestrator)
    # No database with a slot can be dropped.
    for table in ("pgbench_tellers", "bulk"):
        orchestrator.capture(table, "triggers")


def _bulk(
    bare: Connection[Any], kept: Connection[Any], repeat: int, say: Callable[[str], None]
) -> dict[str, Paired]:
    """Return the milliseconds of each statement on both sides, which take turns. The first run does not count."""
    times: dict[str, tuple[list[float], list[float]]] = {kind: ([], []) for kind in STATEMENTS}
    sides = (0, bare), (1, kept)
    for number in range(repeat + 1):
        say(f"bulk statements, run {number + 1} of {repeat + 1}")
        for _, connection in sides:
            _run(connection, "VACUUM FULL bulk")
        for kind, statement in STATEMENTS.items():
            for side, connection in sides if number % 2 else reversed(sides):
                taken = 1_000 * timed(partial(_run, connection, statement))
                if number:
                    times[kind][side].append(taken)
    return {kind: Paired(tuple(a), tuple(b)) for kind, (a, b) in times.items()}


def _run(connection: Connection[Any], script: str) -> None:
    for statement in script.split(";"):
        connection.execute(statement.format(rows=BULK).encode())
