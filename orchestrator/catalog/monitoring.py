"""Queries for monitoring: the state of all views and tables in one query, and recent refreshes.

Names have their schemas whatever the user's search path is, because metrics and alerts store them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row
from psycopg.sql import SQL

from orchestrator.catalog.relations import visible_names


@dataclass(frozen=True)
class ViewState:
    """A view in `idivm.status`, with the counters of its refreshes."""

    id: int | None
    """None while the view is not planned."""
    name: str
    display: str
    """The name as the user's search path shows it."""
    mode: str
    strategy: str | None
    state: str
    """fresh, behind, invalid, failed, paused or not planned."""
    lag: float | None
    """Seconds."""
    pending: int
    rows: int
    bytes: int
    log_bytes: int
    log_limit: int | None
    refreshes: int
    refreshed_at: datetime | None
    last_seconds: float | None
    last_changed: int | None
    total_seconds: float
    error: str | None
    failed_at: datetime | None
    waits_for: str | None
    """Why refreshes wait for its gate."""
    tables: list[int]
    """The sources that are tables."""
    below: list[int]
    """The views that this view reads."""


@dataclass(frozen=True)
class TableState:
    """A captured table."""

    id: int
    name: str
    statements: int
    """The number of statements since capture began."""
    captured: int
    """The log rows that capture wrote, by PostgreSQL's statistics."""
    log_bytes: int


@dataclass(frozen=True)
class PastRefresh:
    """A refresh in `idivm.history`."""

    view: str
    at: datetime
    changed: int | None
    seconds: float | None
    reason: str | None
    """Why the refresh recomputed the view; None if it applied changes."""
    error: str | None


_VIEWS = """
    SELECT v.id, s.view::text AS name, s.view::text AS display, s.mode, s.strategy, s.state,
           CASE s.state WHEN 'fresh' THEN 0 ELSE extract(epoch FROM s.lag) END::float8 AS lag,
           s.pending_rows AS pending,
           greatest(c.reltuples, 0)::bigint AS rows, coalesce(s.bytes, 0) AS bytes,
           s.log_bytes, idivm.log_limit(v.options) AS log_limit, coalesce(w.refreshes, 0) AS refreshes,
           s.refreshed_at, s.refresh_ms / 1000 AS last_seconds, s.refresh_rows AS last_changed,
           coalesce(w.total_seconds, 0) AS total_seconds, s.last_error AS error, s.failed_at, s.waits_for,
           coalesce(reads.tables, '{}') AS tables, coalesce(reads.below, '{}') AS below
    FROM idivm.status s
    LEFT JOIN idivm.views v ON v.relation = s.view AND s.state <> 'not planned'
    LEFT JOIN idivm.watermarks w ON w.view = v.id
    LEFT JOIN pg_class c ON c.oid = v.state
    LEFT JOIN (
        SELECT vs.view, array_agg(s.id ORDER BY s.id) FILTER (WHERE lower_view.id IS NULL) AS tables,
               array_agg(lower_view.id ORDER BY lower_view.id) FILTER (WHERE lower_view.id IS NOT NULL) AS below
        FROM idivm.view_sources vs
        JOIN idivm.sources s ON s.id = vs.source
        LEFT JOIN idivm.views lower_view ON lower_view.state = s.relation
        GROUP BY vs.view
    ) AS reads ON reads.view = v.id
    ORDER BY s.view::text COLLATE "C"
"""

_TABLES = """
    SELECT s.id, s.relation::text AS name,
           coalesce(pg_sequence_last_value(to_regclass('idivm_log.s' || s.id || '_seq')::oid), 0) AS statements,
           coalesce(sum(pg_stat_get_tuples_inserted(log.oid)), 0)::bigint AS captured,
           coalesce(sum(pg_total_relation_size(log.oid)), 0)::bigint AS log_bytes
    FROM idivm.sources s
    LEFT JOIN pg_class log ON log.relnamespace = 'idivm_log'::regnamespace
                          AND log.relname IN ('s' || s.id || '_a', 's' || s.id || '_b')
    WHERE s.relation IN (SELECT oid FROM pg_class)
      AND s.relation NOT IN (SELECT state FROM idivm.views WHERE state IS NOT NULL)
    GROUP BY s.id ORDER BY s.relation::text COLLATE "C"
"""

_HISTORY = SQL("""
    SELECT view::text, at, rows_changed AS changed, milliseconds / 1000 AS seconds, reason, error
    FROM idivm.history WHERE {}
""")


def view_states(connection: Connection[Any]) -> list[ViewState]:
    """Return the state of every view, ordered by name."""
    with connection.cursor(row_factory=class_row(ViewState), binary=True) as cursor:
        views = cursor.execute(_VIEWS).fetchall()
    names = visible_names(connection, [view.name for view in views])
    return [replace(view, display=name) for view, name in zip(views, names, strict=True)]


def table_states(connection: Connection[Any]) -> list[TableState]:
    """Return the state of every captured table, ordered by name."""
    with connection.cursor(row_factory=class_row(TableState), binary=True) as cursor:
        return cursor.execute(_TABLES).fetchall()


def clock(connection: Connection[Any]) -> datetime:
    """Return the time of the server."""
    row = connection.cursor(binary=True).execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    moment: datetime = row[0]
    return moment


def refreshes_since(connection: Connection[Any], moment: datetime) -> list[PastRefresh]:
    """Return the recorded refreshes of all views since a moment, the latest first."""
    with connection.cursor(row_factory=class_row(PastRefresh), binary=True) as cursor:
        return cursor.execute(_HISTORY.format(SQL("at >= %s")), [moment]).fetchall()


def last_refreshes(connection: Connection[Any], view: int, number: int) -> list[PastRefresh]:
    """Return the last recorded refreshes of a view, the latest first."""
    with connection.cursor(row_factory=class_row(PastRefresh), binary=True) as cursor:
        return cursor.execute(
            _HISTORY.format(
                SQL("view = (SELECT relation FROM idivm.views WHERE id = %s) LIMIT %s")
            ),
            [view, number],
        ).fetchall()


def pause(connection: Connection[Any], view: int) -> None:
    """Stop the refreshes of a view until `resume`."""
    connection.execute("SELECT idivm.pause_view(relation) FROM idivm.views WHERE id = %s", [view])


def resume(connection: Connection[Any], view: int) -> None:
    """End the pause of a view."""
    connection.execute("SELECT idivm.resume_view(relation) FROM idivm.views WHERE id = %s", [view])


@dataclass(frozen=True)
class StateSize:
    """The size of a stored state."""

    role: str
    rows: int
    """The estimate of PostgreSQL."""
    bytes: int


def state_sizes(connection: Connection[Any], tables: Mapping[str, str]) -> list[StateSize]:
    """Return the sizes of state tables. `tables` gives their names by role."""
    rows = connection.execute(
        "SELECT relname, greatest(reltuples, 0)::bigint, pg_total_relation_size(oid) FROM pg_class"
        " WHERE relnamespace = 'idivm_state'::regnamespace AND relname = ANY (%s) AND relkind = 'r'",
        [list(tables.values())],
    ).fetchall()
    sizes = {name: (count, size) for name, count, size in rows}
    return [StateSize(role, *sizes[name]) for role, name in tables.items() if name in sizes]
