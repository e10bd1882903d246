"""Write to tables of shared eager or on_commit views in random orders; no writer may fail.

Each transaction updates a row of its own writer in some of five tables. Each view joins a table
with its neighbor, so two views read each table. Without views, no writer waits for another.
"""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg.sql import SQL, Identifier, Literal

from orchestrator import catalog
from orchestrator.api import Orchestrator, connect
from orchestrator.bench.measure import Paired, alternate, in_c_or_say, machine, own_server
from orchestrator.bench.pgbench import pgbench
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.bench.workload import SCHEMA
from orchestrator.bench.writers import _call
from orchestrator.errors import DatabaseError, UsageError

TABLES = 5
ROWS = 1000
"""Rows of each writer in each table."""

BARE, KEPT = "bare", "kept"
MODES = ("eager", "on_commit")

SLICE = 5
"""The seconds that pgbench stays with one set of tables."""

RATE_AT_LEAST = 0.5

_UPDATE = SQL("UPDATE {} SET n = n + 1 WHERE id = :id;")


def _table(side: str, number: int) -> Identifier:
    return Identifier(SCHEMA, f"{side}{number}")


@dataclass
class _Failures:
    """The number of transactions that failed in PostgreSQL."""

    transactions: int = 0


def run(
    *,
    dsn: str | None = None,
    writers: int = 7,
    statements: int = 2,
    pause: int = 10,
    seconds: float = 20,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Run the benchmark on its own server, or in schema idivm_bench of the database at `dsn`."""
    if writers < 1 or not 1 <= statements <= TABLES or pause < 0 or seconds < 1:
        raise UsageError(
            f"It needs --writers and --seconds of 1 or more, --statements of 1 to {TABLES}, "
            "and --pause of 0 or more."
        )
    if dsn is None:
        with own_server(pg) as server:
            in_c_or_say(server, "So capture is measured in plpgsql.", say)
            return run(
                dsn=server.up().dsn,
                writers=writers,
                statements=statements,
                pause=pause,
                seconds=seconds,
                say=say,
            )
    slices = max(1, round(seconds / SLICE))
    with connect(dsn) as orchestrator, tempfile.TemporaryDirectory() as folder:
        bench = _Bench(orchestrator, Path(folder), dsn, writers, statements, slices, say)
        with bench.tables():
            return bench.report((pause, 0) if pause else (0,))


@dataclass
class _Bench:
    orchestrator: Orchestrator
    folder: Path
    dsn: str
    writers: int
    statements: int
    slices: int
    say: Callable[[str], None]

    def report(self, pauses: tuple[int, ...]) -> Report:
        connection = self.orchestrator.connection
        in_c = catalog.captures_in_c(connection)
        described = {**machine(connection), "capture in": "C" if in_c else "plpgsql"}
        rows: list[dict[str, Any]] = []
        bars: list[Bar] = []
        for mode in MODES:
            failures = _Failures()
            with self._views(mode):
                for pause in pauses:
                    self.say(f"{mode}, a pause of {pause} ms")
                    paired = self._rates(pause, failures)
                    rows.append(_row(mode, pause, paired, failures.transactions))
                    if pause == pauses[0]:
                        bars.append(
                            Bar(
                                f"{mode}: rate with the views / without",
                                paired.ratio,
                                ">=",
                                RATE_AT_LEAST,
                            )
                        )
                if not all(report.equal for report in self.orchestrator.check()):
                    raise DatabaseError(
                        "A view differs from its query: what was measured is wrong."
                    )
            bars.append(Bar(f"{mode}: transactions that fail", failures.transactions, "=", 0))
        return Report("orders", described, tuple(rows), tuple(bars))

    @contextmanager
    def tables(self) -> Iterator[None]:
        """Create the tables that the views will read, and equal tables without views."""
        connection = self.orchestrator.connection
        connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(SCHEMA)))
        try:
            for side, number in itertools.product((BARE, KEPT), range(TABLES)):
                connection.execute(
                    SQL("CREATE TABLE {} (id int PRIMARY KEY, n bigint NOT NULL)").format(
                        _table(side, number)
                    )
                )
                connection.execute(
                    SQL("INSERT INTO {} SELECT i, i FROM generate_series(1, {}) AS i").format(
                        _table(side, number), Literal((self.writers + 1) * ROWS)
                    )
                )
            connection.execute("VACUUM ANALYZE")
            yield
        finally:
            connection.execute(SQL("DROP SCHEMA {} CASCADE").format(Identifier(SCHEMA)))

    @contextmanager
    def _views(self, mode: Any) -> Iterator[None]:
        names = [f"{SCHEMA}.{mode}_{number}" for number in range(TABLES)]
        for number, name in enumerate(names):
            query = SQL(
                "SELECT x.id, x.n AS a, y.n AS b FROM {} x JOIN {} y ON x.id = y.id"
            ).format(_table(KEPT, number), _table(KEPT, (number + 1) % TABLES))
            self.orchestrator.create_view(name, query.as_string(), maintain=mode)
        try:
            yield
        finally:
            for name in names:
                self.orchestrator.drop_view(name)

    def _rates(self, pause: int, failures: _Failures) -> Paired:
        program = pgbench(self.orchestrator.connection.info.server_version // 10_000)

        def side(name: str) -> Callable[[], float]:
            def rate() -> float:
                command = [program, "--no-vacuum", "--protocol=prepared", "--jobs=2"]
                command += [f"--client={self.writers}", f"--time={SLICE}"]
                command += [f"--file={script}" for script in self._scripts(name, pause)]
                said = _call([*command, self.dsn])
                failures.transactions += int(
                    _number(r"^number of failed transactions: (\d+)", said)
                )
                return _number(r"^tps = ([\d.]+)", said)

            return rate

        return alternate(side(BARE), side(KEPT), self.slices)

    def _scripts(self, side: str, pause: int) -> Iterator[Path]:
        """Write a script for each order of the tables; pgbench chooses among them at random."""
        for order in itertools.permutations(range(TABLES), self.statements):
            lines = [f"\\set id :client_id * {ROWS} + random(1, {ROWS})", "BEGIN;"]
            lines += [_UPDATE.format(_table(side, table)).as_string() for table in order]
            lines += ["COMMIT;", *([f"\\sleep {pause} ms"] if pause else [])]
            script = self.folder / f"{side}-{pause}-{'-'.join(map(str, order))}.sql"
            script.write_text("\n".join(lines) + "\n")
            yield script


def _number(pattern: str, said: str) -> float:
    match = re.search(pattern, said, re.MULTILINE)
    assert match is not None, said
    return float(match[1])


def _row(mode: str, pause: int, paired: Paired, failed: int) -> dict[str, Any]:
    bare, kept = paired.medians
    least, most = paired.spread
    return {
        "mode": mode,
        "pause, ms": pause,
        "without views, transactions/s": bare,
        "with views": kept,
        "ratio": paired.ratio,
        "ratios from": least,
        "to": most,
        "failed": failed,
    }
