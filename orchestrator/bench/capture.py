"""Measure what capture costs the writers of a table, and what an idle refresh costs.

The benchmark has identical tables: a bare one, and one under a maintained view for each form of
capture: plpgsql and, where the server supports it, C. Every measurement runs on all tables in turn.
Commits wait for the disk, as in any database whose data matters. The bars apply to the form of
capture that views get on this server. The report also shows the cost of triggers that do almost
nothing.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from psycopg import Connection, sql

from orchestrator import catalog
from orchestrator.api import Orchestrator, connect
from orchestrator.bench.measure import (
    Paired,
    explained,
    in_c_or_say,
    in_turn,
    machine,
    own_server,
    prepare_explained,
    require_durable_commits,
    timed,
)
from orchestrator.bench.pgbench import pgbench, transactions_a_second
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.errors import NameTakenError, UsageError

SCHEMA = "idivm_bench"


@dataclass(frozen=True)
class Side:
    """A table that is measured in turn, and what it carries."""

    table: str
    what: str

    @property
    def name(self) -> sql.Identifier:
        """The name of the table."""
        return sql.Identifier(SCHEMA, self.table)

    @property
    def view(self) -> str:
        """The maintained view that reads the table, if the table is captured."""
        return f"{SCHEMA}.totals_{self.table}"


BARE = Side("bare", "nothing")
IN_PLPGSQL = Side("in_plpgsql", "plpgsql")
IN_C = Side("in_c", "C")
EMPTY = Side("empty", "empty trigger")
CONSTANT = Side("constant", "constant row")

UPDATES_AT_LEAST = 0.9
BULK_UPDATE_AT_MOST = 2.2
BULK_INSERT_AT_MOST = 1.8
IDLE_REFRESH_BELOW = 2.0

MANY_CLIENTS = 4
"""Clients for each core when many clients update at once."""

BULK_RUNS = 3
"""Runs of a bulk statement for each of the much longer runs of single-row updates."""

IDLE_REFRESHES = 50

SLICE = 2
"""Seconds that pgbench stays with one table; a longer disturbance affects both sides."""


@dataclass(frozen=True)
class _Bench:
    """The settings of one run of the benchmark, and where to report progress."""

    orchestrator: Orchestrator
    dsn: str
    seconds: int
    rows: int
    repeat: int
    clients: int
    say: Callable[[str], None]
    forms: tuple[Side, ...]
    """The captured tables; the form of capture that views get on this server comes last."""

    @property
    def judged(self) -> Side:
        """The side to which the bars apply."""
        return self.forms[-1]

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
    """Measure capture on its own server, or in schema idivm_bench of the database at `dsn`.

    The bar applies to one client (or `clients`) whose every commit waits for the disk. The report
    also shows the rate of many clients, which share those waits until the processors are busy.
    """
    clients = 1 if clients is None else clients
    counts = {"rows": rows, "seconds": seconds, "repeat": repeat, "clients": clients}
    for name, value in counts.items():
        if value < 1:
            raise UsageError(f"The benchmark needs --{name} of 1 or more, not {value}.")
    if dsn is None:
        with own_server(pg) as server:
            in_c_or_say(server, "So capture is measured in plpgsql alone.", say)
            own = server.up().dsn
            return run(dsn=own, seconds=seconds, rows=rows, repeat=repeat, clients=clients, say=say)
    with connect(dsn) as orchestrator:
        require_durable_commits(orchestrator.connection)
        with prepare_tables(orchestrator, rows) as forms:
            return _measure(
                _Bench(orchestrator, dsn, round(seconds), rows, repeat, clients, say, forms)
            )


def _measure(bench: _Bench) -> Report:
    described = {**machine(bench.connection), "bars on capture in": bench.judged.what}
    many = MANY_CLIENTS * (os.cpu_count() or 1)
    few_rates = _single_row_updates(bench, bench.clients, (EMPTY, CONSTANT, *bench.forms))
    many_rates = _single_row_updates(bench, many, bench.forms)
    updates = _bulk(bench, "UPDATE", _UPDATE)
    inserts = _bulk(bench, "INSERT", _INSERT, undo=_DELETE)
    after_much, later = _idle_refreshes(bench)
    rows = (
        *_rows(bench, _single_row_name(bench.clients), "transactions/s", few_rates, _UPDATE_ONE),
        *_rows(bench, _single_row_name(many), "transactions/s", many_rates, _UPDATE_ONE),
        *_rows(bench, f"UPDATE of {bench.rows:,} rows", "ms", updates, _UPDATE),
        *_rows(bench, f"INSERT of {bench.rows:,} rows", "ms", inserts, _INSERT),
        _idle_row("idle refresh after a large one", bench.judged, after_much),
        _idle_row("idle refresh later on", bench.judged, later),
    )
    written = after_much.plus(later)
    judged = bench.judged
    bars = (
        Bar(
            "single-row UPDATE, rate with capture / without",
            few_rates[judged].ratio,
            ">=",
            UPDATES_AT_LEAST,
        ),
        Bar(
            "bulk UPDATE, time with capture / without",
            updates[judged].ratio,
            "<=",
            BULK_UPDATE_AT_MOST,
        ),
        Bar(
            "bulk INSERT, time with capture / without",
            inserts[judged].ratio,
            "<=",
            BULK_INSERT_AT_MOST,
        ),
        Bar("idle refresh after a large one, ms", after_much.milliseconds, "<", IDLE_REFRESH_BELOW),
        Bar("idle refresh later on, ms", later.milliseconds, "<", IDLE_REFRESH_BELOW),
        Bar("idle refresh, bytes of WAL", written.wal_bytes, "=", 0),
        Bar("idle refresh, rows written", written.rows_written, "=", 0),
        Bar("idle refresh, transaction numbers used", written.numbers_used, "=", 0),
    )
    return Report("capture", described, rows, bars)


def _single_row_name(clients: int) -> str:
    return f"single-row UPDATE, {clients} client{'' if clients == 1 else 's'}"


def _rows(
    bench: _Bench, name: str, unit: str, measured: Mapping[Side, Paired], form: sql.SQL
) -> Iterator[dict[str, Any]]:
    scale = 1000 if unit == "ms" else 1
    _tidy(bench)
    without = _buffers(bench, form, BARE)
    for side, paired in measured.items():
        bare, captured = paired.medians
        least, most = paired.spread
        yield {
            "measured": name,
            "capture": side.what,
            "unit": unit,
            "without capture": bare * scale,
            "with capture": captured * scale,
            "ratio": paired.ratio,
            "ratios from": least,
            "to": most,
            "buffers without": without,
            "buffers with": _buffers(bench, form, side),
        }


@dataclass(frozen=True)
class _Idle:
    """The work of refreshes that found nothing pending."""

    milliseconds: float
    buffers: int
    wal_bytes: int
    rows_written: int
    numbers_used: int

    def plus(self, other: _Idle) -> _Idle:
        return _Idle(
            *(a + b for a, b in zip(astuple(self), astuple(other), strict=True)),
        )


def _idle_row(name: str, side: Side, idle: _Idle) -> dict[str, Any]:
    return {
        "measured": name,
        "capture": side.what,
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


_TRIGGERS = {
    EMPTY: sql.SQL(
        "CREATE FUNCTION {} RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
    ),
    CONSTANT: sql.SQL(
        "CREATE FUNCTION {} RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN INSERT INTO idivm_bench.log VALUES (1); RETURN NULL; END'"
    ),
}
"""Triggers below any capture: one reads no changes, and the other logs a constant row."""


@contextmanager
def prepare_tables(orchestrator: Orchestrator, rows: int) -> Iterator[tuple[Side, ...]]:
    """Create all tables, each with `rows` rows, and drop them afterwards; yield the captured ones."""
    connection = orchestrator.connection
    schema = sql.Identifier(SCHEMA)
    if connection.execute("SELECT to_regnamespace(%s)", [SCHEMA]).fetchone() != (None,):
        raise NameTakenError(
            f"The database has a schema {SCHEMA} already: drop it (DROP SCHEMA {SCHEMA} CASCADE) "
            "if an earlier measurement left it, or measure in another database."
        )
    forms = (IN_PLPGSQL, IN_C) if catalog.captures_in_c(connection) else (IN_PLPGSQL,)
    try:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
        for side in (BARE, *_TRIGGERS, *forms):
            connection.execute(
                sql.SQL(
                    "CREATE TABLE {} (id integer PRIMARY KEY, kind integer NOT NULL,"
                    " price numeric NOT NULL, note text NOT NULL)"
                ).format(side.name)
            )
            connection.execute(
                sql.SQL(
                    "INSERT INTO {} SELECT n, n % 100, n % 1000, 'note ' || n"
                    " FROM generate_series(1, {}) AS n"
                ).format(side.name, sql.Literal(rows))
            )
            connection.execute(sql.SQL("VACUUM ANALYZE {}").format(side.name))
        connection.execute(
            sql.SQL("CREATE TABLE {} (n integer)").format(sql.Identifier(SCHEMA, "log"))
        )
        for side, function in _TRIGGERS.items():
            call = sql.SQL("{}()").format(side.name)
            connection.execute(function.format(call))
            connection.execute(
                sql.SQL(
                    "CREATE TRIGGER floor AFTER UPDATE ON {}"
                    " REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows"
                    " FOR EACH STATEMENT EXECUTE FUNCTION {}"
                ).format(side.name, call)
            )
        for side in forms:
            setting = "on" if side is IN_C else "off"
            connection.execute("SELECT set_config('idivm.accelerate', %s, false)", [setting])
            query = sql.SQL(
                "SELECT kind, sum(price) AS total, count(*) AS items FROM {} GROUP BY kind"
            ).format(side.name)
            orchestrator.create_view(side.view, query.as_string(connection))
        yield forms
    finally:
        for side in forms:
            orchestrator.drop_view(side.view, if_exists=True)
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(schema))


def _tidy(bench: _Bench) -> None:
    """Bring all tables and logs to the state in which every run begins."""
    bench.orchestrator.refresh(*(side.view for side in bench.forms))
    for side in (BARE, *_TRIGGERS, *bench.forms):
        bench.connection.execute(sql.SQL("VACUUM {}").format(side.name))


def _statement(bench: _Bench, form: sql.SQL, side: Side) -> sql.Composed:
    return form.format(table=side.name, rows=sql.Literal(bench.rows))


def _single_row_updates(bench: _Bench, clients: int, sides: Sequence[Side]) -> dict[Side, Paired]:
    program = pgbench(bench.connection.info.server_version // 10_000)
    with tempfile.TemporaryDirectory() as folder:

        def rate_on(side: Side) -> Callable[[], float]:
            script = Path(folder) / f"{side.table}.sql"
            script.write_text(
                f"\\set id random(1, {bench.rows})\n"
                f"UPDATE {side.name.as_string()} SET price = price + 1 WHERE id = :id;\n"
            )

            def rate() -> float:
                _tidy(bench)
                bench.say(f"{_single_row_name(clients)}, {side.table}")
                return transactions_a_second(
                    program, bench.dsn, script, clients=clients, seconds=min(SLICE, bench.seconds)
                )

            return rate

        slices = max(1, round(bench.seconds / SLICE))
        return _beside_bare(rate_on, sides, bench.repeat * slices)


def _beside_bare(
    measure: Callable[[Side], Callable[[], float]], sides: Sequence[Side], repeat: int
) -> dict[Side, Paired]:
    bare, *others = in_turn([measure(side) for side in (BARE, *sides)], repeat)
    return {side: Paired(bare, runs) for side, runs in zip(sides, others, strict=True)}


def _bulk(
    bench: _Bench, name: str, form: sql.SQL, undo: sql.SQL | None = None
) -> dict[Side, Paired]:
    def time_on(side: Side) -> Callable[[], float]:
        def run_once() -> float:
            _tidy(bench)
            bench.say(f"{name} of {bench.rows:,} rows, {side.table}")
            statement = _statement(bench, form, side)
            taken = timed(lambda: bench.connection.execute(statement))
            if undo is not None:
                bench.connection.execute(_statement(bench, undo, side))
            return taken

        return run_once

    return _beside_bare(time_on, bench.forms, BULK_RUNS * bench.repeat)


def _buffers(bench: _Bench, form: sql.SQL, side: Side) -> int:
    """Return the pages that a statement touches, and roll the statement back."""
    statement = _statement(bench, form, side).as_string(bench.connection)
    # The first run in a session also reads the catalog and compiles the triggers.
    return [_rolled_back(bench.connection, statement) for _ in range(2)][-1]


def _rolled_back(connection: Connection[Any], statement: str) -> int:
    with connection.transaction(force_rollback=True):
        return explained(connection, statement).buffers


def _idle_refreshes(bench: _Bench) -> tuple[_Idle, _Idle]:
    """Measure idle refreshes right after a large refresh, when the log is full, and later."""
    bench.say("idle refresh")
    prepare_explained(bench.connection)
    bench.connection.execute(_statement(bench, _UPDATE, bench.judged))
    bench.orchestrator.refresh(bench.judged.view)
    after_much = _idle_refresh(bench)
    bench.orchestrator.refresh(bench.judged.view)
    return after_much, _idle_refresh(bench)


def _idle_refresh(bench: _Bench) -> _Idle:
    statement = sql.SQL("SELECT * FROM idivm.refresh({})").format(sql.Literal(bench.judged.view))
    text = statement.as_string(bench.connection)
    explained(bench.connection, text)
    with bench.connection.transaction():
        before = _written(bench.connection)
        runs = [explained(bench.connection, text) for _ in range(IDLE_REFRESHES)]
        after = _written(bench.connection)
    return _Idle(
        milliseconds=statistics.median(item.milliseconds for item in runs),
        buffers=max(item.buffers for item in runs),
        wal_bytes=sum(item.wal_bytes for item in runs),
        rows_written=after[0] - before[0],
        numbers_used=after[1],
    )


def _written(connection: Connection[Any]) -> tuple[int, int]:
    """Return the rows that this session has written, and whether its transaction has a number."""
    row = connection.execute(
        "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint,"
        " (pg_current_xact_id_if_assigned() IS NOT NULL)::integer FROM pg_stat_xact_all_tables"
    ).fetchone()
    assert row is not None
    return row[0], row[1]
