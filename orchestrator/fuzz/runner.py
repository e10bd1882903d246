"""Runs a case against a database and compares every view with the oracle."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import Connection, IsolationLevel
from psycopg.pq import TransactionStatus
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.api import Orchestrator, connect
from orchestrator.errors import IdivmError, UnsupportedError
from orchestrator.fuzz.case import (
    Case,
    Crash,
    Late,
    LateEnd,
    Recreate,
    Refresh,
    Replace,
    Statement,
    Step,
    Transaction,
    View,
)
from orchestrator.fuzz.leftovers import kept_objects
from orchestrator.fuzz.options import MODES
from orchestrator.fuzz.outcome import CaseError, Failure, NoAnswerError, Outcome, code_of, failed
from orchestrator.runtime.check import compare

_LOCKED = ("55P03", "40P01", "40001")
"""What a statement may meet while the second connection holds locks: no lock, or no order."""

_PATIENCE = "30s"
"""A statement that takes longer hangs."""


class Runner:
    """A database of its own to run cases in, one after the other."""

    def __init__(self, dsn: str) -> None:
        """Takes a database in which nothing but idivm's catalog is kept, if that."""
        self.dsn = dsn
        self.outcome = Outcome()
        self.views: dict[str, View] = {}
        self.lock_timeout = "0"
        self._open()

    def _open(self) -> None:
        self.orc = connect(self.dsn)
        self.writer = self._connection()
        self.second = self._connection()
        for connection in (self.orc.connection, self.writer, self.second):
            self._settle(connection)
        self.objects = kept_objects(self.orc.connection)

    def _connection(self) -> Connection[Any]:
        return psycopg.connect(self.dsn, autocommit=True)

    def _settle(self, connection: Connection[Any]) -> None:
        connection.execute("SET synchronous_commit = off")
        connection.execute(SQL("SET lock_timeout = {}").format(Literal(self.lock_timeout)))
        connection.execute(SQL("SET statement_timeout = {}").format(Literal(_PATIENCE)))

    def close(self) -> None:
        """Closes all connections."""
        for connection in (self.writer, self.second, self.orc.connection):
            connection.close()

    def run(self, case: Case) -> Outcome:
        """Runs a case and leaves the database as it was before."""
        self.outcome = Outcome()
        self.outcome.counts["cases"] += 1
        self.views = {}
        self.lock_timeout = "0"
        step: int | None = None
        try:
            self._set_up(case)
            for step, action in enumerate(case.steps):
                self._take(step, action)
            step = None
            self._finish(case)
        except NoAnswerError:
            self.outcome.counts["abandoned"] += 1
        except CaseError as error:
            self.outcome.failure = Failure(error.kind, error.code, str(error), step)
        finally:
            self._clean(case)
        return self.outcome

    # Setting up ---------------------------------------------------------------------------------

    def _set_up(self, case: Case) -> None:
        """What PostgreSQL refuses here is left out: a shrunken case may miss what it builds on."""
        for schema in case.schemas:
            self._try(SQL("CREATE SCHEMA {}").format(Identifier(schema)))
        for statement in case.types:
            self._try(SQL(statement))
        for table in case.tables:
            for statement in table.ddl:
                self._try(SQL(statement))
        for table in case.tables:
            if table.rows:
                rows = SQL(", ").join(SQL(row) for row in table.rows)
                self._try(SQL("{} {}").format(SQL(table.insert), rows))
        for view in case.views:
            self._create(view)

    def _try(self, statement: SQL | Composed) -> None:
        try:
            self.writer.execute(statement)
        except psycopg.Error as error:
            self.outcome.counts["setup failed"] += 1
            self.outcome.refused[(-1, self.outcome.counts["setup failed"])] = str(error)

    def _create(self, view: View, replace: bool = False) -> None:
        if not self._valid(view):
            self.outcome.counts["views refused by PostgreSQL"] += 1
            return
        if view.plain:
            self.writer.execute(_plain_view(view))
            return
        try:
            self._create_maintained(view, replace)
        except UnsupportedError as error:
            strategy = dict(view.options).get("strategy", "auto")
            if strategy == "auto":
                raise failed("create", error) from error
            self.outcome.counts[f"unsupported by {strategy}"] += 1
            options = {**dict(view.options), "strategy": "auto"}
            self._create_maintained(View(view.name, view.query, tuple(options.items())), replace)
        self.views[view.name] = view
        self._compare([view.name])

    def _create_maintained(self, view: View, replace: bool) -> None:
        options: dict[str, object] = dict(view.options)
        try:
            info = self.orc.create_view(
                view.name, view.query, columns=view.columns, replace=replace, **options
            )
        except UnsupportedError:
            raise
        except IdivmError as error:
            raise failed("replace" if replace else "create", error) from error
        self.outcome.counts["views"] += 1
        self.outcome.counts[f"views by {info.strategy}"] += 1

    def _valid(self, view: View) -> bool:
        """Whether PostgreSQL itself takes the view and answers it soon."""
        try:
            with self.writer.transaction(force_rollback=True):
                self.writer.execute("SET LOCAL statement_timeout = '1s'")
                self.writer.execute(SQL("DROP VIEW IF EXISTS {}").format(SQL(view.name)))
                self.writer.execute(_plain_view(view))
                self.writer.execute(SQL("SELECT v::text FROM {} AS v").format(SQL(view.name)))
        except psycopg.Error as error:
            self.outcome.refused[(-2, len(self.outcome.refused))] = f"{error}\n{view.query}"
            return False
        return True

    # Steps --------------------------------------------------------------------------------------

    def _take(self, number: int, step: Step) -> None:
        if isinstance(step, Transaction):
            self._transaction(number, step)
        elif isinstance(step, Refresh):
            self._refresh(step)
        elif isinstance(step, Replace):
            if step.view.name in self.views:
                self._create(step.view, replace=True)
        elif isinstance(step, Recreate):
            if step.view.name in self.views and self._valid(step.view):
                self._drop(step.view.name)
                self._create(step.view)
        elif isinstance(step, Late):
            self._late(number, step)
        elif isinstance(step, LateEnd):
            self._late_end(step.end)
        elif isinstance(step, Crash):
            self._crash(step)

    @property
    def late(self) -> bool:
        """Whether the second connection has a transaction open."""
        return self.second.info.transaction_status != TransactionStatus.IDLE

    def _transaction(self, number: int, step: Transaction) -> None:
        self.writer.execute(SQL("BEGIN ISOLATION LEVEL {}").format(SQL(step.isolation)))
        savepoint = False
        for at, statement in enumerate(step.statements):
            if statement.refreshes and statement.refreshes not in self.views:
                continue
            if self._statement(self.writer, statement, (number, at)):
                savepoint = statement.savepoint(savepoint)
            elif savepoint:
                self.writer.execute("ROLLBACK TO SAVEPOINT sp")
            else:
                break
        if step.end == "crash":
            pid = self.writer.info.backend_pid
            self.orc.connection.execute("SELECT pg_terminate_backend(%s)", [pid])
            self._await_end(pid)
            self.writer.close()
            self.writer = self._connection()
            self._settle(self.writer)
        elif self.writer.info.transaction_status == TransactionStatus.INERROR:
            self.writer.execute("ROLLBACK")
        else:
            self._end(self.writer, step.end)

    def _end(self, connection: Connection[Any], end: str) -> None:
        """Ends a transaction; a deferred constraint may still refuse it."""
        try:
            connection.execute("COMMIT" if end == "commit" else "ROLLBACK")
        except psycopg.Error as error:
            self._tolerable("commit", error)
            return
        if end == "commit":
            self.outcome.counts["batches"] += 1
            self._compare([name for name, view in self.views.items() if MODES[view.mode]])

    def _statement(
        self, connection: Connection[Any], statement: Statement, place: tuple[int, int]
    ) -> bool:
        self.outcome.counts["statements"] += 1
        try:
            if statement.copy is not None:
                with connection.cursor().copy(SQL(statement.sql)) as copying:
                    copying.write(statement.copy)
            else:
                connection.execute(SQL(statement.sql))
        except psycopg.Error as error:
            self.outcome.refused[place] = str(error)
            self.outcome.counts["statements refused"] += 1
            self._tolerable("refresh inside" if statement.refreshes else "capture", error)
            return False
        if statement.refreshes:
            self.outcome.counts["refreshes"] += 1
            self._compare_within(connection, [statement.refreshes])
        return True

    def _tolerable(self, kind: str, error: psycopg.Error) -> None:
        """Passes over what users' statements may run into, and raises what idivm brought about."""
        if error.sqlstate in _LOCKED and self.late:
            return
        within = error.diag.context or ""
        if kind == "refresh inside" or "idivm" in within or error.sqlstate in (None, "57014"):
            if kind == "refresh inside":
                if self.writer.info.transaction_status == TransactionStatus.INERROR:
                    self.writer.execute("ROLLBACK")
                self._answers()
            raise failed(kind, error)

    def _refresh(self, step: Refresh) -> None:
        names = [name for name in step.views if name in self.views]
        if step.views and not names:
            return
        unequal: list[str] = []
        try:
            if step.how == "call":
                self.orc.connection.execute(
                    SQL("CALL idivm.refresh_all({})").format(
                        SQL(", ").join(Literal(name) for name in names)
                    )
                )
            elif step.how == "check":
                unequal = [report.view for report in self.orc.check(*names) if not report.equal]
            else:
                self.orc.refresh(*names)
        except (IdivmError, psycopg.Error) as error:
            if code_of(error) in _LOCKED and self.late:
                return
            self._answers()
            raise failed(f"refresh by {step.how}", error) from error
        self.outcome.counts["refreshes"] += 1
        self._compare(names or list(self.views))
        if unequal:
            raise CaseError("check", "", f"check says that {unequal} differ, the oracle does not")

    def _answers(self) -> None:
        """Raises `NoAnswerError` if the query of a view raises an error by itself."""
        for name in self.views:
            try:
                self.writer.execute(
                    SQL("SELECT d::text FROM {} AS d").format(self._definition(name))
                )
            except psycopg.Error as error:
                raise NoAnswerError(str(error)) from error

    def _late(self, number: int, step: Late) -> None:
        if self.late:
            return
        self.second.execute("BEGIN")
        for at, statement in enumerate(step.statements):
            if not self._statement(self.second, statement, (number, at)):
                self.second.execute("ROLLBACK")
                return
        self._wait_for_locks("50ms")

    def _late_end(self, end: str) -> None:
        if self.late:
            self._end(self.second, end)
            self._wait_for_locks("0")

    def _wait_for_locks(self, at_most: str) -> None:
        """While the second connection holds locks, nobody is to wait for them long."""
        self.lock_timeout = at_most
        for connection in (self.orc.connection, self.writer):
            self._settle(connection)

    def _crash(self, step: Crash) -> None:
        """Cuts a refresh or a creation short; it may have come to its end before."""
        self.outcome.counts["crashes"] += 1
        with connect(self.dsn) as victim:
            pid = victim.connection.info.backend_pid
            self._settle(victim.connection)
            if step.how == "timeout":
                victim.connection.execute(
                    SQL("SET statement_timeout = {}").format(Literal(max(1, step.milliseconds)))
                )
                self._cut(step, victim)
            else:
                thread = threading.Thread(target=self._cut, args=(step, victim))
                thread.start()
                thread.join(step.milliseconds / 1000)
                self.writer.execute("SELECT pg_terminate_backend(%s)", [pid])
                thread.join()
        self._await_end(pid)

    def _cut(self, step: Crash, victim: Orchestrator) -> None:
        with suppress(IdivmError, psycopg.Error):
            if step.view is None:
                victim.refresh()
            elif step.view.name in self.views:
                options: dict[str, object] = dict(step.view.options)
                victim.create_view(
                    step.view.name,
                    step.view.query,
                    columns=step.view.columns,
                    replace=True,
                    **options,
                )

    def _await_end(self, pid: int) -> None:
        """Waits until a backend has given up its locks."""
        gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %s"
        tick = threading.Event()
        while self.orc.connection.execute(gone, [pid]).fetchone() != (True,):
            tick.wait(0.001)

    # Comparing ----------------------------------------------------------------------------------

    def _definition(self, name: str) -> SQL:
        row = self.orc.connection.execute(
            SQL("SELECT definition::text FROM idivm.views WHERE relation = {}::regclass").format(
                Literal(name)
            )
        ).fetchone()
        if row is None:
            raise CaseError("catalog", "", f"idivm does not know the view {name}")
        return SQL(row[0])

    def _compare(self, names: Iterable[str]) -> None:
        connection = self.orc.connection
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        try:
            with connection.transaction():
                self._compare_within(connection, names)
        finally:
            connection.isolation_level = None

    def _compare_within(self, connection: Connection[Any], names: Iterable[str]) -> None:
        for name in names:
            definition = self._definition(name)
            try:
                result = compare(connection, view=SQL(name), definition=definition)
            except psycopg.Error as error:
                if connection.info.transaction_status == TransactionStatus.INERROR:
                    connection.execute("ROLLBACK")
                self._answers()
                raise failed("compare", error) from error
            self.outcome.counts["comparisons"] += 1
            if not result.equal:
                lines = [
                    f"{name}: {result.missing} rows missing, {result.surplus} rows too many",
                    *(f"  missing  {row}" for row in result.missing_samples),
                    *(f"  surplus  {row}" for row in result.surplus_samples),
                ]
                raise CaseError("difference", "", "\n".join(lines))

    # The end ------------------------------------------------------------------------------------

    def _drop(self, name: str) -> None:
        try:
            self.orc.drop_view(name)
        except IdivmError as error:
            raise failed("drop", error) from error
        del self.views[name]

    def _finish(self, case: Case) -> None:
        self._late_end("commit")
        self._refresh(Refresh((), "api"))
        for name in self.views:
            row = self.orc.connection.execute(
                SQL("SELECT EXISTS (SELECT FROM {})").format(SQL(name))
            ).fetchone()
            self.outcome.counts["views with rows"] += row == (True,)
        for view in reversed(case.views):
            if view.plain:
                with suppress(psycopg.Error):
                    self.writer.execute(SQL("DROP VIEW {}").format(SQL(view.name)))
            elif view.name in self.views:
                self._drop(view.name)
        # Creations that were cut short are left to the sweep.
        self.orc.connection.execute("SELECT idivm.sweep()")
        left = kept_objects(self.orc.connection) - self.objects
        if left:
            raise CaseError(
                "leftover", "", "left after all views were dropped: " + ", ".join(sorted(left))
            )

    def _clean(self, case: Case) -> None:
        if self.outcome.failure is None and not self.outcome.counts["abandoned"]:
            self._late_end("rollback")
            self._drop_schemas(self.orc.connection, case.schemas)
            return
        self.close()
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            mine = connection.execute(
                "SELECT nspname FROM pg_namespace WHERE nspname = 'idivm' OR nspname LIKE 'idivm\\_%'"
            ).fetchall()
            self._drop_schemas(connection, [*case.schemas, *(row[0] for row in mine)])
        self._open()

    @staticmethod
    def _drop_schemas(connection: Connection[Any], schemas: Iterable[str]) -> None:
        with connection.transaction():
            connection.execute("SET LOCAL client_min_messages = warning")
            for schema in schemas:
                connection.execute(
                    SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(Identifier(schema))
                )


def _plain_view(view: View) -> Composed:
    columns: Composable = SQL("")
    if view.columns is not None:
        columns = SQL(" ({})").format(SQL(", ").join(map(Identifier, view.columns)))
    return SQL("CREATE VIEW {}{} AS {}").format(SQL(view.name), columns, SQL(view.query))
