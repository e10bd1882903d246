"""Queries on which views to refresh when, and with which: for `idivm serve` and refreshes in several sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from psycopg import Connection
from psycopg.errors import InternalError_

from orchestrator.catalog import visible_names
from orchestrator.frontend.options import seconds
from orchestrator.frontend.schedules import Schedule, parse_schedule

_STANDING = """
    WITH RECURSIVE reads(view, source, below) AS (
        SELECT vs.view, vs.source, lower_view.id
        FROM idivm.view_sources vs
        JOIN idivm.sources s ON s.id = vs.source
        LEFT JOIN idivm.views lower_view ON lower_view.state = s.relation
    ), depends(view, source, below) AS (
        SELECT view, source, below FROM reads
      UNION
        SELECT d.view, r.source, r.below FROM depends d JOIN reads r ON r.view = d.below
    ), clocks(source) AS (
        SELECT s.id FROM idivm.sources s JOIN idivm.views v ON s.relation = to_regclass('idivm_def.c' || v.id)
        WHERE v.has_clock
    )
    SELECT v.id, coalesce(v.relation::text, v.name),
           -- Writers fold most changes of a shared view into its content themselves.
           coalesce(v.options ->> 'staleness', CASE WHEN idivm.is_shared(v) THEN '5 s' END),
           v.time_dependent OR coalesce(bool_or(b.time_dependent), false),
           coalesce(array_agg(d.source) FILTER (WHERE d.below IS NULL AND c.source IS NULL), '{}'),
           coalesce(array_agg(c.source) FILTER (WHERE d.below IS NULL AND c.source IS NOT NULL), '{}'),
           coalesce(array_agg(d.below) FILTER (WHERE d.below IS NOT NULL), '{}'),
           idivm.schedule_of(v.options), ARRAY(SELECT idivm.mates(v.id)), nullif(v.options ->> 'gate', '') IS NOT NULL
    FROM idivm.views v LEFT JOIN depends d ON d.view = v.id
    LEFT JOIN idivm.views b ON b.id = d.below LEFT JOIN clocks c ON c.source = d.source
    WHERE v.status <> 'building' AND NOT idivm.is_paused(v)
      AND NOT EXISTS (SELECT FROM idivm.schedules s WHERE s.view = v.relation AND s.runner = 'pg_cron')
      AND (v.status = 'invalid' OR v.id NOT IN (SELECT idivm.synchronous_views()))
    GROUP BY v.id ORDER BY v.id
"""

_LOOK = """
    WITH writers AS MATERIALIZED (
        -- A prepared transaction has no process, and another name instead.
        SELECT DISTINCT relation, virtualtransaction AS writer FROM pg_locks
        WHERE mode = 'RowExclusiveLock' AND relation IS NOT NULL
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    )
    SELECT concat((SELECT md5(string_agg(
                       concat_ws(' ', v.id, v.status, v.maintain, v.paused_mode, v.options), ',' ORDER BY v.id))
                   FROM idivm.views v),
                  (SELECT string_agg(concat_ws(' ', j.id, j.job), ',' ORDER BY j.id) FROM idivm.cron_jobs j)),
           (SELECT md5(string_agg(concat_ws(' ', g.source, g.batch, g.at), ',' ORDER BY g.source)) FROM idivm.gates g),
           EXISTS (SELECT FROM idivm.unplanned_views u WHERE u.with_data AND NOT u.paused AND (
               u.refused_at IS NULL OR u.refused_at < clock_timestamp() - interval '5 min')),
           extract(epoch FROM idivm.clock())::double precision,
           CASE WHEN bool_or(s.wal_since IS NOT NULL) OVER () THEN pg_current_wal_insert_lsn()::text END,
           s.wal_since IS NOT NULL,
           s.id, coalesce(pg_sequence_last_value(to_regclass('idivm_log.s' || s.id || '_seq')::oid), 0),
           ARRAY(SELECT w.writer FROM writers w
                 WHERE w.relation = to_regclass('idivm_log.s' || s.id || '_a')
                    OR w.relation = to_regclass('idivm_log.s' || s.id || '_b'))
    FROM (SELECT) AS one LEFT JOIN idivm.sources s ON true
"""

_AGE = """
    SELECT extract(epoch FROM clock_timestamp() - w.refreshed_at) + w.seconds,
           coalesce(sum(pg_sequence_last_value(to_regclass('idivm_log.s' || vs.source || '_seq')::oid)), 0)
    FROM idivm.watermarks w JOIN idivm.view_sources vs ON vs.view = w.view
    WHERE w.view = %s GROUP BY w.view
"""


_WORK = """
    SELECT o.id,
           ARRAY(SELECT below FROM idivm.views_below(o.id) AS below
                 WHERE below NOT IN (SELECT idivm.synchronous_views()))
               || ARRAY(SELECT idivm.mates(o.id)),
           coalesce(w.seconds, 0), coalesce(idivm.is_foreign(w), true)
    FROM idivm.refresh_order(%s) WITH ORDINALITY AS o (id, place) LEFT JOIN idivm.watermarks w ON w.view = o.id
    ORDER BY o.place
"""

_WAITS = """
    WITH RECURSIVE blocking(pid) AS (
        SELECT blocker FROM unnest(%(at_work)s::integer[]) AS pid
        CROSS JOIN LATERAL unnest(pg_blocking_pids(pid)) AS blocker
      UNION
        SELECT blocker FROM blocking b CROSS JOIN LATERAL unnest(pg_blocking_pids(b.pid)) AS blocker
    )
    SELECT EXISTS (SELECT FROM blocking b WHERE b.pid = ANY (%(waiting)s))
"""


@dataclass(frozen=True)
class Served:
    """A view to keep fresh: its staleness bound, the tables below it, the views below it.

    A `time_dependent` view may change at any moment; a view with `clocks` changes when rows pass bounds.
    """

    id: int
    name: str
    bound: float
    time_dependent: bool
    tables: frozenset[int]
    below: frozenset[int]
    schedule: Schedule | None = None
    mates: frozenset[int] = frozenset()
    """The views of its refresh group."""
    gated: bool = False
    """Whether its refreshes wait for complete batches."""
    clocks: frozenset[int] = frozenset()
    """The sources that are the clocks of the view and of the views below it."""


@dataclass(frozen=True)
class Look:
    """The result of a query on all logs."""

    views: str | None
    """A hash that changes when a view is created, changed or dropped."""
    gates: str | None
    """A hash that changes when a batch is complete."""
    to_plan: bool
    """Whether views wait to be planned."""
    now: float
    """The time that refreshes take, in seconds since 1970."""
    wal: str | None
    """The end of the WAL, if changes of a table are read from it."""
    in_wal: frozenset[int]
    """The sources whose changes are read from the WAL."""
    logs: dict[int, tuple[int, frozenset[str]]]
    """For each source: the number of its last statement, and the transactions that are writing its log."""


def served_views(connection: Connection[Any], bound: float) -> list[Served]:
    """Return the views to keep fresh. `bound` applies to views without a staleness of their own."""
    rows = connection.execute(_STANDING).fetchall()
    names = visible_names(connection, [row[1] for row in rows])
    return [
        Served(
            view_id,
            name,
            seconds(own) if own else bound,
            time_dependent,
            frozenset(tables),
            frozenset(below),
            parse_schedule(schedule) if schedule else None,
            frozenset(mates),
            gated,
            frozenset(clocks),
        )
        for name, (
            *(view_id, _, own, time_dependent, tables, clocks, below, schedule, mates, gated),
        ) in zip(names, rows, strict=True)
    ]


def look(connection: Connection[Any]) -> Look:
    """Return the state of all logs by one short query."""
    try:
        rows = connection.execute(_LOOK).fetchall()
    except InternalError_:
        # A log was dropped while this query waited for it. The second query no longer finds it.
        rows = connection.execute(_LOOK).fetchall()
    logs = {row[6]: (row[7], frozenset(row[8])) for row in rows if row[6] is not None}
    in_wal = frozenset(row[6] for row in rows if row[5])
    views, gates, to_plan, now, wal = rows[0][:5]
    return Look(views, gates, to_plan, now, wal, in_wal, logs)


def quiet_until(connection: Connection[Any], view_ids: Sequence[int]) -> dict[int, float | None]:
    """Return the time until which each view is right although time passes, or None if it may be wrong now."""
    if not view_ids:
        return {}
    rows = connection.execute(
        "SELECT id, extract(epoch FROM idivm.quiet_until(id))::double precision FROM unnest(%s) AS id",
        [list(view_ids)],
    ).fetchall()
    return dict(rows)


def age(connection: Connection[Any], view_id: int) -> tuple[float, int]:
    """Return the seconds since a view's last refresh began, and a number that grows with each change of its
    tables.
    """
    row = connection.execute(_AGE, [view_id]).fetchone()
    assert row is not None
    return float(row[0]), int(row[1])


def is_fresh(connection: Connection[Any], view_id: int) -> bool:
    """Return whether a view has consumed all committed changes."""
    row = connection.execute("SELECT idivm.pending_changes(%s) = 0", [view_id]).fetchone()
    return row == (True,)


def invalidate_drifted(connection: Connection[Any]) -> set[int]:
    """Mark the views that have drifted as invalid, and return their IDs."""
    rows = connection.execute(
        "UPDATE idivm.views SET status = 'invalid'"
        " WHERE status = 'ready' AND idivm.has_drifted(id) RETURNING id"
    )
    return {row[0] for row in rows.fetchall()}


def without_states(connection: Connection[Any], view_ids: Sequence[int]) -> list[int]:
    """Return the views whose refreshes left the states behind the content, while no change waits for them."""
    row = connection.execute("SELECT idivm.without_states(%s)", [list(view_ids)]).fetchone()
    assert row is not None
    return list(row[0])


def complete_states(connection: Connection[Any], view_ids: Sequence[int]) -> None:
    """Compute the states that refreshes left behind the content of these views."""
    connection.execute("SELECT idivm.complete_states(%s, 'infinity')", [list(view_ids)])


@dataclass(frozen=True)
class ViewWork:
    """A view of a refresh, the deferred views that it reads, and the seconds that its last refresh took."""

    id: int
    below: tuple[int, ...]
    """With the members of its refresh group."""
    seconds: float


@dataclass(frozen=True)
class Work:
    """The views of a refresh, lower views first."""

    views: tuple[ViewWork, ...]
    due: frozenset[int]
    """The views that have something to do."""
    is_shared: bool
    """Whether refreshes of different views may write the same rows: of synchronous views that are behind, or of logs
    that came with a dump."""


def work_of(connection: Connection[Any], view_ids: Sequence[int]) -> Work:
    """Return what a refresh of views has to do in the snapshot of the open transaction."""
    rows = connection.execute(_WORK, [list(view_ids)]).fetchall()
    row = connection.execute(
        "SELECT due, due && ARRAY(SELECT idivm.synchronous_views()) FROM idivm.work_of(%s)",
        [list(view_ids)],
    ).fetchone()
    assert row is not None
    due, behind = row
    return Work(
        tuple(ViewWork(view_id, tuple(below), seconds) for view_id, below, seconds, _ in rows),
        frozenset(due),
        behind or any(is_foreign for *_, is_foreign in rows),
    )


def waits_for_any(
    connection: Connection[Any], at_work: Sequence[int], waiting: Sequence[int]
) -> bool:
    """Return whether one of the sessions at work waits, directly or not, for one of the waiting sessions."""
    values = {"at_work": list(at_work), "waiting": list(waiting)}
    return connection.execute(_WAITS, values).fetchone() == (True,)


@dataclass(frozen=True)
class Timing:
    """When a view is refreshed: its schedule, its refresh group, and what its gate waits for."""

    view: str
    """The name as the user's search path shows it."""
    schedule: str | None
    runner: str | None
    """Who follows the schedule: `pg_cron` or `idivm serve`."""
    job: int | None
    """The job of pg_cron."""
    refresh_group: str | None
    gate: str | None
    waits_for: str | None
    """Why its refreshes wait for its gate, or the gate of a member of its group."""
    waits_since: datetime | None
    """When a refresh first waited."""


_TIMING = """
    SELECT st.view::text, st.schedule, s.runner, s.job, st.refresh_group, nullif(v.options ->> 'gate', ''),
           st.waits_for, st.waits_since
    FROM idivm.status st
    LEFT JOIN idivm.schedules s ON s.view = st.view
    LEFT JOIN idivm.views v ON v.relation = st.view
    WHERE st.schedule IS NOT NULL OR st.refresh_group IS NOT NULL OR nullif(v.options ->> 'gate', '') IS NOT NULL
    ORDER BY st.view::text COLLATE "C"
"""


def timings(connection: Connection[Any]) -> list[Timing]:
    """Return the views with a schedule, a refresh group or a gate."""
    if connection.execute(_ANY_TIMING).fetchone() == (False,):
        return []
    rows = [Timing(*row) for row in connection.execute(_TIMING).fetchall()]
    names = visible_names(connection, [timing.view for timing in rows])
    return [replace(timing, view=name) for timing, name in zip(rows, names, strict=True)]


_ANY_TIMING = """
    SELECT EXISTS (SELECT FROM idivm.views WHERE options ? 'schedule')
        OR EXISTS (SELECT FROM idivm.views WHERE options ? 'refresh_group')
        OR EXISTS (SELECT FROM idivm.views WHERE options ? 'gate')
        OR EXISTS (SELECT FROM idivm.unplanned_views WHERE options ?| '{schedule,refresh_group,gate}')
"""


def with_groups(connection: Connection[Any], view_ids: Sequence[int]) -> list[int]:
    """Return views with the members of their refresh groups."""
    row = connection.execute("SELECT idivm.with_groups(%s)", [list(view_ids)]).fetchone()
    assert row is not None
    return list(row[0])


def waiting(connection: Connection[Any], view_ids: Sequence[int]) -> dict[int, str]:
    """Return the views that the open transaction skipped for a closed gate, and what each gate waits for."""
    rows = connection.execute(
        "SELECT v.id, idivm.status_of_gate(v.id) FROM idivm.views v"
        " WHERE v.id = ANY (%s) AND v.options ?| '{refresh_group,gate}'",
        [list(view_ids)],
    ).fetchall()
    return {view_id: reason for view_id, reason in rows if reason}


def follow_schedule(connection: Connection[Any], view_id: int) -> None:
    """Have the schedule of a view followed: by pg_cron if this role may use it."""
    connection.execute(
        "SELECT idivm.follow_schedule(relation) FROM idivm.views WHERE id = %s", [view_id]
    )


def time_zone(connection: Connection[Any]) -> str:
    """Return the time zone of schedules by cron's fields: that of pg_cron."""
    row = connection.execute(
        "SELECT coalesce(nullif(current_setting('cron.timezone', true), ''), 'GMT')"
    ).fetchone()
    assert row is not None
    return str(row[0])


@dataclass(frozen=True)
class Gate:
    """The last complete batch of a table."""

    source: str
    batch: str
    at: datetime
    role: str


def gates(connection: Connection[Any]) -> list[Gate]:
    """Return the last complete batch of each table that has any."""
    rows = connection.execute(
        "SELECT g.source::text, g.batch, g.at, g.role FROM idivm.gates g JOIN pg_class c ON c.oid = g.source"
        ' ORDER BY g.source::text COLLATE "C"'
    ).fetchall()
    names = visible_names(connection, [row[0] for row in rows])
    return [Gate(name, *row[1:]) for name, row in zip(names, rows, strict=True)]
