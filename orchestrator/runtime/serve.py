"""Keep deferred views fresh: look for changes, and refresh each view within its staleness bound.

One short query over all logs finds changes by the numbers of statements, a few times within the smallest bound.
Writers do not use NOTIFY, with which commits wait for each other in a lock of the whole server.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo
from queue import SimpleQueue
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import psycopg
from psycopg import Connection

from orchestrator.catalog.serving import (
    Look,
    Served,
    invalidate_drifted,
    look,
    quiet_until,
    served_views,
    time_zone,
    without_states,
)
from orchestrator.errors import IdivmError, UsageError
from orchestrator.frontend.schedules import Every
from orchestrator.runtime import refresh
from orchestrator.runtime.errors import explain
from orchestrator.runtime.freshness import Progress, groups, refresh_at
from orchestrator.runtime.refresh import RefreshError, RefreshReport
from orchestrator.runtime.sessions import IdivmSession, end_early
from orchestrator.runtime.unplanned import PlanReport

Connect: TypeAlias = Callable[[], "Connection[Any]"]

WORKERS = 4
"""How many groups of views are refreshed at once, each over its own connection."""

LOOKS = 4
"""How many times to look for changes within a bound."""

TIDY = 10.0
"""Seconds between checks for changes by plain SQL: new partitions, dropped views."""

LONGEST_PAUSE = 30.0
"""The maximum seconds between two attempts after failures."""


@dataclass(frozen=True)
class Event:
    """An event of `serve`."""

    event: str
    """metrics, console, connected, standing by, planned, refreshed, failed, disconnected or stopped."""
    view: str | None = None
    changed: int | None = None
    seconds: float | None = None
    staleness: float | None = None
    """How long the oldest change may have waited until the view showed it."""
    message: str | None = None


class Server:
    """Refreshes stale views until it is told to stop."""

    def __init__(
        self,
        connect: Connect,
        tidy: Callable[[Connection[Any]], object],
        plan: Callable[[Connection[Any]], Iterable[PlanReport]],
        report: Callable[[Event], None],
        interval: float,
        stop: threading.Event,
        workers: int = WORKERS,
    ) -> None:
        """Take functions that connect, tidy up, plan views and receive events, and the default bound."""
        if workers < 1:
            raise UsageError(f"Serving needs at least 1 worker, not {workers}.")
        self.workers = workers
        self.connect = connect
        self.tidy = tidy
        self.plan = plan
        self.report = report
        self.interval = interval
        self.stop = stop
        self.zone: tzinfo = timezone.utc
        self.last = 0.0
        """The time of the database at the last look."""
        self.views: list[Served] = []
        self.groups: list[list[Served]] = []
        self.progress: dict[int, Progress] = {}
        self.incomplete: set[int] = set()
        """The views whose refreshes had left their states behind at the last check."""
        self.wal: str | None = None
        """The end of the WAL at the last look, if changes are read from it."""
        self.in_wal: frozenset[int] = frozenset()
        self.read = 0.0
        """When the WAL was last read."""
        self.busy: dict[int, Future[None]] = {}
        self.planning: Future[None] | None = None
        self.idle: SimpleQueue[Connection[Any]] = SimpleQueue()
        self.opened: list[Connection[Any]] = []
        self.decoding: Connection[Any] | None = None

    def run(self) -> None:
        """Serve until `stop` is set, over as many connections as needed."""
        failures = 0
        while not self.stop.is_set():
            try:
                connection = self._open()
            except (IdivmError, psycopg.Error) as error:
                failures += 1
                self.report(Event("disconnected", message=_sentence(error)))
                self.stop.wait(_pause(failures))
                continue
            try:
                if self._alone(connection):
                    failures = 0
                    self._serve(connection)
            except (IdivmError, psycopg.Error) as error:
                failures += 1
                self.report(Event("disconnected", message=_sentence(error)))
                self.stop.wait(_pause(failures))
            finally:
                self._close()
        self.report(Event("stopped"))

    def _open(self) -> Connection[Any]:
        connection = self.connect()
        self.opened.append(connection)
        if isinstance(connection, IdivmSession):
            connection.decode_in = self._decode_in
        return connection

    def _decode_in(self) -> Connection[Any] | None:
        """Return the session that decodes the WAL for all workers, of which one at a time reads it.

        The server may have no room for another session.
        """
        if self.decoding is None or self.decoding.closed:
            self.decoding = None
            with suppress(IdivmError, psycopg.Error):
                self.decoding = self.connect()
                self.opened.append(self.decoding)
        return self.decoding

    def _close(self) -> None:
        for connection in self.opened:
            with suppress(psycopg.Error):
                connection.close()
        self.opened, self.idle, self.decoding = [], SimpleQueue(), None
        self.views, self.groups, self.progress, self.busy, self.planning = [], [], {}, {}, None

    def _alone(self, connection: Connection[Any]) -> bool:
        """Wait until no other process serves this database. Return False if `stop` is set first."""
        texts = False
        while not self.stop.is_set():
            row = connection.execute("SELECT pg_try_advisory_lock(idivm.lock_class(), 0)")
            if row.fetchone() == (True,):
                return True
            if not texts:
                self.report(Event("standing by", message="another idivm serve is at work here"))
                texts = True
            self.stop.wait(self.interval)
        return False

    def _serve(self, connection: Connection[Any]) -> None:
        self.report(Event("connected"))
        known: str | None = ""
        gates: str | None = ""
        looked, tidied = time.monotonic(), 0.0
        with ThreadPoolExecutor(self.workers) as pool:
            try:
                while not self.stop.is_set():
                    if time.monotonic() - tidied > TIDY:
                        self.tidy(connection)
                        tidied = time.monotonic()
                        self.incomplete = set(without_states(connection, list(self.progress)))
                        # Code that a view calls can change without a change of any log.
                        stale = invalidate_drifted(connection) | self.incomplete
                        for view_id in stale & self.progress.keys():
                            progress = self.progress[view_id]
                            progress.since = progress.since or tidied
                    now = time.monotonic()
                    state = look(connection)
                    if state.wal != self.wal and now - self.read > TIDY:
                        # No refresh is due that reads the WAL, and the slot keeps it.
                        refresh.read_wal(connection)
                        self.read = now
                    if state.views != known:
                        self._learn(connection)
                        known = state.views
                    if state.gates != gates:
                        self._open_gates(now)
                        gates = state.gates
                    if state.to_plan:
                        self._start_planning(pool)
                    self._look(state, looked)
                    self._look_at_clocks(connection, state, looked)
                    looked = now
                    self._start(pool)
                    self.stop.wait(self._nap())
            finally:
                running = [*self.busy.values(), *filter(None, [self.planning])]
                end_early(running, self.opened)

    def _learn(self, connection: Connection[Any]) -> None:
        """Read the views to serve."""
        schedules = {view.id: view.schedule for view in self.views}
        self.views = served_views(connection, self.interval)
        self.zone = _zone(time_zone(connection))
        self.groups = groups(self.views)
        now = time.monotonic()
        for view in self.views:
            before = schedules.get(view.id)
            if view.id not in self.progress or view.schedule != before:
                progress = self.progress.setdefault(view.id, Progress(since=now))
                # An interval begins at once.
                progress.due = now if isinstance(view.schedule, Every) else self._next(view, now)
        known = {view.id for view in self.views}
        self.progress = {view_id: p for view_id, p in self.progress.items() if view_id in known}

    def _next(self, view: Served, now: float) -> float:
        """Return the next time of a schedule."""
        if view.schedule is None:
            return 0.0
        moment = datetime.now(timezone.utc)
        at = view.schedule.next(moment, self.zone)
        return float("inf") if at is None else now + (at - moment).total_seconds()

    def _open_gates(self, now: float) -> None:
        """Have the views with gates refreshed: batches were completed since they were last held."""
        gated = {view.id for view in self.views if view.gated}
        for view in self.views:
            progress = self.progress[view.id]
            if gated & {view.id, *view.mates} and progress.since is None:
                progress.since = now

    def _look(self, state: Look, looked: float) -> None:
        """Mark the views that may have become stale since the last look.

        Whether the WAL has changes of their tables, only a refresh finds out, which reads it.
        """
        unread = state.in_wal if state.wal != self.wal else frozenset[int]()
        self.wal, self.in_wal = state.wal, state.in_wal
        logs = state.logs
        for view in self.views:
            progress = self.progress[view.id]
            mine = {source: logs[source] for source in view.tables if source in logs}
            numbers = {source: number for source, (number, _) in mine.items()}
            writers = frozenset[str]().union(*(writers for _, writers in mine.values()))
            moved = numbers != progress.seen or bool(view.tables & unread)
            ended = progress.writers - writers
            again = progress.unsettled and progress.since is None
            progress.seen, progress.writers = numbers, writers
            progress.unsettled = moved or (progress.unsettled and not again)
            if progress.since is None and (moved or ended or again or view.time_dependent):
                progress.since = looked

    def _look_at_clocks(self, connection: Connection[Any], state: Look, now: float) -> None:
        """Mark the views of which a row is due, and note until when no row of the others is.

        The time of the database may go back, and another session may refresh a view below.
        """
        running = [group for group in self.groups if group[0].id in self.busy]
        busy = {view.id for group in running for view in group if not self.busy[group[0].id].done()}
        back = state.now < self.last
        self.last = state.now
        asked = []
        for view in self.views:
            progress = self.progress[view.id]
            clocks = {source: state.logs[source][0] for source in view.clocks & state.logs.keys()}
            if clocks != progress.clocks or back:
                progress.clocks, progress.quiet_until = clocks, 0.0
            is_fresh = progress.since is None and view.id not in busy
            if view.clocks and is_fresh and progress.quiet_until <= state.now:
                asked.append(view)
        for view_id, until in quiet_until(connection, [view.id for view in asked]).items():
            progress = self.progress[view_id]
            if until is None:
                progress.since = now
            else:
                progress.quiet_until = until
                progress.wake = now + until - state.now

    def _start(self, pool: ThreadPoolExecutor) -> None:
        """Begin the refreshes that are due, one at a time for each group."""
        now = time.monotonic()
        for group in self.groups:
            first = group[0].id
            running = self.busy.get(first)
            if running is not None:
                if not running.done():
                    continue
                del self.busy[first]
                running.result()
            due = [refresh_at(view, self.progress[view.id]) for view in group]
            if any(at is not None and at <= now for at in due):
                # Also refresh the views that would follow shortly: one snapshot is less work.
                soon = {
                    view.id: view
                    for view, at in zip(group, due, strict=True)
                    if at is not None
                    and self.progress[view.id].not_before <= now
                    and (view.schedule is None or at <= now)
                }
                mates = frozenset[int]().union(*(view.mates for view in soon.values()))
                wanted = [view for view in group if view.id in soon or view.id in mates]
                self.busy[first] = pool.submit(self._refresh, wanted)
                if any(view.tables & self.in_wal for view in wanted):
                    self.read = now
            for view in group:
                progress = self.progress[view.id]
                if view.schedule is not None and progress.due <= now:
                    progress.due = self._following(view, progress.due, now)

    def _following(self, view: Served, due: float, now: float) -> float:
        """Return the time of a schedule after the one that is due; times that have passed are left out."""
        if isinstance(view.schedule, Every):
            return due + view.schedule.seconds * (1 + (now - due) // view.schedule.seconds)
        return self._next(view, now)

    def _start_planning(self, pool: ThreadPoolExecutor) -> None:
        """Plan the views that SQL created, in parallel with the refreshes."""
        if self.planning is not None:
            if not self.planning.done():
                return
            self.planning.result()
        self.planning = pool.submit(self._plan)

    def _plan(self) -> None:
        connection = self._borrow()
        for planned in self.plan(connection):
            if planned.refusal is None:
                self.report(Event("planned", planned.view, message=f"strategy {planned.strategy}"))
            else:
                self.report(Event("failed", planned.view, message=planned.refusal))
        self.idle.put(connection)

    def _refresh(self, views: list[Served]) -> None:
        states = [self.progress[view.id] for view in views]
        since = [state.since for state in states]
        for state in states:
            state.since, state.quiet_until = None, 0.0
        connection = self._borrow()
        started = time.monotonic()
        try:
            if incomplete := self.incomplete.intersection(view.id for view in views):
                refresh.complete_states(connection, sorted(incomplete))
            reports = refresh.refresh(connection, [view.id for view in views])
        except RefreshError as error:
            reports = error.reports
        except (IdivmError, psycopg.Error) as error:
            if connection.closed:
                raise
            self.idle.put(connection)
            for view, before in zip(views, since, strict=True):
                self._failed(view, before, _sentence(error))
            return
        self.idle.put(connection)
        ended = time.monotonic()
        errors = {item.view: item.error for item in reports if item.error}
        for view, state, before in zip(views, states, since, strict=True):
            if error_of := errors.get(view.name):
                self._failed(view, before, error_of)
            else:
                state.failures, state.took = 0, (state.took + ended - started) / 2
        waited = {v.name: ended - s for v, s in zip(views, since, strict=True) if s is not None}
        for report in reports:
            self._tell(report, waited.get(report.view))

    def _failed(self, view: Served, since: float | None, message: str) -> None:
        """Schedule another attempt for a view that has been stale since the given time."""
        state = self.progress[view.id]
        state.failures += 1
        state.since = since if state.since is None else state.since
        state.not_before = time.monotonic() + _pause(state.failures)
        if not self.stop.is_set():
            self.report(Event("failed", view.name, message=message))

    def _tell(self, done: RefreshReport, waited: float | None) -> None:
        if done.changed:
            self.report(Event("refreshed", done.view, done.changed, done.seconds, waited))

    def _borrow(self) -> Connection[Any]:
        return self._open() if self.idle.empty() else self.idle.get()

    def _nap(self) -> float:
        """Return how long to wait until the next look."""
        now = time.monotonic()
        bounds = [view.bound for view in self.views]
        nap = min(bounds, default=self.interval) / LOOKS
        due = [refresh_at(view, self.progress[view.id]) for view in self.views]
        due += [self.progress[view.id].due for view in self.views if view.schedule is not None]
        due += [self.progress[view.id].wake for view in self.views if view.clocks]
        return max(0.005, min([nap, *(at - now for at in due if at is not None and at > now)]))


def _pause(failures: int) -> float:
    """Return a pause that doubles after each failure."""
    return float(min(LONGEST_PAUSE, 0.1 * 2 ** min(failures, 20)))


def _zone(name: str) -> tzinfo:
    """Return the time zone of pg_cron, which knows the names of PostgreSQL."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return timezone.utc


def _sentence(error: IdivmError | psycopg.Error) -> str:
    return str(explain(error, "Serving") if isinstance(error, psycopg.Error) else error)
