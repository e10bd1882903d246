"""Create up to thousands of views over a few tables, and measure what they cost while little changes.

Creating, listing and refreshing must not take longer because there are other views. At the end, many eager sums
over one table are compared with one of them, and dashboards over one join with and without a stored join.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from psycopg.sql import SQL, Identifier, Literal

from orchestrator.api import Orchestrator, connect
from orchestrator.bench.many.dashboards import REFRESH, SPACE, Dashboards
from orchestrator.bench.measure import STEADY, in_c_or_say, machine, own_server, timed
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.errors import DatabaseError, UsageError

IDLE_AT_MOST = 30.0
CREATION_AT_MOST = 1.2
LIST_BELOW = 1.5
EAGER_AT_MOST = 15.0
SHARED_AT_MOST = 0.25

FIRST = 20
"""The number of the view with whose creation the last ones are compared."""

ROWS = 1_000
"""Rows of each table."""

SAMPLE = 9
"""How many creations or refreshes each median is of."""

EAGER_SAMPLE = 200
"""Updates with eager views. The first quarter is not counted: programs run for the first time."""

GROUPED = "SELECT grp, sum(n) AS total, count(*) AS rows FROM many_{table} WHERE id <> {view} GROUP BY grp"
SUM = "SELECT sum(n) AS total FROM many_eager WHERE id <> {view}"


def run(
    *,
    views: Sequence[int] = (10, 100, 500, 2000),
    tables: int = 50,
    eager: int = 200,
    dashboards: int = 50,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Run the benchmark on its own server."""
    if not views or min(views) < 1 or tables < 1 or eager < 1 or dashboards < 1:
        raise UsageError("It needs --views, --tables and --eager and --dashboards of 1 or more.")
    with own_server(pg, {**STEADY, "max_locks_per_transaction": "512"}) as server:
        in_c_or_say(server, "So the checks of drift are measured in SQL.", say)
        dsn = server.up().dsn
        with closing(connect(dsn)) as orchestrator, closing(connect(dsn)) as serving:
            bench = _Bench(orchestrator, serving, tables, say)
            return bench.report(sorted(views), eager, dashboards)


class _Bench:
    """Create all views in a session, and refresh them in another one, as `idivm serve` does.

    A session keeps the plans of the programs that it runs, and its own DDL statements go through them.
    """

    def __init__(
        self,
        orchestrator: Orchestrator,
        serving: Orchestrator,
        tables: int,
        say: Callable[[str], None],
    ) -> None:
        self.orchestrator = orchestrator
        self.connection = orchestrator.connection
        self.serving = serving
        self.tables = tables
        self.say = say
        self.created: list[float] = []
        """The seconds that each creation took."""
        self.alone = True
        """Whether only the views of a changed table were refreshed."""

    def report(self, sizes: Sequence[int], eager: int, dashboards: int) -> Report:
        """Measure dashboards while there is no other view, then each number of views, then eager views."""
        compared = Dashboards(self.serving, self.say, dashboards)
        own, common = compared.measured(stored=False), compared.measured(stored=True)
        for number in range(self.tables):
            self._table(f"many_{number}")
        rows: list[dict[str, Any]] = []
        for size in sizes:
            self.say(f"creating {size:,} views over {self.tables} tables")
            while len(self.created) < size:
                self.created.append(self._create(len(self.created)))
            rows.append(self._measured(size))
        single, many = self._eager(eager)
        rows.append(
            {"eager sums over one table": eager, "one adds, ms": single, "all add, ms": many}
        )
        rows.extend((own, common))
        if not all(report.equal for report in self.orchestrator.check()):
            raise DatabaseError("A view differs from its query: what was measured is wrong.")
        last = rows[len(sizes) - 1]
        first = self.created[FIRST - SAMPLE // 2 : FIRST + SAMPLE // 2 + 1] or self.created
        most = f"{sizes[-1]:,} views"
        bars = (
            Bar(f"{most}, idle refresh_all, ms", last["idle refresh_all, ms"], "<=", IDLE_AT_MOST),
            Bar(f"{most}, other views refreshed with a table's", 0 if self.alone else 1, "=", 0),
            Bar(
                f"{most}, creating the last / the {FIRST}th",
                last["create, ms"] / 1000 / statistics.median(first),
                "<=",
                CREATION_AT_MOST,
            ),
            Bar(f"{most}, list, s", last["list, s"], "<", LIST_BELOW),
            Bar(f"{eager} eager sums / one", many / single, "<=", EAGER_AT_MOST),
            *(
                Bar(
                    f"{dashboards} dashboards, {what}, stored join / own",
                    common[column] / own[column],
                    "<=",
                    SHARED_AT_MOST,
                )
                for what, column in (("space", SPACE), ("refresh", REFRESH))
            ),
        )
        return Report("many", machine(self.connection), tuple(rows), bars)

    def _table(self, name: str) -> None:
        table = Identifier(name)
        self.connection.execute(
            SQL("CREATE TABLE {} (id int PRIMARY KEY, grp int NOT NULL, n int NOT NULL)").format(
                table
            )
        )
        self.connection.execute(
            SQL("INSERT INTO {} SELECT i, i % 10, i FROM generate_series(1, {}) AS i").format(
                table, Literal(ROWS)
            )
        )
        self.connection.execute(SQL("ANALYZE {}").format(table))

    def _create(self, number: int) -> float:
        query = GROUPED.format(table=number % self.tables, view=number)
        return timed(lambda: self.orchestrator.create_view(f"grouped_{number}", query))

    def _measured(self, size: int) -> dict[str, Any]:
        self.say(f"measuring with {size:,} views")
        self._call()
        idle = statistics.median(self._call() for _ in range(SAMPLE))
        changed = [self._changed(number) for number in range(min(SAMPLE, self.tables, size))]
        listed = statistics.median(timed(self.orchestrator.views) for _ in range(3))
        return {
            "views": size,
            "create, ms": 1000 * statistics.median(self.created[-SAMPLE:]),
            "idle refresh_all, ms": 1000 * idle,
            "one changed table, ms": 1000 * statistics.median(changed),
            "list, s": listed,
        }

    def _call(self) -> float:
        return timed(lambda: self.serving.connection.execute("CALL idivm.refresh_all()"))

    def _changed(self, number: int) -> float:
        """Change a row of a table, refresh all views, and note whether only its views were refreshed."""
        before = self._refreshes()
        self.connection.execute(
            SQL("UPDATE {} SET n = n + 1 WHERE id = {}").format(
                Identifier(f"many_{number}"), Literal(ROWS)
            )
        )
        taken = self._call()
        others = len(range(number, len(self.created), self.tables))
        self.alone = self.alone and self._refreshes() - before == others
        return taken

    def _refreshes(self) -> int:
        row = self.connection.execute(
            "SELECT sum(refreshes)::integer FROM idivm.watermarks"
        ).fetchone()
        assert row is not None
        return int(row[0])

    def _eager(self, count: int) -> tuple[float, float]:
        """Return the milliseconds that one eager sum, and that many, add to an update of one row."""
        self.say(f"creating {count} eager sums over one table")
        self._table("many_eager")
        bare = self._update()
        added = []
        for number in range(count):
            self.orchestrator.create_view(
                f"eager_{number}", SUM.format(view=number), maintain="eager"
            )
            if number in (0, count - 1):
                added.append(1000 * (self._update() - bare))
        return added[0], added[-1]

    def _update(self) -> float:
        """Return the seconds of an update with its commit, which folds its change into shared views."""
        change = "UPDATE many_eager SET n = n + 1 WHERE id = 999"
        # The commit does not wait for the disk, which would hide what the views add.
        self.connection.execute("SET synchronous_commit = off")
        try:
            times = [timed(lambda: self.connection.execute(change)) for _ in range(EAGER_SAMPLE)]
        finally:
            self.connection.execute("RESET synchronous_commit")
        return statistics.median(times[EAGER_SAMPLE // 4 :])


def draw(report: Report, path: Path) -> Path | None:
    """Draw how each cost grows with the number of views."""
    from orchestrator.bench.plot import figure

    rows = [row for row in report.rows if "views" in row]
    measures = ("create, ms", "idle refresh_all, ms", "one changed table, ms", "list, s")

    def drawn(canvas: Any) -> None:
        canvas.suptitle("Many views", fontsize=13)
        for axes, measure in zip(canvas.subplots(1, len(measures)), measures, strict=True):
            axes.plot([row["views"] for row in rows], [row[measure] for row in rows], marker="o")
            axes.set_title(measure, fontsize=9)
            axes.set_xlabel("views")
            axes.set_xscale("log")
            axes.set_ylim(bottom=0)
            axes.grid(linewidth=0.4, color="#dddddd")

    return figure(path, (14, 4), drawn)
