"""The acts of sessions in a case: statements, transactions, refreshes, and possible errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.sql import SQL, Literal

from orchestrator import catalog
from orchestrator.api import Orchestrator
from orchestrator.catalog.search_path import pinned
from orchestrator.errors import DatabaseError, IdivmError, NotFoundError, UsageError
from orchestrator.fuzz import ranked
from orchestrator.fuzz.case import Capture, ReadWal, Statement, Transaction, View
from orchestrator.fuzz.options import MODES
from orchestrator.fuzz.outcome import CaseError, Outcome, code_of, failed
from orchestrator.fuzz.replay import Replicas
from orchestrator.fuzz.script import refresh_statement
from orchestrator.fuzz.workspace import Workspace
from orchestrator.runtime.installation.replanning import follow
from orchestrator.runtime.refresh import read_wal

CONTENDED = ("55P03", "40P01", "40001")
"""Errors of a statement while others hold locks: lock timeout, deadlock, serialization failure."""

_NO_ANSWER = ("21", "22", "53", "54")
"""Classes of errors that a query may raise on some data: cardinality, values, sizes."""

_KEEPING = "idivm.refresh_synchronous"
"""The context of an error that arose while a writer maintained a view."""

_UNSUPPORTED = "0A000"

_OWN_WAL = "whose changes are read from the WAL after the commit"
"""A refresh cannot apply changes of its own transaction that are in the WAL."""

_PRODUCT = re.compile(r'\bidivm(_log|_state|_def)?"?\.')
"""An object of idivm in the context of an error."""


def _no_spark() -> Any:
    raise UsageError("Loads of this case need Spark: give --load.")


class Acts:
    """A workspace, its current views, and the outcome of the run so far."""

    def __init__(self, dsn: str, spark: Callable[[], Any] = _no_spark) -> None:
        """Connect to a database that contains nothing, or only idivm's catalog; `spark` is for loads."""
        self.spark = spark
        self.space = Workspace(dsn)
        self.outcome = Outcome()
        self.views: dict[str, View] = {}
        self.settings: Sequence[str] = ()
        self.replicas = Replicas()
        self.storming = False
        self.unseen = False
        """Whether DDL may have changed views without firing the triggers of their writers."""

    def statements(self, connection: Connection[Any], number: int, step: Transaction) -> bool:
        """Begin a transaction and run its statements; return whether it can be committed."""
        connection.execute(SQL("BEGIN ISOLATION LEVEL {}").format(SQL(step.isolation)))
        savepoint = False
        for at, statement in enumerate(step.statements):
            if statement.refreshes and statement.refreshes not in self.views:
                continue
            if self.statement(connection, statement, (number, at)):
                savepoint = statement.savepoint(savepoint)
            elif savepoint:
                connection.execute("ROLLBACK TO SAVEPOINT sp")
            else:
                return False
        return self.eager_are_right(connection)

    def eager_are_right(self, connection: Connection[Any]) -> bool:
        """Compare eager and on_read views before the commit; return False if other sessions' locks prevent it."""
        if self.storming:
            return True
        try:
            self.space.compare_within(connection, self.in_modes(*self._current("eager", "on_read")))
        except psycopg.Error as error:
            self.tolerate("compare", error)
            return False
        return True

    def _current(self, *modes: str) -> list[str]:
        """Return the modes whose views are right now: after unseen DDL, only those of reads."""
        return [mode for mode in modes if mode == "on_read" or not self.unseen]

    def in_modes(self, *modes: str) -> list[str]:
        """Return the views of these modes."""
        return [name for name, view in self.views.items() if view.mode in modes]

    def commit(self, connection: Connection[Any], commit: Callable[[], object]) -> None:
        """Commit; synchronous views must be right afterwards."""
        try:
            with self.space.patient(connection):
                commit()
        except psycopg.Error as error:
            self.tolerate("commit", error)
            return
        self.outcome.counts["batches"] += 1
        if not self.storming:
            right = (mode for mode, by_itself in MODES.items() if by_itself)
            self.compare(self.in_modes(*self._current(*right)))

    def after_load(self, refreshed: Sequence[str]) -> None:
        """Compare the views that a load refreshed, and the synchronous ones."""
        right = [mode for mode, by_itself in MODES.items() if by_itself]
        same = "SELECT to_regclass(%s) = ANY (SELECT to_regclass(name) FROM unnest(%s::text[]) AS name)"
        ask = self.space.orc.connection.execute
        names = [
            name for name in self.views if ask(same, [name, list(refreshed)]).fetchone() == (True,)
        ]
        self.compare([*dict.fromkeys([*names, *self.in_modes(*self._current(*right))])])

    def statement(
        self, connection: Connection[Any], statement: Statement, place: tuple[int, int]
    ) -> bool:
        """Run a statement; return False if PostgreSQL refused it for a reason outside idivm."""
        self.outcome.counts["statements"] += 1
        try:
            if statement.copy is not None:
                with connection.cursor().copy(SQL(statement.sql)) as copying:
                    copying.write(statement.copy)
            else:
                answer = connection.execute(SQL(statement.sql))
            if statement.refreshes:
                is_done = self._require_refreshed(
                    connection, statement.refreshes, answer.fetchall()
                )
                self.outcome.counts["refreshes"] += 1
                if is_done and not self.storming:
                    self.space.compare_within(connection, [statement.refreshes])
                    self.outcome.counts["comparisons"] += 1
        except psycopg.Error as error:
            self.outcome.refused[place] = str(error)
            self.outcome.counts["statements refused"] += 1
            self.tolerate("refresh inside" if statement.refreshes else "capture", error)
            return False
        return True

    def _require_refreshed(
        self, connection: Connection[Any], view: str, answer: Sequence[tuple[Any, ...]]
    ) -> bool:
        """Raise an error that `idivm.refresh()` reports in its last column while it continues.

        Return False if the view can only be refreshed after the transaction.

        The query may fail as well, for rows that only this transaction sees.
        """
        reasons = [reason for *_, reason in answer if reason is not None]
        if any(_OWN_WAL in reason for reason in reasons):
            self.outcome.counts["left to a refresh after the commit"] += 1
        elif reasons:
            with connection.transaction(force_rollback=True):
                self.space.need_answers([view], connection)
            raise psycopg.errors.ObjectNotInPrerequisiteState("; ".join(reasons))
        return not reasons

    def tolerate(self, kind: str, error: psycopg.Error) -> None:
        """Ignore errors that users' statements may meet, and raise those that idivm caused."""
        if "plans it again" in (error.diag.message_hint or str(error)):
            # A key or a plain view was dropped, and only the orchestrator can plan the view again.
            self.outcome.counts["left to the orchestrator"] += 1
            return
        if error.sqlstate in CONTENDED and (self.space.late or self.storming):
            return
        within = _PRODUCT.search(error.diag.context or "")
        if _KEEPING in (error.diag.context or "") and (error.sqlstate or "")[:2] in _NO_ANSWER:
            # The query of a synchronous view fails after this change, so the change is refused as
            # well.
            return
        if kind == "refresh inside" or error.sqlstate == "57014":
            self.space.need_answers(self.views)
        if kind == "refresh inside" or within or error.sqlstate in (None, "57014"):
            raise failed(kind, error)

    def refreshed(self, orc: Orchestrator, how: str, names: Sequence[str]) -> list[str]:
        """Refresh views in one of the available ways; return those that `check` finds different."""
        self.outcome.counts["refreshes"] += 1
        try:
            return self._refreshed(orc, how, names)
        except (psycopg.errors.ObjectNotInPrerequisiteState, DatabaseError) as error:
            # If SQL alone cannot continue, the orchestrator plans the view again.
            state = getattr(error, "sqlstate", None) or getattr(error.__cause__, "sqlstate", None)
            if state != "55000" or how not in ("call", "sql"):
                raise
            self.outcome.counts["left to the orchestrator"] += 1
            return self._refreshed(orc, "api", names)

    def _refreshed(self, orc: Orchestrator, how: str, names: Sequence[str]) -> list[str]:
        if how == "check":
            # Planning a view again needs locks, which the late transaction may hold.
            return [
                f"{report.view}{f' ({report.error})' if report.error else ''}"
                for report in orc.check(*names)
                if not report.equal and not (report.error and self.space.late)
            ]
        if how == "call":
            listed = SQL(", ").join(Literal(name) for name in names)
            orc.connection.execute(SQL("CALL idivm.refresh_all({})").format(listed))
        elif how == "sql" and (names or self.views):
            orc.execute(refresh_statement(names or self.views))
        else:
            orc.refresh(*names, jobs=2 if how == "jobs" else 1)
        return []

    def capture(self, orc: Orchestrator, step: Capture | ReadWal) -> None:
        """Change from where a table is captured, if idivm does not refuse it, or read the WAL."""
        what = "read" if isinstance(step, ReadWal) else f"capture from {step.way}"
        try:
            if isinstance(step, ReadWal):
                read_wal(orc.connection)
            else:
                orc.capture(step.table, step.way)
            self.outcome.counts[what] += 1
        except (NotFoundError, UsageError):
            self.outcome.counts[f"{what} refused"] += 1
        except (IdivmError, psycopg.Error) as error:
            if code_of(error) == _UNSUPPORTED:
                self.outcome.counts[f"{what} refused"] += 1
                return
            if code_of(error) not in CONTENDED or not (self.space.late or self.storming):
                raise failed(what, error) from error
            self.outcome.counts[f"{what} given up"] += 1

    def planned_again(self, orc: Orchestrator) -> list[str]:
        """Plan views again, as a refresh does first, and return those with another content: readers see it already.

        Readers of a separate table see its rows after the next refresh.
        """
        before = self.space.contents()
        stored = [name for name, view in self.views.items() if view.mode != "on_read"]
        with self.space.connection() as reader:
            # A transaction that has read a view keeps it from being planned again.
            rows = {name: self.space.rows_within(reader, name) for name in stored}
            reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM idivm.views")
            with pinned(orc.connection):
                follow(orc.connection, catalog.view_ids(orc.connection, []))
            after = self.space.contents()
            numbers = {name: self.space.number_of(name) for name in self.views}
            for name in stored:
                old, new = before.get(numbers[name]), after.get(numbers[name])
                if old and new and old[0] == new[0] and old[1] != new[1]:
                    self.outcome.counts["older snapshots"] += 1
                    if rows[name] != (read := self.space.rows_within(reader, name)):
                        text = f"{name}: an older snapshot reads {read} after another plan, {rows[name]} before"
                        raise CaseError("difference", "", text)
        return [
            name
            for name, number in numbers.items()
            if before.get(number) not in (None, after[number])
            and dict(self.views[name].options).get("relation") != "table"
        ]

    def compare(self, names: Sequence[str]) -> None:
        """Compare views with their definitions, and with the replays of their feeds."""
        self.outcome.counts["comparisons"] += self.space.compare(names)
        if not self.storming:
            replayed = self.replicas.follow(self.space.orc.connection, names)
            self.outcome.counts["feeds replayed"] += replayed
            compared = ranked.compare(self.space.orc.connection, names)
            self.outcome.counts["orders compared"] += compared
