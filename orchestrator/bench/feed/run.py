"""Measure refreshes of the running example's views with and without a feed, and the delivery of changes.

Each view exists twice, with and without a feed, so that both refresh the same changes in turn.
"""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from psycopg.sql import SQL, Identifier, Literal

from orchestrator import catalog
from orchestrator.api import Orchestrator, connect
from orchestrator.bench.feed import many
from orchestrator.bench.measure import Paired, in_c_or_say, machine, own_server, timed
from orchestrator.bench.parts.data import FILES, WORKLOAD, Dataset, query
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.bench.workload import SCHEMA, vacuum
from orchestrator.errors import DatabaseError, UsageError
from orchestrator.fuzz.outcome import CaseError
from orchestrator.fuzz.replay import Replica, text_of
from orchestrator.runtime.feeds import Change

VIEWS = ("V", "V'")

SIZES = (1, 20, 200)
"""Rows in an update."""

TIMES_AT_MOST = 1.3
"""A refresh with a feed, in refreshes without one."""

DELAY_AT_MOST = 200.0
"""Milliseconds from the end of a refresh until a subscriber has its changes."""

RATE_AT_LEAST = 1000.0
"""Refreshes a second of many views, while their changes are delivered."""


def run(
    *,
    dsn: str | None = None,
    parts: int = 20_000,
    repeat: int = 20,
    deliveries: int = 100,
    views: int = 200,
    rate: int = 1_200,
    seconds: float = 20,
    sessions: int = 2,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Run the benchmark on its own server, or in schema idivm_bench of the database at `dsn`."""
    if (
        parts < max(SIZES)
        or min(repeat, deliveries, sessions) < 1
        or min(views, rate) < 10
        or seconds <= 0
    ):
        raise UsageError(
            f"It needs --parts of {max(SIZES)} or more, --repeat, --deliveries and --sessions of 1 or more, --views"
            " and --rate of 10 or more, and --seconds of more than 0."
        )
    if dsn is None:
        with own_server(pg) as server:
            in_c_or_say(server, "So capture is measured in plpgsql.", say)
            return run(
                dsn=server.up().dsn,
                parts=parts,
                repeat=repeat,
                deliveries=deliveries,
                views=views,
                rate=rate,
                seconds=seconds,
                sessions=sessions,
                say=say,
            )
    with connect(dsn) as orchestrator:
        in_c = catalog.captures_in_c(orchestrator.connection)
        described = {**machine(orchestrator.connection), "capture in": "C" if in_c else "plpgsql"}
        say("loading")
        dataset = Dataset(parts, fanout=10, selectivity=20, joins=2)
        with WORKLOAD.tables(orchestrator, dataset.settings()):
            for view in VIEWS:
                for feed in ("off", "on"):
                    orchestrator.create_view(_name(view, feed), query(view), feed=feed)
            vacuum(orchestrator)
            copies = {view: _copy(orchestrator, _name(view, "on")) for view in VIEWS}
            rows = []
            for size in SIZES:
                say(f"updating {size} of {parts:,} prices at a time")
                for view, taken in _taken(orchestrator, parts, size, repeat).items():
                    rows.append(_row(view, size, taken))
            say("delivering the changes of small refreshes")
            delays = _delays(orchestrator, parts, deliveries)
            for view in VIEWS:
                _replay(orchestrator, _name(view, "on"), copies[view])
                for feed in ("off", "on"):
                    orchestrator.drop_view(_name(view, feed))
            several = many.measure(orchestrator, dsn, views, rate, seconds, sessions, say)
    total = [sum(row[side] for row in rows) for side in ("without, ms", "with, ms")]
    rows.append({"delivery, median ms": statistics.median(delays), "longest ms": max(delays)})
    rows.append(several)
    bars = (
        Bar("refreshes with a feed, times without", total[1] / total[0], "<=", TIMES_AT_MOST),
        Bar("delivery, median ms", statistics.median(delays), "<=", DELAY_AT_MOST),
        Bar("many views, refreshes a second", several["refreshes a second"], ">=", RATE_AT_LEAST),
        Bar("many views, delivery, median ms", several["delivery, median ms"], "<=", DELAY_AT_MOST),
    )
    return Report("feed", described, tuple(rows), bars)


def _name(view: str, feed: str) -> str:
    return f"{SCHEMA}.feed_{feed}_{FILES[view]}"


def _row(view: str, size: int, taken: Paired) -> dict[str, Any]:
    off, on = taken.medians
    return {
        "view": view,
        "rows updated": size,
        "without, ms": off,
        "with, ms": on,
        "times": taken.ratio,
    }


def _update(orchestrator: Orchestrator, chosen: list[int]) -> None:
    statement = SQL("UPDATE {} SET price = price + 1 WHERE pid = ANY (%s)").format(
        Identifier(SCHEMA, "parts")
    )
    orchestrator.connection.execute(statement, [chosen])


def _taken(orchestrator: Orchestrator, parts: int, size: int, repeat: int) -> dict[str, Paired]:
    """Measure the refreshes of both forms of each view after the same updates, in milliseconds."""
    chance = random.Random(size)
    taken: dict[str, list[float]] = {_name(v, feed): [] for v in VIEWS for feed in ("off", "on")}
    for number in range(repeat + 2):
        _update(orchestrator, chance.sample(range(1, parts + 1), size))
        for name in taken if number % 2 else reversed(taken):
            call = SQL("SELECT changed FROM idivm.refresh({})").format(Literal(name))
            milliseconds = 1000 * timed(
                lambda call=call: orchestrator.connection.execute(call)  # type: ignore[misc]
            )
            # The first refreshes of a session plan their statements.
            if number >= 2:
                taken[name].append(milliseconds)
    return {
        view: Paired(tuple(taken[_name(view, "off")]), tuple(taken[_name(view, "on")]))
        for view in VIEWS
    }


def _delays(orchestrator: Orchestrator, parts: int, deliveries: int) -> list[float]:
    """Return the milliseconds from the end of each refresh until a subscriber has its changes."""
    view = _name("V'", "on")
    arrived: dict[int, float] = {}
    ready, done, stop = threading.Event(), threading.Event(), threading.Event()
    ended: dict[int, float] = {}

    def listen() -> None:
        for item in orchestrator.follow(view, stop=stop):
            if isinstance(item, Change):
                arrived.setdefault(item.refresh, time.monotonic())
                if len(arrived) == deliveries:
                    done.set()
            ready.set()

    thread = threading.Thread(target=listen)
    thread.start()
    ready.wait(60)
    chance = random.Random(0)
    try:
        while len(ended) < deliveries:
            _update(orchestrator, chance.sample(range(1, parts + 1), 20))
            before = _position(orchestrator, view)
            orchestrator.refresh(view)
            moment, number = time.monotonic(), _position(orchestrator, view)
            if number != before:
                ended[number] = moment
        if not done.wait(60):
            raise DatabaseError("A subscriber did not get all changes: what was measured is wrong.")
    finally:
        stop.set()
        thread.join()
    return [1000 * max(0.0, arrived[number] - moment) for number, moment in ended.items()]


def _position(orchestrator: Orchestrator, view: str) -> int:
    row = orchestrator.connection.execute(
        "SELECT position FROM idivm.feeds WHERE view = %s::regclass", [view]
    ).fetchone()
    assert row is not None
    return int(row[0])


def _copy(orchestrator: Orchestrator, view: str) -> Replica:
    """Return the rows of a view and the position of its feed, while nothing changes."""
    rows = orchestrator.subscribe(view, snapshot=True, live=False)
    return Replica(_position(orchestrator, view), Counter(text_of(row.new) for row in rows))


def _replay(orchestrator: Orchestrator, view: str, copy: Replica) -> None:
    """Apply the changes of the feed since a copy was taken, and compare the result with the view."""
    try:
        for change in orchestrator.subscribe(view, copy.position, live=False):
            copy.apply(change.kind, change.old, change.new)
        copy.require_equal(view, _copy(orchestrator, view).rows)
    except CaseError as error:
        raise DatabaseError(f"The feed of {view} differs from the view: {error}.") from error
