"""Run a case against a database and compare every view with its definition."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.sql import SQL, Composed, Identifier, Literal

from orchestrator.api import Orchestrator, connect
from orchestrator.errors import IdivmError, UnsupportedError
from orchestrator.fuzz.acts import CONTENDED, Acts
from orchestrator.fuzz.case import (
    Alone,
    Capture,
    Case,
    Crash,
    Late,
    LateEnd,
    Load,
    ReadWal,
    Recreate,
    Refresh,
    Replace,
    Step,
    Storm,
    Time,
    Transaction,
    View,
)
from orchestrator.fuzz.loads.loading import load
from orchestrator.fuzz.outcome import (
    CaseError,
    Failure,
    NoAnswerError,
    Outcome,
    code_of,
    failed,
)
from orchestrator.fuzz.plainly import plain_view, takes_long
from orchestrator.fuzz.replay import Replicas
from orchestrator.fuzz.script import view_statement
from orchestrator.fuzz.steps import dials
from orchestrator.fuzz.workspace import SLOW, drop_relation, reserving

_TIMED_OUT = "57014"

_DDL = ("ALTER ", "CREATE ", "DROP ")
"""Beginnings of statements that fire no triggers; a view may need the orchestrator afterwards."""

_ANYHOW = {"strategy": "auto", "representation": "listing"}
_ALWAYS = {**_ANYHOW, "maintain": "deferred"}
"""Options with which every view can be maintained."""


class Runner(Acts):
    """Runs cases one after the other in its own database."""

    def close(self) -> None:
        """Close all connections."""
        self.space.close()

    def run(self, case: Case) -> Outcome:
        """Run a case and restore the database."""
        self.outcome = Outcome()
        self.outcome.counts["cases"] += 1
        self.views = self.space.views = {}
        self.space.in_time = 0
        self.replicas = Replicas()
        self.settings = case.settings
        self.tables = [table.name for table in case.tables]
        self.unseen = False
        step: int | None = None
        sound = False
        try:
            self.space.new_writer(self.settings)
            self.space.begin_at(case)
            with reserving(case.reserve):
                self._set_up(case)
                for step, action in enumerate(case.steps):
                    self._take(step, action)
                step = None
                self._finish(case)
            sound = True
        except NoAnswerError:
            self.outcome.counts["abandoned"] += 1
        except CaseError as error:
            self.outcome.failure = Failure(error.kind, error.code, str(error), step)
        except Exception as error:
            self.outcome.failure = Failure("error", code_of(error), str(error), step)
        finally:
            self.outcome.counts["comparisons in time"] += self.space.in_time
            if sound:
                self.space.clean(case)
            else:
                self.space.start_afresh(case)
        failure = self.outcome.failure
        if failure is not None and failure.code == _TIMED_OUT:
            with self.space.connection() as connection:
                if takes_long(connection, case, failure.step, SLOW):
                    self.outcome.failure = None
                    self.outcome.counts["abandoned"] += 1
        return self.outcome

    # Setup ---------------------------------------------------------------------------------------

    def _set_up(self, case: Case) -> None:
        """Set up the case without statements that PostgreSQL refuses; a shrunken case lacks parts."""
        for schema in case.schemas:
            self._try(SQL("CREATE SCHEMA {}").format(Identifier(schema)))
        for statement in (*case.types, *(ddl for table in case.tables for ddl in table.ddl)):
            self._try(SQL(statement))
        for table in case.tables:
            if table.rows:
                rows = SQL(", ").join(SQL(row) for row in table.rows)
                self._try(SQL("{} {}").format(SQL(table.insert), rows))
        for view in case.views:
            self._create(view)

    def _try(self, statement: SQL | Composed) -> None:
        try:
            self.space.writer.execute(statement)
        except psycopg.Error:
            self.outcome.counts["setup refused"] += 1

    def _create(self, view: View, replace: bool = False) -> None:
        if not self._valid(view):
            self.outcome.counts["views refused by PostgreSQL"] += 1
            return
        if view.plain:
            self.space.writer.execute(plain_view(view))
            return
        asked = view
        view, strategy = self._create_maintained(asked, replace)
        self.outcome.created[asked] = view
        self.outcome.counts["views"] += 1
        self.outcome.counts[f"views by {strategy}, {view.mode}"] += 1
        self.views[view.name] = view
        self.compare([view.name])

    def _create_maintained(self, view: View, replace: bool) -> tuple[View, str]:
        """Create a view as requested or, if idivm refuses, with options as close as possible.

        The function returns the view with its final options, and its strategy.
        """
        given = dict(view.options)
        listed = {name: value for name, value in given.items() if name not in ("inputs", "ranked")}
        rest = {name: value for name, value in listed.items() if name != "append_only"}
        wanted = (given, *[listed] * (listed != given), {**rest, **_ANYHOW}, {**rest, **_ALWAYS})
        for number, options in enumerate(wanted):
            configured = dataclasses.replace(view, options=tuple(options.items()))
            try:
                return configured, self._create_once(configured, replace)
            except UnsupportedError as error:
                if number == len(wanted) - 1:
                    raise failed("create", error) from error
                strategy = options.get("strategy", "auto")
                self.outcome.counts[f"refused by {strategy}, {configured.mode}"] += 1
        raise AssertionError

    def _create_once(self, view: View, replace: bool) -> str:
        orc = self.space.orc
        try:
            if len(view.query) % 2:
                orc.execute(view_statement(view, replace))
                return orc.view(view.name).strategy
            options: dict[str, Any] = dict(view.options)
            return orc.create_view(
                view.name, view.query, columns=view.columns, replace=replace, **options
            ).strategy
        except UnsupportedError:
            raise
        except IdivmError as error:
            if str(error).startswith(("append_only names ", "ranked orders by ")):
                # The query does not need the table, or reads another one of the same name; a sum of texts.
                raise UnsupportedError(str(error)) from error
            raise failed("replace" if replace else "create", error) from error

    def _valid(self, view: View) -> bool:
        """Return whether PostgreSQL accepts the view and computes it quickly."""
        writer = self.space.writer
        try:
            with writer.transaction(force_rollback=True):
                writer.execute("SET LOCAL statement_timeout = '1s'")
                writer.execute(drop_relation(writer, view.name))
                writer.execute(plain_view(view))
                writer.execute(SQL("SELECT v::text FROM {} AS v").format(SQL(view.name)))
        except psycopg.Error:
            return False
        return True

    # Steps ---------------------------------------------------------------------------------------

    def _take(self, number: int, step: Step) -> None:
        if isinstance(step, Transaction):
            self._transaction(number, step)
        elif isinstance(step, Refresh):
            self._refresh(step)
        elif isinstance(step, Alone):
            self.unseen |= step.statement.sql.startswith(_DDL)
            self.statement(self.space.writer, step.statement, (number, 0))
            if "CASCADE" in step.statement.sql:
                self._remove_dropped()
        elif isinstance(step, Time):
            self.space.move_to(step.at)
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
        elif isinstance(step, Capture | ReadWal):
            self.capture(self.space.orc, step)
        elif isinstance(step, Storm):
            self._storm(number, step)
        elif isinstance(step, Load):
            load(self, step, self.tables)

    def _transaction(self, number: int, step: Transaction) -> None:
        writer = self.space.writer
        if not self.statements(writer, number, step) or step.end == "rollback":
            writer.execute("ROLLBACK")
        elif step.end == "crash":
            self.space.kill(writer)
            self.space.new_writer(self.settings)
        else:
            self.commit(writer, lambda: writer.execute("COMMIT"))

    def _refresh(self, step: Refresh) -> None:
        names = [name for name in step.views if name in self.views]
        if step.views and not names:
            return
        try:
            if not self.storming and not self.space.late:
                dials.turn(self.space.orc, self.views.values(), self.outcome.counts)
            with self._read_before_and_after():
                if step.how == "api" and not self.storming:
                    self.compare(self.planned_again(self.space.orc))
                unequal = self.refreshed(self.space.orc, step.how, names)
        except (IdivmError, psycopg.Error) as error:
            if code_of(error) in CONTENDED and self.space.late:
                return
            self.space.need_answers(self.views)
            raise failed(f"refresh by {step.how}", error) from error
        if not step.views and step.how != "call":
            self.unseen = False
        self.compare(self._with_group(names) or list(self.views))
        if unequal:
            raise CaseError("check", "", f"check says that {unequal} differ, the oracle does not")

    def _with_group(self, names: Sequence[str]) -> list[str]:
        """Return views and the other members of their refresh groups."""
        group = [name for name, view in self.views.items() if "refresh_group" in dict(view.options)]
        return [*names, *(set(group) - set(names))] if set(group) & set(names) else list(names)

    @contextmanager
    def _read_before_and_after(self) -> Iterator[None]:
        """Compare on_read views before a refresh, and after it in a snapshot that is older than the refresh."""
        views = self.in_modes("on_read")
        if not views or self.storming:
            yield
            return
        self.compare(views)
        with self.space.connection() as reader:
            reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            reader.execute("SELECT FROM idivm.views")
            yield
            # The refresh may collect the logs that this snapshot needs.
            with suppress(psycopg.errors.SerializationFailure):
                self.space.compare_within(reader, views)
            reader.execute("ROLLBACK")

    def _late(self, number: int, step: Late) -> None:
        if self.space.late:
            return
        transaction = Transaction(step.statements)
        if not self.statements(self.space.second, number, transaction):
            self.space.second.execute("ROLLBACK")
            return
        if step.prepared:
            try:
                self.space.prepare_late()
            except psycopg.Error as error:
                self.tolerate("prepare", error)
                return
        self.space.wait_for_locks("50ms")

    def _late_end(self, end: str) -> None:
        if self.space.late:
            self.commit(self.space.second, lambda: self.space.end_late(end))
            self.space.wait_for_locks("0")

    def _crash(self, step: Crash) -> None:
        """Interrupt a refresh or a creation, which may have completed before."""
        self.outcome.counts["crashes"] += 1
        replaced = step.view is not None and step.view.name in self.views and step.view.name
        number = self.space.number_of(replaced) if replaced else 0
        with connect(self.space.dsn) as victim:
            pid = victim.connection.info.backend_pid
            self.space.configure(victim.connection)
            if step.how == "timeout":
                victim.connection.execute(
                    SQL("SET statement_timeout = {}").format(Literal(max(1, step.milliseconds)))
                )
                self._cut(step, victim)
            else:
                thread = threading.Thread(target=self._cut, args=(step, victim))
                thread.start()
                thread.join(step.milliseconds / 1000)
                self.space.terminate(pid)
                thread.join()
        self.space.await_end(pid)
        if step.view is not None and replaced:
            # If the creation completed, the view may have another query and another mode now.
            is_new = self.space.number_of(replaced) != number
            now = step.view if is_new else self.views[replaced]
            options = {**dict(now.options), "maintain": self.space.orc.view(replaced).maintain}
            self.views[replaced] = dataclasses.replace(now, options=tuple(options.items()))

    def _cut(self, step: Crash, victim: Orchestrator) -> None:
        with suppress(IdivmError, psycopg.Error):
            if step.capture is not None:
                victim.capture(step.capture.table, step.capture.way)
            elif step.view is None:
                victim.refresh()
            elif step.view.name in self.views:
                given: dict[str, Any] = dict(step.view.options)
                victim.create_view(
                    step.view.name,
                    step.view.query,
                    columns=step.view.columns,
                    replace=True,
                    **given,
                )

    # Storms --------------------------------------------------------------------------------------

    def _storm(self, number: int, step: Storm) -> None:
        if self.space.late:
            return
        self.outcome.counts["storms"] += 1
        errors: list[CaseError | NoAnswerError] = []

        def guarded(act: Callable[[], None]) -> None:
            try:
                act()
            except (CaseError, NoAnswerError) as error:
                errors.append(error)

        acts: list[Callable[[], None]] = [
            lambda writer=writer: self._stormy_writer(number, writer)  # type: ignore[misc]
            for writer in step.writers
        ]
        acts.append(lambda: self._stormy_refresher(step.refreshes))
        threads = [threading.Thread(target=guarded, args=(act,)) for act in acts]
        self.storming = True
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            self.storming = False
        if errors:
            self.space.need_answers(self.views)
            raise errors[0]
        self._refresh(Refresh())

    def _stormy_writer(self, number: int, transactions: Iterable[Transaction]) -> None:
        with self.space.connection(self.settings) as connection:
            for transaction in transactions:
                if self.statements(connection, number, transaction):
                    end = SQL(transaction.end)
                    self.commit(connection, lambda: connection.execute(end))  # noqa: B023
                else:
                    connection.execute("ROLLBACK")

    def _stormy_refresher(self, refreshes: Iterable[Refresh | Capture | ReadWal]) -> None:
        with connect(self.space.dsn) as orc:
            self.space.configure(orc.connection)
            for refresh in refreshes:
                if isinstance(refresh, Capture | ReadWal):
                    self.capture(orc, refresh)
                    continue
                try:
                    names = [name for name in refresh.views if name in self.views]
                    unequal = self.refreshed(orc, refresh.how, names)
                except (IdivmError, psycopg.Error) as error:
                    # A refresh inside a writer's transaction holds locks and then requests more.
                    if code_of(error) != "40P01":
                        raise failed(f"refresh by {refresh.how} in a storm", error) from error
                else:
                    if unequal:
                        raise CaseError("check in a storm", "", f"check says that {unequal} differ")

    # End -----------------------------------------------------------------------------------------

    def _remove_dropped(self) -> None:
        """Remove the views that DDL with CASCADE has dropped."""
        for name in list(self.views):
            if self.space.is_gone(name):
                self.outcome.counts["views gone by CASCADE"] += 1
                del self.views[name]

    def _drop(self, name: str) -> None:
        try:
            self.space.orc.drop_view(name)
        except IdivmError as error:
            raise failed("drop", error) from error
        del self.views[name]

    def _finish(self, case: Case) -> None:
        self._late_end("commit")
        self._refresh(Refresh())
        connection = self.space.orc.connection
        for name in self.views:
            answer = connection.execute(SQL("SELECT EXISTS (SELECT FROM {})").format(SQL(name)))
            self.outcome.counts["views with rows"] += answer.fetchone() == (True,)
        if case.end == "schemas":
            self.space.clean(case)
        for view in reversed(case.views if case.end != "schemas" else ()):
            if view.plain or case.end == "sql":
                connection.execute(drop_relation(connection, view.name))
                connection.execute("SELECT idivm.drop_orphans()")
            elif view.name in self.views:
                self._drop(view.name)
        # `drop_orphans` removes the rest of views dropped with their schemas, and of interrupted
        # creations.
        connection.execute("SELECT idivm.drop_orphans()")
        for dropped in self.space.orc.dropped_views():
            self.space.orc.drop_view(dropped.name)
        left = self.space.leftovers()
        if left:
            raise CaseError("leftover", "", f"left after all views were dropped: {', '.join(left)}")
