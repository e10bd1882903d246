"""The database of a runner: its connections, and the comparison of views with their definitions."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import psycopg
from psycopg import Connection, IsolationLevel
from psycopg.errors import InsufficientPrivilege
from psycopg.pq import TransactionStatus
from psycopg.sql import SQL, Composed, Identifier, Literal
from psycopg.types.json import Jsonb

from orchestrator.api import connect
from orchestrator.catalog.objects import is_shown
from orchestrator.catalog.wal import PUBLICATION
from orchestrator.fuzz.case import Case, View
from orchestrator.fuzz.leftovers import kept_objects
from orchestrator.fuzz.outcome import CaseError, NoAnswerError, failed
from orchestrator.fuzz.plainly import plain_view
from orchestrator.fuzz.steps.times import as_of, clock
from orchestrator.runtime.diagnosis.answers import against, check_view
from orchestrator.runtime.diagnosis.check import CheckResult
from orchestrator.strategies.idiff import first_rows

_PATIENCE = 30
"""The seconds after which a statement counts as hanging, unless PostgreSQL itself is as slow."""

SLOW = "300ms"
"""Views over a query that takes longer in plain PostgreSQL may take any time."""

PREPARED = "idivm fuzz"
"""The name of the second connection's prepared transaction."""


def drop_relation(connection: Connection[Any], name: str) -> Composed:
    """Return the plain statement that drops the relation that users read, a view or a table."""
    row = connection.execute(
        "SELECT FROM pg_class WHERE oid = to_regclass(%s) AND relkind = 'r'", [name]
    ).fetchone()
    return SQL("DROP {} IF EXISTS {}").format(SQL("VIEW" if row is None else "TABLE"), SQL(name))


def _column_names(connection: Connection[Any]) -> dict[tuple[int, int], str]:
    """Return the name of each column of the user's tables, by the table and the column's number."""
    rows = connection.execute(
        "SELECT a.attrelid::int8, a.attnum, a.attname FROM pg_attribute a"
        " JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped"
        " AND n.nspname !~ '^(pg|idivm|information_schema)'"
    )
    return {(table, number): name for table, number, name in rows}


ASKED = Identifier("idivm_def", "asked")
"""A view that exists during a comparison: the query of a view as of a time."""


def _require_equal(name: str, result: CheckResult) -> None:
    if not result.equal:
        lines = [
            f"{name}: {result.missing} rows missing, {result.surplus} rows too many",
            *(f"  missing  {row}" for row in result.missing_samples),
            *(f"  surplus  {row}" for row in result.surplus_samples),
        ]
        raise CaseError("difference", "", "\n".join(lines))


class Workspace:
    """An orchestrator, a writer, and a second connection for transactions that stay open."""

    def __init__(self, dsn: str) -> None:
        """Connect to a database that contains nothing, or only idivm's catalog."""
        self.dsn = dsn
        self.lock_timeout = "0"
        self.prepared = False
        self.in_time = 0
        """How many comparisons took the time of the case."""
        self._open()

    def _open(self) -> None:
        self.views: Mapping[str, View] = {}
        """The views of the case at hand, as their queries are now."""
        self.time = ""
        self._known: dict[tuple[str, str], dict[tuple[int, int], str]] = {}
        """The names of the tables' columns when a view's query was first compared."""
        self.orc = connect(self.dsn)
        self.configure(self.orc.connection)
        self.writer = self.connection()
        self.second = self.connection()
        self.objects = kept_objects(self.orc.connection)

    def connection(self, settings: Sequence[str] = ()) -> Connection[Any]:
        """Open another connection with its own settings."""
        opened: Connection[Any] = psycopg.connect(self.dsn, autocommit=True)
        self.configure(opened, settings)
        return opened

    def configure(self, connection: Connection[Any], settings: Sequence[str] = ()) -> None:
        """Configure a connection for speed, with limits on the time of statements and locks."""
        for setting in (
            *settings,
            "SET synchronous_commit = off",
            f"SET statement_timeout = '{_PATIENCE}s'",
            f"SET lock_timeout = '{self.lock_timeout}'",
        ):
            connection.execute(SQL(setting))
        # Only a superuser may set this; for others, PostgreSQL takes a second to find a deadlock.
        with suppress(InsufficientPrivilege):
            connection.execute("SET deadlock_timeout = '20ms'")

    @staticmethod
    @contextmanager
    def patient(connection: Connection[Any]) -> Iterator[None]:
        """Cancel a commit that takes too long, because statement_timeout does not apply to commits."""
        timer = threading.Timer(_PATIENCE, connection.cancel)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def close(self) -> None:
        """Close all connections."""
        for connection in (self.writer, self.second, self.orc.connection):
            connection.close()

    def new_writer(self, settings: Sequence[str]) -> None:
        """Replace the writer by one whose settings differ from those of the views' creator."""
        self.writer.close()
        self.writer = self.connection(settings)

    def kill(self, connection: Connection[Any]) -> None:
        """Terminate a connection's backend, and wait until it has released its locks."""
        pid = connection.info.backend_pid
        self.terminate(pid)
        self.await_end(pid)
        connection.close()

    def terminate(self, pid: int) -> None:
        """Terminate a backend.

        PostgreSQL reads the backend's owner without a lock. If the backend has just ended,
        PostgreSQL may see its slot as owned by nobody and refuse.
        """
        own = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND usename = current_user"
        while self.orc.connection.execute(own, [pid]).fetchone() != (0,):
            with suppress(InsufficientPrivilege):
                self.orc.connection.execute("SELECT pg_terminate_backend(%s)", [pid])
                return

    def await_end(self, pid: int) -> None:
        """Wait until the backend has ended."""
        gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %s"
        tick = threading.Event()
        while self.orc.connection.execute(gone, [pid]).fetchone() != (True,):
            tick.wait(0.001)

    # The time ------------------------------------------------------------------------------------

    def begin_at(self, case: Case) -> None:
        """Take the time and the time zone of a case."""
        self._known = {}
        if case.time != self.time:
            self.move_to(case.time)
        zone = Literal(case.zone) if case.zone else SQL("DEFAULT")
        self.orc.connection.execute(SQL("SET TimeZone = {}").format(zone))

    def move_to(self, time: str) -> None:
        """Let idivm take a time for the current time; without a time, the server's."""
        self.orc.connection.execute(clock(time))
        self.time = time

    # The open transaction ------------------------------------------------------------------------

    @property
    def late(self) -> bool:
        """Whether the second connection has an open or prepared transaction."""
        return self.prepared or self.second.info.transaction_status != TransactionStatus.IDLE

    def prepare_late(self) -> None:
        """Prepare the second connection's transaction for commit, if the server allows it."""
        allowed = self.second.execute("SHOW max_prepared_transactions").fetchone()
        if allowed != ("0",):
            self.second.execute(SQL("PREPARE TRANSACTION {}").format(Literal(PREPARED)))
            self.prepared = True

    def end_late(self, end: str) -> None:
        """End the second connection's transaction; raise PostgreSQL's error if it fails."""
        suffix = SQL(" PREPARED {}").format(Literal(PREPARED)) if self.prepared else SQL("")
        verb = SQL("COMMIT" if end == "commit" else "ROLLBACK")
        self.prepared = False
        self.second.execute(SQL("{}{}").format(verb, suffix))

    def wait_for_locks(self, at_most: str) -> None:
        """Limit how long others wait for locks while the second connection holds some."""
        self.lock_timeout = at_most
        for connection in (self.orc.connection, self.writer):
            connection.execute(SQL("SET lock_timeout = {}").format(Literal(at_most)))

    # Comparison ----------------------------------------------------------------------------------

    def compare(self, names: Sequence[str]) -> int:
        """Compare views with their definitions in one snapshot; return the number of views."""
        connection = self.orc.connection
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        try:
            with connection.transaction():
                self.compare_within(connection, names)
        except psycopg.Error as error:
            self.need_answers(names)
            raise failed("compare", error) from error
        finally:
            connection.isolation_level = None
        return len(names)

    def compare_within(self, connection: Connection[Any], names: Iterable[str]) -> None:
        """Compare views with their definitions in the open transaction of a connection."""
        for name in names:
            number, _, settings, has_clock = self._definition(name)
            connection.execute(
                "SELECT set_config(key, value, true) FROM jsonb_each_text(%s)", [Jsonb(settings)]
            )
            _require_equal(name, check_view(connection, SQL(name), number))
            if not is_shown(connection, number):
                text = f"{name}: refreshes take its relation for one that plain SQL replaced"
                raise CaseError("difference", "", text)
            if has_clock and self.time and name in self.views:
                self._compare_in_time(connection, self.views[name])

    def _compare_in_time(self, connection: Connection[Any], view: View) -> None:
        """Compare a view with its query for the time of the case, whatever the view's clock says.

        A step may swap the names of two columns; then the text of the query asks for something else.
        """
        names = _column_names(connection)
        known = self._known.setdefault((view.name, view.query), names)
        if any(names.get(column, name) != name for column, name in known.items()):
            return
        query = dataclasses.replace(
            view, name=ASKED.as_string(None), query=as_of(view.query, self.time)
        )
        with connection.transaction(force_rollback=True):
            try:
                with connection.transaction():
                    connection.execute(plain_view(query))
            except (psycopg.ProgrammingError, psycopg.DataError):
                # Something that the query reads has another name for a few steps.
                return
            result = against(connection, SQL(view.name), ASKED, "the query")
            self.in_time += 1
        _require_equal(f"{view.name} at {self.time}", result)

    def need_answers(self, names: Iterable[str], within: Connection[Any] | None = None) -> None:
        """Raise `NoAnswerError` if the query of a view fails or takes long, alone or in a transaction."""
        with nullcontext(within) if within else self.connection() as connection:
            connection.execute(SQL("SET statement_timeout = {}").format(Literal(SLOW)))
            for name in names:
                _, definition, *_ = self._definition(name)
                try:
                    connection.execute(SQL("SELECT d::text FROM {} AS d").format(definition))
                except psycopg.Error as error:
                    raise NoAnswerError(str(error)) from error

    def is_gone(self, name: str) -> bool:
        """Return whether a view was dropped, or a table that users read as a view, or a view above one."""
        # Such a table stays until idivm finds that its definition is gone; the views above it stay as long.
        gone = self.writer.execute(
            "WITH RECURSIVE lost (relation) AS ("
            " SELECT v.relation FROM idivm.views v"
            " WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = v.definition)"
            " UNION SELECT coalesce(v.relation, r.ev_class) FROM lost"
            " JOIN pg_catalog.pg_depend d ON d.refobjid = lost.relation"
            "  AND d.classid = 'pg_catalog.pg_rewrite'::regclass"
            " JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid"
            " LEFT JOIN idivm.views v ON v.definition = r.ev_class)"
            " SELECT to_regclass(%(name)s) IS NULL"
            " OR EXISTS (SELECT FROM lost WHERE relation = to_regclass(%(name)s))",
            {"name": name},
        ).fetchone()
        return gone == (True,)

    def definitions(self, names: Iterable[str]) -> list[SQL]:
        """Return the queries of views, each as a relation."""
        return [self._definition(name)[1] for name in names]

    def contents(self) -> dict[int, tuple[int, int]]:
        """Return the tables that hold the contents of views and the numbers of columns that they have had, by the
        numbers of the views.
        """
        rows = self.orc.connection.execute(
            "SELECT v.id, c.oid::int8, c.relnatts FROM idivm.views v JOIN pg_class c ON c.oid = v.state"
        ).fetchall()
        return {number: (table, columns) for number, table, columns in rows}

    def rows_within(self, connection: Connection[Any], name: str) -> tuple[Any, ...] | None:
        """Return a digest of the rows of a view in the transaction of a connection, or None without an answer."""
        with suppress(psycopg.Error), connection.transaction():
            query = SQL("SELECT count(*), sum(hashtextextended(t::text, 0)) FROM {} AS t")
            return connection.execute(query.format(SQL(name))).fetchone()
        return None

    def number_of(self, name: str) -> int:
        """Return the number of a view, which changes when it is replaced."""
        return self._definition(name)[0]

    def _definition(self, name: str) -> tuple[int, SQL, dict[str, str], bool]:
        row = self.orc.connection.execute(
            SQL(
                "SELECT id, definition::text, settings, has_clock FROM idivm.views"
                " WHERE relation = {}::regclass"
            ).format(Literal(name))
        ).fetchone()
        if row is None:
            raise CaseError("catalog", "", f"idivm does not know the view {name}")
        return row[0], SQL(row[1]), row[2], row[3]

    # Cleaning ------------------------------------------------------------------------------------

    def leftovers(self) -> list[str]:
        """Return the objects of idivm that did not exist at the start."""
        return sorted(kept_objects(self.orc.connection) - self.objects)

    def clean(self, case: Case) -> None:
        """Drop the objects of a case; idivm must have removed its own objects before."""
        with self.orc.connection.transaction():
            self._drop_schemas(self.orc.connection, case.schemas)

    def start_afresh(self, case: Case) -> None:
        """Drop the objects of a case and idivm's catalog, and connect again."""
        self.close()
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            if self.prepared:
                self.prepared = False
                connection.execute(SQL("ROLLBACK PREPARED {}").format(Literal(PREPARED)))
            mine = connection.execute(
                "SELECT nspname FROM pg_namespace WHERE nspname = 'idivm' OR nspname LIKE 'idivm\\_%'"
            ).fetchall()
            with connection.transaction():
                self._drop_schemas(connection, [*case.schemas, *(row[0] for row in mine)])
            connection.execute(SQL("DROP PUBLICATION IF EXISTS {}").format(Identifier(PUBLICATION)))
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
                " WHERE database = current_database()"
            )
        self.lock_timeout = "0"
        self._open()

    @staticmethod
    def _drop_schemas(connection: Connection[Any], schemas: Iterable[str]) -> None:
        connection.execute("SET LOCAL client_min_messages = warning")
        for schema in schemas:
            connection.execute(SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(Identifier(schema)))


@contextmanager
def reserving(reserve: int | None) -> Iterator[None]:
    """Have plans store so many rows beyond needed first rows, also of parts that are known to be small."""
    if reserve is None:
        yield
        return
    before = first_rows.RESERVE, first_rows.SMALL
    first_rows.RESERVE, first_rows.SMALL = str(reserve), 0.0
    try:
        yield
    finally:
        first_rows.RESERVE, first_rows.SMALL = before
