"""Refresh and check views through the refresh loop that runs in the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from psycopg import Connection, IsolationLevel
from psycopg.errors import SerializationFailure
from psycopg.pq import TransactionStatus

from orchestrator import catalog
from orchestrator.catalog import serving, wal
from orchestrator.errors import DatabaseError, UsageError
from orchestrator.runtime.side_by_side import EntangledError, Sessions, Workers
from orchestrator.runtime.stream_rows import rows_in_place
from orchestrator.runtime.wal import reading, switching
from orchestrator.session_locks import session_lock

ATTEMPTS = 20

Result = TypeVar("Result")


@dataclass(frozen=True)
class RefreshReport:
    """The result of refreshing a view, or the reason why that failed."""

    view: str
    changed: int
    seconds: float
    error: str | None = None
    recomputed: bool = False
    """Whether the view was recomputed."""
    waits_for: str | None = None
    """What its gate waits for, if that kept the view from being refreshed."""


class RefreshError(DatabaseError):
    """Some views could not be refreshed. The other views were refreshed."""

    exit_status = 1

    def __init__(self, reports: Sequence[RefreshReport]) -> None:
        """Take the reports on all views of the refresh."""
        self.reports = list(reports)
        super().__init__(
            " ".join(f"Could not refresh {r.view}: {r.error}." for r in reports if r.error)
        )


class _Refreshed(NamedTuple):
    """What the database says of the refresh of a view."""

    id: int
    name: str
    changed: int
    seconds: float
    error: str | None
    recomputed: bool
    waits_for: str | None = None


def refresh(
    connection: Connection[Any],
    view_ids: Sequence[int],
    unplanned: Mapping[int, str] | None = None,
    sessions: Sessions | None = None,
) -> list[RefreshReport]:
    """Refresh views in one snapshot, with the maintained views that they read.

    Raise an error for the views that fail, after the others are refreshed. `unplanned` gives the reasons why
    some of the views could not be planned again, which are added to their errors. With `sessions`, views that do
    not read each other are refreshed at the same time.
    """
    view_ids = serving.with_groups(connection, view_ids)
    reports = _in_sessions(connection, view_ids, unplanned or {}, sessions)
    if collect(connection, view_ids) and (late := catalog.over_log_limit(connection, view_ids)):
        # Their logs exceed the limit, and their options ask for a refresh then.
        reports += in_one_cut(connection, late, lambda: refresh_here(connection, late))
        collect(connection, late)
    if any(report.error for report in reports):
        raise RefreshError(reports)
    return reports


def complete_states(connection: Connection[Any], view_ids: Sequence[int]) -> None:
    """Compute the states that earlier refreshes left behind the content, of the views that have nothing else to do.

    Otherwise, later refreshes with few changes would compute the content alone too, until they have lost enough time.
    """
    if idle := serving.without_states(connection, view_ids):
        together = serving.with_groups(connection, idle)
        in_one_cut(connection, together, lambda: serving.complete_states(connection, idle))


def _in_sessions(
    connection: Connection[Any],
    view_ids: Sequence[int],
    unplanned: Mapping[int, str],
    sessions: Sessions | None,
) -> list[RefreshReport]:
    """Refresh views in one snapshot, in several sessions if there are any to use and enough to do."""

    def here() -> list[RefreshReport]:
        return refresh_here(connection, view_ids, unplanned)

    def side_by_side() -> list[RefreshReport]:
        assert sessions is not None
        workers = Workers(sessions, lambda worker, group: _refreshed(worker, group, unplanned))
        rows = workers.run(connection, view_ids)
        if rows is None:
            return here()
        order = {
            view: place for place, view in enumerate(catalog.refresh_order(connection, view_ids))
        }
        return _reports(connection, sorted(rows, key=lambda row: order[row.id]))

    if sessions is None or sessions.jobs < 2 or wal.any_reads(connection, view_ids):
        return in_one_cut(connection, view_ids, here)
    try:
        return in_one_cut(connection, view_ids, side_by_side)
    except EntangledError:
        return in_one_cut(connection, view_ids, here)


def refresh_here(
    connection: Connection[Any],
    view_ids: Sequence[int],
    unplanned: Mapping[int, str] = MappingProxyType({}),
) -> list[RefreshReport]:
    """Refresh views within the open transaction. The reports name the views that fail."""
    return _reports(connection, _refreshed(connection, view_ids, unplanned))


def _refreshed(
    connection: Connection[Any], view_ids: Sequence[int], unplanned: Mapping[int, str]
) -> list[_Refreshed]:
    """Refresh views within the open transaction."""
    rows = connection.execute(
        "SELECT r.id, coalesce(shown.oid::regclass::text, v.name), coalesce(r.changed, 0), r.seconds, r.error"
        " FROM idivm.refresh_views(%s) WITH ORDINALITY AS r (id, changed, seconds, error, place)"
        " JOIN idivm.views v ON v.id = r.id LEFT JOIN pg_class shown ON shown.oid = v.relation"
        " ORDER BY r.place",
        [list(view_ids)],
    ).fetchall()
    view_ids = [view_id for view_id, *_ in rows]
    waiting = serving.waiting(connection, view_ids)
    recomputed = catalog.recomputed(connection, view_ids)
    return [
        _Refreshed(
            view_id,
            name,
            changed,
            seconds,
            catalog.add_to_error(connection, view_id, unplanned[view_id])
            if error and view_id in unplanned
            else error,
            view_id in recomputed,
            waiting.get(view_id),
        )
        for view_id, name, changed, seconds, error in rows
    ]


def _reports(connection: Connection[Any], rows: Sequence[_Refreshed]) -> list[RefreshReport]:
    """Return reports with the names that the user's search path shows."""
    names = catalog.visible_names(connection, [row.name for row in rows])
    return [
        RefreshReport(
            name,
            row.changed,
            row.seconds,
            row.error and row.error.rstrip("."),
            row.recomputed,
            row.waits_for,
        )
        for name, row in zip(names, rows, strict=True)
    ]


def pin_tables(connection: Connection[Any], view_ids: Sequence[int]) -> None:
    """Make sure that the tables of views have the state of the open transaction's snapshot."""
    connection.execute(
        "SELECT idivm.pin_tables(id) FROM unnest(%s::integer[]) AS id", [list(view_ids)]
    )


def collect(connection: Connection[Any], view_ids: Sequence[int]) -> bool:
    """Free the log segments of these views' sources that no view needs any more, and wake the readers of feeds.

    Return whether any log was examined. Mostly, logs were freed recently and are short.
    """
    sources = connection.execute("SELECT idivm.collectable(%s)", [list(view_ids)]).fetchall()
    connection.execute("SELECT idivm.announce_feeds(%s)", [list(view_ids)])
    for (source,) in sources:
        connection.execute("SELECT idivm.collect_source(%s)", [source])
    return bool(sources)


@contextmanager
def one_snapshot(connection: Connection[Any]) -> Iterator[None]:
    """Run a block in one REPEATABLE READ transaction."""
    level = connection.isolation_level
    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    try:
        with connection.transaction(), rows_in_place(connection):
            yield
    finally:
        if not connection.closed:
            connection.isolation_level = level


def _with_wal(connection: Connection[Any], action: Callable[[], Result]) -> Result:
    """Run `action` in one REPEATABLE READ transaction, after the WAL was read up to its snapshot."""
    with reading.locked(connection):
        switching.settle(connection)
        return _after_reading(connection, action)


def _after_reading(connection: Connection[Any], action: Callable[[], Result]) -> Result:
    reading.prepare(connection)
    with one_snapshot(connection):
        end = reading.read(connection)
        result = action()
    reading.advance(connection, end)
    return result


def read_wal(connection: Connection[Any]) -> None:
    """Read the WAL into the logs in a transaction of its own, unless another session is reading it."""
    if not wal.sources_in_wal(connection):
        return
    with suppress(SerializationFailure), session_lock(connection, wal.LOCK, wait=False) as is_held:
        if not is_held:
            return
        switching.settle(connection)
        if wal.sources_in_wal(connection):
            _after_reading(connection, lambda: None)


def in_one_cut(
    connection: Connection[Any], view_ids: Sequence[int], action: Callable[[], Result]
) -> Result:
    """Run `action` in one REPEATABLE READ transaction. Repeat it if another refresh interferes."""
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise UsageError(
            "A refresh needs a transaction of its own; inside one, use SELECT idivm.refresh('name')."
        )
    connection.execute("SELECT idivm.sync_modes()")
    for _ in range(ATTEMPTS):
        row = connection.execute(
            "SELECT idivm.lock_views(%(views)s), idivm.turn_logs(%(views)s),"
            " EXISTS (SELECT FROM idivm.sources WHERE wal_since IS NOT NULL)",
            {"views": list(view_ids)},
        ).fetchone()
        assert row is not None
        if row[1]:
            connection.execute("SELECT idivm.note_turns(%s)", [row[1]])
        try:
            if row[2] and wal.any_reads(connection, view_ids):
                return _with_wal(connection, action)
            with one_snapshot(connection):
                return action()
        except SerializationFailure:
            continue
    raise DatabaseError(
        f"Other sessions refreshed the same views {ATTEMPTS} times in between; try again later."
    )
