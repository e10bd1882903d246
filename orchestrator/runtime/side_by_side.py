"""Do work on views in several sessions at once. Refresh them in one snapshot.

The calling session exports its snapshot. Each worker, a session of its own, imports it, so that all of them see the
same tables and logs, and refreshes portions of the views: views that read each other are in one portion. A worker that
finds no portion left waits with its transaction open. When all wait, all commit at once; if one fails, all roll back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import psycopg
from psycopg import Connection
from psycopg.sql import SQL, Identifier, Literal

from orchestrator.catalog.serving import waits_for_any, work_of
from orchestrator.runtime.sessions import end_early

Connect: TypeAlias = Callable[[], "Connection[Any]"]

Row = TypeVar("Row")

PATIENCE = 1.0
"""Seconds between checks whether workers wait for each other, as PostgreSQL's deadlock_timeout."""

PORTIONS = 4
"""Portions of the work for each session. Fewer leave a session without work, and each one has a cost of its own."""

_TAKEN_OVER = (
    "role",
    "statement_timeout",
    "lock_timeout",
    "work_mem",
    "maintenance_work_mem",
    "max_parallel_workers_per_gather",
)
"""Settings of the calling session that its workers take over."""


class Sessions(NamedTuple):
    """How many sessions a task may use beside its own, and functions that open one and take it back."""

    jobs: int
    connect: Connect
    release: Callable[[Connection[Any]], None]

    def open(
        self, stack: ExitStack, connection: Connection[Any], count: int
    ) -> list[Connection[Any]]:
        """Open sessions that are like the calling session, as many as allowed and as the server has room for."""
        values = connection.execute(
            "SELECT name, current_setting(name) FROM unnest(%s::text[]) AS name",
            [list(_TAKEN_OVER)],
        ).fetchall()
        opened: list[Connection[Any]] = []
        for _ in range(min(self.jobs, count)):
            try:
                session = self.connect()
                stack.callback(self.release, session)
                for name, value in values:
                    session.execute(SQL("SET {} = {}").format(Identifier(name), Literal(value)))
            except psycopg.OperationalError:
                break
            opened.append(session)
        return opened


class EntangledError(Exception):
    """A worker waits for a lock of a worker that waits for it, so that one session has to do the work."""


def groups(reads: Iterable[tuple[int, Iterable[int]]]) -> list[list[int]]:
    """Return views in groups, given each view with the views that it reads. Views that read the same view, or each
    other, are in one group.

    >>> groups([(1, ()), (2, ()), (3, (1,)), (4, (3, 1))])
    [[1, 3, 4], [2]]
    """
    result: list[tuple[set[int], list[int]]] = []
    place: dict[int, tuple[set[int], list[int]]] = {}
    for view, below in reads:
        related = {view, *below}
        joined = {id(group): group for item in related if (group := place.get(item)) is not None}
        group = min(
            joined.values(),
            key=lambda candidate: candidate[1][0] if candidate[1] else view,
            default=None,
        )
        if group is None:
            group = (set(), [])
            result.append(group)
        for other in joined.values():
            if other is not group:
                group[0].update(other[0])
                group[1].extend(other[1])
                result.remove(other)
        group[0].update(related)
        group[1].append(view)
        place.update(dict.fromkeys(group[0], group))
    return sorted((members for _, members in result), key=lambda members: members[0])


def portions(
    view_groups: Iterable[list[int]], seconds: Mapping[int, float], count: int
) -> list[list[int]]:
    """Return the groups in about so many portions of the same work, the largest first.

    `seconds` is the expected work of each view. No group is divided, so a portion with a large group has more work.

    >>> portions([[1], [2, 3], [4], [5]], {1: 1, 2: 2, 3: 8, 4: 2, 5: 1}, 4)
    [[2, 3], [4, 1], [5]]
    """
    # A view that has never been refreshed has no seconds.
    work = [(sum(max(seconds[view], 0.001) for view in group), group) for group in view_groups]
    work.sort(key=lambda item: item[0], reverse=True)
    share = sum(amount for amount, _ in work) / count
    result: list[list[int]] = []
    room = 0.0
    for amount, group in work:
        if not result or room < amount:
            result.append([])
            room = share
        result[-1] += group
        room -= amount
    return result


def each(
    sessions: Sequence[Connection[Any]],
    todo: Iterable[Row],
    work: Callable[[Connection[Any], Row], None],
) -> None:
    """Do the work for each item in the first session that is free. After an error, cancel the rest and raise it."""
    queue: SimpleQueue[Row] = SimpleQueue()
    for item in todo:
        queue.put(item)
    stopped = threading.Event()

    def run(session: Connection[Any]) -> None:
        while not stopped.is_set():
            try:
                item = queue.get_nowait()
            except Empty:
                return
            work(session, item)

    with ThreadPoolExecutor(len(sessions)) as pool:
        running = [pool.submit(run, session) for session in sessions]
        try:
            for future in as_completed(running):
                future.result()
        except BaseException:
            stopped.set()
            end_early(running, sessions)
            raise


@dataclass(frozen=True)
class Workers(Generic[Row]):
    """Sessions that may refresh views at once, and what each does with a group of views."""

    sessions: Sessions
    refresh: Callable[[Connection[Any], list[int]], list[Row]]

    def run(self, connection: Connection[Any], view_ids: Sequence[int]) -> list[Row] | None:
        """Refresh views in the snapshot of the open transaction of `connection`.

        Return None, without having done anything, if one session does the work as well: if fewer than two groups
        have something to do, or if several groups would write the same rows.
        """
        todo = work_of(connection, view_ids)
        grouped = groups((view.id, view.below) for view in todo.views)
        seconds = {view.id: view.seconds for view in todo.views}
        due = [group for group in grouped if any(view in todo.due for view in group)]
        if len(due) < 2 or todo.is_shared:
            return None
        idle = [view for group in grouped if group not in due for view in group]
        parts = portions(due, seconds, PORTIONS * self.sessions.jobs)
        with ExitStack() as stack:
            sessions = self.sessions.open(stack, connection, len(parts))
            if len(sessions) < 2:
                return None
            rows = self.refresh(connection, idle) if idle else []
            return rows + _Effort(connection, sessions, parts, self.refresh).run()


@dataclass
class _Effort(Generic[Row]):
    """One refresh in several sessions."""

    connection: Connection[Any]
    sessions: list[Connection[Any]]
    todo: list[list[int]]
    refresh: Callable[[Connection[Any], list[int]], list[Row]]
    queue: SimpleQueue[list[int]] = field(default_factory=SimpleQueue)
    verdict: threading.Event = field(default_factory=threading.Event)
    """Set when every worker may end its transaction."""
    failed: bool = False

    def run(self) -> list[Row]:
        for group in self.todo:
            self.queue.put(group)
        self._stay(self.connection)
        exported = self.connection.execute("SELECT pg_export_snapshot()").fetchone()
        assert exported is not None
        with ThreadPoolExecutor(2 * len(self.sessions)) as pool:
            done = [Future[list[Row]]() for _ in self.sessions]
            ended = [
                pool.submit(self._work, session, exported[0], outcome)
                for session, outcome in zip(self.sessions, done, strict=True)
            ]
            try:
                self._await(done)
            except BaseException:
                self.failed = True
                end_early(done, self.sessions)
                raise
            finally:
                self.verdict.set()
            for future in ended:
                future.result()
            return [row for outcome in done for row in outcome.result()]

    @staticmethod
    def _stay(connection: Connection[Any]) -> None:
        """Keep the server from ending a transaction that waits for the others."""
        connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")

    def _work(self, session: Connection[Any], snapshot: str, done: Future[list[Row]]) -> None:
        """Refresh portions until there are none, wait for the other workers, and commit if all succeeded."""
        try:
            with session.transaction():
                session.execute(
                    SQL(
                        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT {}"
                    ).format(Literal(snapshot))
                )
                self._stay(session)
                rows: list[Row] = []
                while not self.failed:
                    try:
                        group = self.queue.get_nowait()
                    except Empty:
                        break
                    rows += self.refresh(session, group)
                done.set_result(rows)
                self.verdict.wait()
                if self.failed:
                    raise psycopg.Rollback
        except BaseException as error:
            if done.done():
                raise
            done.set_exception(error)

    def _await(self, done: Sequence[Future[list[Row]]]) -> None:
        """Wait until every worker has refreshed its views. Raise the first error."""
        running = set(done)
        while running:
            finished, running = wait(running, timeout=PATIENCE, return_when=FIRST_COMPLETED)
            for future in finished:
                future.result()
            if running and not finished:
                self._require_progress(done)

    def _require_progress(self, done: Sequence[Future[list[Row]]]) -> None:
        """Raise an error if a worker waits for a session that waits for the workers to end.

        PostgreSQL does not see such a deadlock: a worker without work waits here, and not for a lock.
        """
        waiting = [self.connection.info.backend_pid]
        at_work: list[int] = []
        for session, future in zip(self.sessions, done, strict=True):
            (waiting if future.done() else at_work).append(session.info.backend_pid)
        if waits_for_any(self.connection, at_work, waiting):
            raise EntangledError
