"""Refresh views that do not read each other in one session and in several sessions at once.

Each view groups a table of its own. Before each refresh, a part of every table changes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing

from psycopg.sql import SQL, Identifier, Literal

from orchestrator.api import Orchestrator, connect
from orchestrator.bench.measure import STEADY, alternate, in_c_or_say, machine, own_server, timed
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.errors import DatabaseError, UsageError

AT_LEAST = 1.7
"""How many times as fast two sessions are on two cores."""

GROUPED = "SELECT grp, sum(n) AS total, count(*) AS rows, avg(n) AS mean FROM jobs_{} GROUP BY grp"

CHANGED = 20
"""One row of so many changes before each refresh."""


def run(
    *,
    views: int = 8,
    rows: int = 200_000,
    jobs: Sequence[int] = (2, 4),
    repeat: int = 5,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Run the benchmark on its own server."""
    if views < 2 or rows < 100 or repeat < 1 or not jobs or min(jobs) < 2:
        raise UsageError(
            "It needs --views of 2 or more, --rows of 100 or more, --jobs of 2 or more and --repeat of 1 or more."
        )
    with own_server(pg, STEADY) as server:
        in_c_or_say(server, "So capture is measured in plpgsql.", say)
        with closing(connect(server.up().dsn)) as orchestrator:
            say(f"creating {views} views over tables of {rows:,} rows")
            for number in range(views):
                _create(orchestrator, number, rows)
            described = machine(orchestrator.connection)
            measured = []
            for count in jobs:
                say(f"refreshing in 1 session and in {count}")
                measured.append(_row(orchestrator, views, count, repeat))
            if not all(report.equal for report in orchestrator.check()):
                raise DatabaseError("A view differs from its query: what was measured is wrong.")
    bars = [
        Bar(f"{row['jobs']} jobs, times as fast as one", row["times as fast"], ">=", AT_LEAST)
        for row in measured
        if row["jobs"] == 2 and (os.cpu_count() or 1) >= 2
    ]
    return Report("jobs", described, tuple(measured), tuple(bars))


def _create(orchestrator: Orchestrator, number: int, rows: int) -> None:
    table = Identifier(f"jobs_{number}")
    orchestrator.connection.execute(
        SQL("CREATE TABLE {} (id int PRIMARY KEY, grp int NOT NULL, n int NOT NULL)").format(table)
    )
    orchestrator.connection.execute(
        SQL("INSERT INTO {} SELECT i, i % {}, i FROM generate_series(1, {}) AS i").format(
            table, Literal(rows // 10), Literal(rows)
        )
    )
    orchestrator.create_view(f"grouped_{number}", GROUPED.format(number))
    orchestrator.connection.execute(SQL("ANALYZE {}").format(table))


def _row(orchestrator: Orchestrator, views: int, jobs: int, repeat: int) -> dict[str, float]:
    """Measure refreshes in one session and in several, in turn."""

    def refreshing(count: int) -> Callable[[], float]:
        def refresh() -> float:
            for number in range(views):
                orchestrator.connection.execute(
                    SQL("UPDATE {} SET n = n + 1 WHERE id % {} = 0").format(
                        Identifier(f"jobs_{number}"), Literal(CHANGED)
                    )
                )
            return timed(lambda: orchestrator.refresh(jobs=count))

        return refresh

    paired = alternate(refreshing(1), refreshing(jobs), repeat)
    alone, together = paired.medians
    return {
        "jobs": jobs,
        "1 job, ms": 1000 * alone,
        "jobs, ms": 1000 * together,
        "times as fast": 1 / paired.ratio,
    }
