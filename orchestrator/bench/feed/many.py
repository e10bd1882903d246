"""Deliver the changes of many views, each of which changes several times a second.

One process writes, others refresh the views again and again, and subscribers follow some of the views. The time of a
delivery begins within the refresh, before it commits.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier, Event
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from orchestrator.api import Orchestrator
from orchestrator.bench.workload import SCHEMA
from orchestrator.errors import DatabaseError
from orchestrator.runtime.feeds import Caught, Change

TICK = 0.1
"""Seconds between two groups of changes."""

FOLLOWED = 10
"""The views that have a subscriber."""

ROWS = 100
"""The rows of the table of each view."""


def measure(
    orchestrator: Orchestrator,
    dsn: str,
    views: int,
    rate: int,
    seconds: float,
    sessions: int,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Return how many refreshes that change a view end in a second, and how long deliveries take, in milliseconds."""
    say(f"creating {views} views with feeds")
    names = [f"many_{number}" for number in range(views)]
    for name in names:
        table = Identifier(SCHEMA, name)
        orchestrator.connection.execute(
            SQL("CREATE TABLE {} (id int PRIMARY KEY, k int NOT NULL, n int NOT NULL)").format(
                table
            )
        )
        orchestrator.connection.execute(
            SQL("INSERT INTO {} SELECT i, i % 10, i FROM generate_series(1, {}) AS i").format(
                table, ROWS
            )
        )
        query = SQL("SELECT k, sum(n) AS s, count(*) AS c FROM {} GROUP BY k").format(table)
        orchestrator.create_view(_view(name), query.as_string(None), feed="on")
    say(f"changing {rate} views a second, for {seconds:g} s")
    delays: list[float] = []
    followed = [_view(name) for name in random.Random(0).sample(names, FOLLOWED)]
    with _following(orchestrator, followed, delays):
        context = get_context("spawn")
        stop, ready = context.Event(), context.Barrier(sessions + 2, timeout=60)
        processes = [
            context.Process(target=_write, args=(dsn, names, rate, ready, stop)),
            *(
                context.Process(
                    target=_refresh,
                    args=(dsn, [_view(name) for name in names[part::sessions]], ready, stop),
                )
                for part in range(sessions)
            ),
        ]
        for process in processes:
            process.start()
        # If a process failed, its exit code says so at the end.
        with suppress(threading.BrokenBarrierError):
            ready.wait()
        # The first refreshes plan their statements.
        time.sleep(2)
        delays.clear()
        before, began = _refreshes(orchestrator), time.monotonic()
        time.sleep(seconds)
        after, ended = _refreshes(orchestrator), time.monotonic()
        measured = list(delays)
        stop.set()
        for process in processes:
            process.join()
        if any(process.exitcode for process in processes) or not measured:
            raise DatabaseError("A process of the benchmark failed, so that nothing was measured.")
    orchestrator.refresh()
    if not all(report.equal for report in orchestrator.check()):
        raise DatabaseError("A view differs from its query: what was measured is wrong.")
    return {
        "views": views,
        "refreshes a second": (after - before) / (ended - began),
        "delivery, median ms": statistics.median(measured),
        "longest ms": max(measured),
    }


def _view(table: str) -> str:
    return f"{SCHEMA}.{table}_sums"


def _refreshes(orchestrator: Orchestrator) -> int:
    """Return how many refreshes have changed a view."""
    row = orchestrator.connection.execute(
        "SELECT sum(w.refreshes) FROM idivm.watermarks w"
    ).fetchone()
    assert row is not None
    return int(row[0])


@contextmanager
def _following(
    orchestrator: Orchestrator, views: Sequence[str], delays: list[float]
) -> Iterator[None]:
    """Follow some views, each in its own thread, and add the milliseconds of each delivery to a list."""
    stop = threading.Event()
    ready = threading.Barrier(len(views) + 1, timeout=60)

    def follow(feed: Iterator[Change | Caught]) -> None:
        begun = False
        for item in feed:
            if isinstance(item, Change):
                delays.append(1000 * (datetime.now(timezone.utc) - item.at).total_seconds())
            elif not begun:
                begun = True
                ready.wait()

    feeds = [orchestrator.follow(view, stop=stop) for view in views]
    threads = [threading.Thread(target=follow, args=(feed,)) for feed in feeds]
    for thread in threads:
        thread.start()
    try:
        ready.wait()
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _write(dsn: str, tables: Sequence[str], rate: int, ready: Barrier, stop: Event) -> None:
    """Change a row in some of the tables, ten times a second."""
    chance = random.Random(0)
    number = 0
    with psycopg.connect(dsn, autocommit=True) as connection:
        ready.wait()
        next_tick = time.monotonic()
        while not stop.is_set():
            with connection.pipeline():
                for _ in range(round(rate * TICK)):
                    number += 1
                    table = Identifier(SCHEMA, tables[number % len(tables)])
                    connection.execute(
                        SQL("UPDATE {} SET n = n + 1 WHERE id = %s").format(table),
                        [chance.randint(1, ROWS)],
                    )
            next_tick += TICK
            stop.wait(max(0.0, next_tick - time.monotonic()))


def _refresh(dsn: str, views: Sequence[str], ready: Barrier, stop: Event) -> None:
    """Refresh some of the views, again and again."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        ready.wait()
        while not stop.is_set():
            connection.execute("CALL idivm.refresh_all(VARIADIC %s)", [list(views)])
