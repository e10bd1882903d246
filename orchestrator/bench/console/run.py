"""Measure `serve` with metrics and the console over many idle views, and the console in a browser."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from psycopg.sql import SQL, Identifier, Literal

from orchestrator.api import Orchestrator, connect
from orchestrator.bench.console.browser import chromium
from orchestrator.bench.measure import STEADY, machine, own_server
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.bench.writers import served_by_serve
from orchestrator.errors import UsageError

CORE_BELOW = 2.0
MEGABYTES_BELOW = 150.0
PAINT_BELOW = 1500.0
UPDATE_BELOW = 300.0

TABLES = 20

_VIEW = "SELECT grp, sum(n) AS total, count(*) AS rows FROM console_{table} WHERE id <> {view} GROUP BY grp"

_PAINT = """() => new Promise(done => new PerformanceObserver(list => done(list.getEntries()[0].startTime))
    .observe({type: 'paint', buffered: true}))"""

_UPDATE = """async () => {
    const start = performance.now();
    last = '';
    await update();
    live.getBoundingClientRect();
    return performance.now() - start;
}"""
"""Fetches and shows the views again, as the page does by itself, with the layout of the browser."""


def run(
    *,
    views: int = 200,
    seconds: float = 60,
    repeat: int = 9,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Run the benchmark on its own server."""
    if views < 1 or seconds <= 0 or repeat < 1:
        raise UsageError("It needs --views and --repeat of 1 or more, and --seconds above 0.")
    # If there is no browser, this is known before the views are made.
    with chromium() as browser, own_server(pg, STEADY) as server:
        dsn = server.up().dsn
        with closing(connect(dsn)) as orchestrator:
            _create(orchestrator, views, say)
            facts = machine(orchestrator.connection)
        # Port 0 lets the system choose.
        ports = ("--metrics", "0", "--console", "0")
        with served_by_serve(dsn, *ports) as (pid, messages):
            url = messages["console"]
            page = browser.new_page()
            page.goto(url)
            paints, updates = [], []
            for _ in range(repeat + 1):
                page.goto(url.partition("?")[0])
                paints.append(float(page.evaluate(_PAINT)))
                updates.append(float(page.evaluate(_UPDATE)))
            listed = page.locator("#views tbody tr").count()
            page.close()
            say(f"watching serve for {seconds:g} seconds")
            core, megabytes = _cost(pid, seconds)
    # The first visit starts what later ones find.
    paint, update = statistics.median(paints[1:]), statistics.median(updates[1:])
    row = {
        "views": listed,
        "first paint ms": paint,
        "update ms": update,
        "core %": core,
        "MB": megabytes,
    }
    return Report(
        "console",
        facts,
        (row,),
        (
            Bar(f"first paint with {views} views, ms", paint, "<=", PAINT_BELOW),
            Bar(f"update with {views} views, ms", update, "<=", UPDATE_BELOW),
            Bar(f"serve with {views} idle views, % of a core", core, "<=", CORE_BELOW),
            Bar(f"serve with {views} idle views, MB", megabytes, "<=", MEGABYTES_BELOW),
        ),
    )


def _create(orchestrator: Orchestrator, views: int, say: Callable[[str], None]) -> None:
    for number in range(TABLES):
        orchestrator.connection.execute(
            SQL("CREATE TABLE {} (id int PRIMARY KEY, grp int NOT NULL, n int NOT NULL)").format(
                Identifier(f"console_{number}")
            )
        )
    for number in range(views):
        say(f"creating view {number + 1} of {views}")
        query = SQL(_VIEW).format(table=SQL(str(number % TABLES)), view=Literal(number))
        orchestrator.create_view(f"console_view_{number}", query.as_string(orchestrator.connection))


def _cost(pid: int, seconds: float) -> tuple[float, float]:
    """Watch a process; return the percentage of a core that it takes, and its megabytes."""
    # What the pages asked for last is over.
    time.sleep(2)
    before, started = _ticks(pid), time.monotonic()
    time.sleep(seconds)
    used = (_ticks(pid) - before) / os.sysconf("SC_CLK_TCK")
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    [kilobytes] = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
    return 100 * used / (time.monotonic() - started), int(kilobytes) / 1024


def _ticks(pid: int) -> int:
    """Return the clock ticks that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
