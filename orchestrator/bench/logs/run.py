"""Check that change logs and catalogs stay as small as they are after the first minute of writing.

pgbench changes single rows while views over them are refreshed every second.
"""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg

from orchestrator.api import connect
from orchestrator.bench.measure import machine, own_server
from orchestrator.bench.pgbench import pgbench
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.errors import DatabaseError, ServerError, UsageError

GROWTH_AT_MOST = 1.10
CLIENTS = 4

WINDOW = 10
"""Seconds in which the largest size counts, because a log fills up and is emptied again."""

MINUTES = 3
"""The changes last at least this many times the first minute, even on a faster machine."""

_TABLE = """
    CREATE TABLE items (id int PRIMARY KEY, kind int NOT NULL, n int NOT NULL) WITH (fillfactor = 70);
    INSERT INTO items SELECT i, i % 100, i FROM generate_series(1, 10000) AS i
"""

_CHANGE = """
\\set id random(1, 10000)
UPDATE items SET n = n + 1 WHERE id = :id;
"""

_SIZES = """
    SELECT sum(pg_total_relation_size(c.oid)) FILTER (WHERE n.nspname = 'idivm_log'),
           sum(pg_total_relation_size(c.oid)) FILTER (WHERE n.nspname IN ('idivm', 'idivm_state')),
           sum(pg_total_relation_size(c.oid)) FILTER (WHERE n.nspname = 'pg_catalog')
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r'
"""

_WHAT = ("change logs", "idivm's catalog and states", "PostgreSQL's catalog")


@dataclass(frozen=True)
class _Sample:
    seconds: float
    sizes: tuple[int, ...]


def run(
    *,
    changes: int = 1_000_000,
    settle: float = 60,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Run the benchmark on its own server; `settle` is the length of the first minute in seconds."""
    if changes < CLIENTS or settle < WINDOW:
        raise UsageError(f"It needs --changes of {CLIENTS} and --settle of {WINDOW} or more.")
    with own_server(pg, {"synchronous_commit": "off"}) as server:
        dsn = server.up().dsn
        with connect(dsn) as orc:
            described = machine(orc.connection)
            orc.execute(_TABLE)
            orc.create_view("sums", "SELECT kind, sum(n) AS s FROM items GROUP BY kind")
            orc.create_view("odd", "SELECT id, n FROM items WHERE kind % 2 = 1")
            samples = _written(dsn, changes, changes / (MINUTES * settle), say)
            if not all(report.equal for report in orc.check()):
                raise DatabaseError("A view differs from its query: what was measured is wrong.")
    if samples[-1].seconds < settle + 2 * WINDOW:
        raise UsageError(
            f"{changes:,} changes took {samples[-1].seconds:.0f} s, which is too short to compare"
            f" with the first {settle:.0f}; give more --changes."
        )
    early = [s for s in samples if settle - WINDOW <= s.seconds <= settle + WINDOW]
    late = [s for s in samples if s.seconds >= samples[-1].seconds - 2 * WINDOW]
    rows: list[dict[str, Any]] = []
    bars = []
    for number, what in enumerate(_WHAT):
        before, after = (max(s.sizes[number] for s in part) for part in (early, late))
        rows.append({"size of": what, "after the first minute": before, "at the end": after})
        bars.append(Bar(f"{what}, times the first", after / before, "<=", GROWTH_AT_MOST))
    rows.append(
        {"size of": f"({changes:,} changes, seconds)", "after the first minute": settle}
        | {"at the end": round(samples[-1].seconds)}
    )
    return Report("logs", described, tuple(rows), tuple(bars))


def _written(dsn: str, changes: int, rate: float, say: Callable[[str], None]) -> list[_Sample]:
    """Return sizes, sampled every second while the changes are made at `rate` and consumed."""
    done = threading.Event()
    samples: list[_Sample] = []
    with (
        tempfile.NamedTemporaryFile("w", suffix=".sql") as script,
        psycopg.connect(dsn, autocommit=True) as connection,
    ):
        script.write(_CHANGE)
        script.flush()
        program = pgbench(connection.info.server_version // 10_000)
        command = [
            *(program, "-n", "-f", script.name, "-M", "prepared", f"-c{CLIENTS}", "-j2"),
            *(f"--transactions={changes // CLIENTS}", f"--rate={rate:.1f}"),
        ]
        process = subprocess.Popen(
            [*command, dsn], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        started = time.monotonic()
        try:
            while not done.wait(1.0):
                connection.execute("CALL idivm.refresh_all()")
                row = connection.execute(_SIZES).fetchone()
                assert row is not None
                samples.append(_Sample(time.monotonic() - started, tuple(map(int, row))))
                if len(samples) % 10 == 0:
                    sizes = ", ".join(f"{size / 1024:,.0f} kB" for size in samples[-1].sizes)
                    say(f"{samples[-1].seconds:.0f} s: {sizes}")
                if process.poll() is not None:
                    done.set()
        finally:
            process.kill()
            _, said = process.communicate()
        if process.returncode != 0:
            last = (said.strip().splitlines() or ["nothing"])[-1]
            raise ServerError(f"pgbench failed, it says: {last}.")
    return samples
