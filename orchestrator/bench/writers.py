"""Measure the cost for many writers of a view that `idivm serve` refreshes, and of an eager view.

pgbench's simple updates run on two databases in turn. One of them has an aggregate over a join.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from orchestrator import catalog
from orchestrator.api import Orchestrator, connect
from orchestrator.bench.measure import Paired, alternate, in_c_or_say, machine, own_server
from orchestrator.bench.measure import require_durable_commits as require_durable
from orchestrator.bench.pgbench import pgbench
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.catalog import serving as catalog_serving
from orchestrator.errors import DatabaseError, ServerError, UsageError

BARE, KEPT = "idivm_bench_bare", "idivm_bench_kept"
VIEW = "teller_totals"
QUERY = (
    "SELECT t.tid, sum(a.abalance) AS total FROM pgbench_accounts a"
    " JOIN pgbench_tellers t ON a.bid = t.bid GROUP BY t.tid"
)

RATE_AT_LEAST = 0.8
STALENESS_AT_MOST = 1.0

SLICE = 5
"""The seconds that pgbench stays with one database."""

LOOK = 0.05
"""The seconds between two samples of the view's age."""

PATIENCE = 30
"""The seconds that a view may take to include earlier writes."""


@dataclass
class _Staleness:
    """Samples of the age of the view's content, in seconds."""

    view_id: int
    samples: list[float] = field(default_factory=list)

    @contextmanager
    def watched(self, dsn: str) -> Iterator[None]:
        """Sample while writers work, after the view has included all earlier writes."""
        done, fresh = threading.Event(), threading.Event()
        thread = threading.Thread(target=self._watch, args=(dsn, fresh, done))
        thread.start()
        try:
            fresh.wait()
            yield
        finally:
            done.set()
            thread.join()

    def _watch(self, dsn: str, fresh: threading.Event, done: threading.Event) -> None:
        try:
            with psycopg.connect(dsn, autocommit=True) as connection:
                late = time.monotonic() + PATIENCE
                while time.monotonic() < late and not catalog_serving.is_fresh(
                    connection, self.view_id
                ):
                    time.sleep(LOOK)
                fresh.set()
                self._look(connection, done)
        finally:
            fresh.set()

    def _look(self, connection: Connection[Any], done: threading.Event) -> None:
        complete = time.monotonic()
        _, before = catalog_serving.age(connection, self.view_id)
        while not done.wait(LOOK):
            now = time.monotonic()
            age, number = catalog_serving.age(connection, self.view_id)
            if number == before:
                # Before the first change, the view is complete.
                complete = now
                continue
            self.samples.append(min(age, time.monotonic() - complete))

    def percentile(self, share: float) -> float:
        """Return the age that this share of the samples does not exceed."""
        ordered = sorted(self.samples)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def run(
    *,
    dsn: str | None = None,
    seconds: float = 30,
    scale: int = 10,
    clients: int = 10,
    repeat: int = 1,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Run the benchmark on its own server, or in two new databases on the server at `dsn`."""
    for name, value in {"seconds": seconds, "scale": scale, "clients": clients}.items():
        if value < 1:
            raise UsageError(f"The benchmark needs --{name} of 1 or more, not {value}.")
    slices = max(1, round(seconds / SLICE)) * repeat
    if dsn is not None:
        with databases(dsn, scale, say):
            return _measure(dsn, clients, slices, say)
    with own_server(pg) as server:
        own = server.up().dsn
        with databases(own, scale, say):
            in_c_or_say(server, "So capture is measured in plpgsql.", say, KEPT)
            return _measure(own, clients, slices, say)


def _measure(dsn: str, clients: int, slices: int, say: Callable[[str], None]) -> Report:
    with connect(database(dsn, KEPT)) as orchestrator:
        require_durable(orchestrator.connection)
        in_c = catalog.captures_in_c(orchestrator.connection)
        described = {**machine(orchestrator.connection), "capture in": "C" if in_c else "plpgsql"}
        orchestrator.create_view(VIEW, QUERY, staleness="1s")
        view = orchestrator.view(VIEW)
        strategy, staleness = view.strategy, _Staleness(view.id)
        with served_by_serve(database(dsn, KEPT)):
            served = rates(dsn, orchestrator, clients, slices, say, staleness)
            require_right(orchestrator)
        orchestrator.alter_view(VIEW, maintain="eager")
        eager = rates(dsn, orchestrator, clients, max(1, slices // 3), say, None)
        require_right(orchestrator)
    rows = (
        rate_row(f"pgbench -N, {clients} clients, view kept fresh by serve ({strategy})", served),
        rate_row(f"pgbench -N, {clients} clients, view eager ({strategy})", eager),
        {
            **rate_row("staleness of the view, 50 % and 99 %", served),
            "unit": "s",
            "without view": None,
            "with view": None,
            "ratio": None,
            "ratios from": staleness.percentile(0.5),
            "to": staleness.percentile(0.99),
        },
    )
    bars = (
        Bar("rate with the view served / without", served.ratio, ">=", RATE_AT_LEAST),
        Bar("staleness, 99th percentile, s", staleness.percentile(0.99), "<=", STALENESS_AT_MOST),
    )
    return Report("writers", described, rows, bars)


def rate_row(name: str, paired: Paired) -> dict[str, Any]:
    """Return the row of a report for rates without and with a view."""
    bare, kept = paired.medians
    least, most = paired.spread
    return {
        "measured": name,
        "unit": "transactions/s",
        "without view": bare,
        "with view": kept,
        "ratio": paired.ratio,
        "ratios from": least,
        "to": most,
    }


def database(dsn: str, name: str) -> str:
    """Return the connection string of a database on the server at `dsn`."""
    return make_conninfo(dsn, dbname=name)


@contextmanager
def databases(dsn: str, scale: int, say: Callable[[str], None]) -> Iterator[None]:
    """Create two databases with the tables of pgbench, and drop them at the end."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        program = pgbench(connection.info.server_version // 10_000)
        try:
            for name in (BARE, KEPT):
                say(f"filling {name}")
                connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
                _call([program, "--initialize", "--quiet", f"--scale={scale}", database(dsn, name)])
            yield
        finally:
            for name in (BARE, KEPT):
                # Remaining sessions are about to end, and the server waits for them.
                connection.execute(SQL("DROP DATABASE IF EXISTS {}").format(Identifier(name)))


@contextmanager
def served_by_serve(dsn: str, *options: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Run `idivm serve` on a database. Give its process, and the messages of its events until it is connected."""
    command = [sys.executable, "-m", "orchestrator.cli.main", "serve", "--json", *options]
    # The list of processes must not show a password in the connection string.
    environment = {**os.environ, "IDIVM_DSN": dsn}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        messages: dict[str, str] = {}
        for event in map(json.loads, process.stdout):
            if event["event"] == "connected":
                break
            messages[event["event"]] = event.get("message")
        else:
            raise ServerError("idivm serve ended before it was at work; run it to see why.")
        reader = threading.Thread(target=process.stdout.read)
        reader.start()
        yield process.pid, messages
    finally:
        process.terminate()
        process.wait()
    reader.join()


def rates(
    dsn: str,
    orchestrator: Orchestrator,
    clients: int,
    slices: int,
    say: Callable[[str], None],
    staleness: _Staleness | None,
    script: str = "simple-update",
    beside: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Paired:
    """Return the rates of a script of pgbench on both databases, in turn; `beside` surrounds those with the view."""
    program = pgbench(orchestrator.connection.info.server_version // 10_000)

    def side(name: str) -> Callable[[], float]:
        def rate() -> float:
            say(f"pgbench, {script} on {name}")
            command = [
                *(program, f"--builtin={script}", "--no-vacuum", "--protocol=prepared"),
                *(f"--client={clients}", "--jobs=2", f"--time={SLICE}", database(dsn, name)),
            ]
            if name == BARE:
                return _rate(command)
            watched = nullcontext() if staleness is None else staleness.watched(database(dsn, name))
            with beside(), watched:
                return _rate(command)

        return rate

    return alternate(side(BARE), side(KEPT), slices)


def _rate(command: list[str]) -> float:
    match = re.search(r"^tps = ([\d.]+)", _call(command), re.MULTILINE)
    assert match is not None
    return float(match[1])


def _call(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise ServerError(f"pgbench failed, it says: {said[-1]}.")
    return done.stdout


def require_right(orchestrator: Orchestrator) -> None:
    """Raise an error if a view differs from its query."""
    if not all(report.equal for report in orchestrator.check()):
        raise DatabaseError(f"{VIEW} differs from its query's answer: what was measured is wrong.")
