"""Queries on the views that SQL created and that no orchestrator has planned yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from psycopg import Connection
from psycopg.rows import class_row
from psycopg.sql import SQL, Composable
from psycopg.types.json import Jsonb

from orchestrator.catalog.relations import visible_names
from orchestrator.catalog.views import ViewInfo
from orchestrator.errors import RightsError
from orchestrator.session_locks import give_back, session_lock


@dataclass(frozen=True)
class UnplannedView:
    """A view that is an ordinary view of its query until it is planned."""

    oid: int
    schema: str
    name: str
    relation: str
    """Its name in SQL that idivm writes."""
    options: dict[str, str]
    settings: dict[str, str]
    refusal: str | None
    asked_at: datetime
    owner: str
    is_own: bool
    """Whether this role may replace the relation."""
    version: str
    """A text that changes when the view or its request changes."""


_UNPLANNED = SQL("""
    SELECT c.oid, n.nspname AS schema, c.relname AS name, c.oid::regclass::text AS relation, u.options, u.settings,
           u.refusal, u.asked_at, pg_get_userbyid(c.relowner) AS owner, idivm.owns(c.oid) AS is_own,
           concat_ws(' ', u.asked_at, idivm.signature(idivm.waiting_query(u))) AS version
    FROM idivm.unplanned_views u JOIN pg_class c ON c.oid = u.relation JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE {}
    -- A view is older than the views that read it.
    ORDER BY c.oid
""")


_READY = SQL(
    "u.with_data AND NOT u.paused"
    " AND (u.refused_at IS NULL OR u.refused_at < clock_timestamp() - interval '5 min')"
)


def unplanned_views(connection: Connection[Any]) -> list[UnplannedView]:
    """Return all views that wait for planning, lower views first."""
    return _views(connection, SQL("true"))


def views_with(connection: Connection[Any], oids: Sequence[int]) -> list[UnplannedView]:
    """Return the views with these oids that wait for planning, lower views first."""
    return _views(connection, SQL("c.oid = ANY (%s::oid[])"), list(oids))


def ready_views(connection: Connection[Any]) -> list[UnplannedView]:
    """Return the views to plan without being named. After a refusal, a view is left out for five minutes."""
    return _views(connection, _READY)


def _views(
    connection: Connection[Any], condition: Composable, *values: object
) -> list[UnplannedView]:
    with connection.cursor(row_factory=class_row(UnplannedView), binary=True) as cursor:
        return cursor.execute(_UNPLANNED.format(condition), values).fetchall()


def is_any_waiting(connection: Connection[Any]) -> bool:
    """Return whether views wait for planning. Each refresh calls this, and mostly there are none."""
    row = connection.execute("SELECT EXISTS (SELECT FROM idivm.unplanned_views)").fetchone()
    return row == (True,)


def user_name(connection: Connection[Any], view: UnplannedView) -> str:
    """Return the name of a view as the user's search path shows it."""
    return visible_names(connection, [view.relation])[0]


def query_of(connection: Connection[Any], view: UnplannedView) -> str:
    """Return the query of a view as PostgreSQL prints it: one statement, with full names where the path lacks
    a name.
    """
    row = connection.execute(
        "SELECT pg_get_viewdef(idivm.waiting_query(u)) FROM idivm.unplanned_views u WHERE u.relation = %s::oid",
        [view.oid],
    ).fetchone()
    assert row is not None
    return str(row[0]).rstrip().removesuffix(";")


def take(connection: Connection[Any], view: UnplannedView) -> bool:
    """Remove a view from the waiting views. Return whether it was unchanged since it was read."""
    return (
        connection.execute(
            "DELETE FROM idivm.unplanned_views u WHERE u.relation = %s::oid"
            " AND concat_ws(' ', u.asked_at, idivm.signature(idivm.waiting_query(u))) = %s",
            [view.oid, view.version],
        ).rowcount
        > 0
    )


def ask_for_data(connection: Connection[Any], view: UnplannedView) -> None:
    """Request the planning of a view that was created WITH NO DATA and is refreshed now."""
    connection.execute("SELECT idivm.plan_at_refresh(%s::oid)", [view.oid])


def note_refusal(connection: Connection[Any], view: UnplannedView, reason: str) -> None:
    """Record why a view could not be planned."""
    connection.execute(
        "UPDATE idivm.unplanned_views SET refusal = %s, refused_at = clock_timestamp()"
        " WHERE relation = %s::oid",
        [reason, view.oid],
    )


def remove_dropped(connection: Connection[Any]) -> None:
    """Remove the views that plain SQL dropped."""
    connection.execute("SELECT idivm.drop_lost_waiting()")
    connection.execute(
        "DELETE FROM idivm.unplanned_views u WHERE u.number IS NULL"
        " AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = u.relation AND c.relkind = 'v')"
    )


def refuse_capture(
    connection: Connection[Any], relation: int, tables: Sequence[int], indexes: bool
) -> None:
    """Refuse to capture tables if the owner of the view may not create triggers on them, or to index the
    tables of others.
    """
    row = connection.execute(
        "SELECT pg_get_userbyid(v.relowner), c.oid::regclass::text, has_table_privilege(v.relowner, c.oid, 'TRIGGER')"
        " FROM pg_class v, pg_class c WHERE v.oid = %(view)s::oid AND c.oid = ANY (%(tables)s::oid[])"
        # The content of a maintained view below belongs to idivm.
        " AND c.relnamespace <> 'idivm_state'::regnamespace"
        " AND NOT (has_table_privilege(v.relowner, c.oid, 'TRIGGER')"
        "          AND (NOT %(indexes)s OR pg_has_role(v.relowner, c.relowner, 'USAGE')))"
        " ORDER BY 2 LIMIT 1",
        {"view": relation, "tables": list(tables), "indexes": indexes},
    ).fetchone()
    if row is None:
        return
    owner, table, captures = row
    if captures:
        raise RightsError(f"{owner} does not own {table}, so create_indexes = on is not possible.")
    raise RightsError(
        f"{owner} may not have the changes of {table} captured; GRANT TRIGGER ON {table} TO {owner}."
    )


@contextmanager
def locked(connection: Connection[Any], view: UnplannedView) -> Iterator[bool]:
    """Keep other orchestrators from planning a view. Yield whether none of them is planning it."""
    key = "idivm.lock_class() + 1, %s::bigint::bit(32)::integer"
    with session_lock(connection, key, [view.oid], wait=False) as is_ours:
        yield is_ours


@contextmanager
def session_settings(connection: Connection[Any], view: UnplannedView) -> Iterator[None]:
    """Give a session the settings with which a view was created, for a block outside of transactions."""
    before = connection.execute(
        "SELECT coalesce(jsonb_object_agg(s.name, s.setting), '{}') FROM pg_settings s"
        " WHERE s.name = ANY (ARRAY(SELECT jsonb_object_keys(idivm.session_settings())))"
    ).fetchone()
    assert before is not None
    try:
        chosen = {name: view.settings[name] for name in before[0] if name in view.settings}
        connection.execute(_SET, [Jsonb(chosen)])
        yield
    finally:
        give_back(connection, _SET, [Jsonb(before[0])])


_SET: Final = "SELECT set_config(s.key, s.value, false) FROM jsonb_each_text(%s) AS s"


def as_view(connection: Connection[Any], view: UnplannedView) -> ViewInfo:
    """Return a view that is not planned as a `ViewInfo` with the status `not planned`."""
    name = user_name(connection, view)
    return ViewInfo(
        id=0,
        name=name,
        relation=view.relation,
        status="not planned",
        strategy="not planned",
        maintain=view.options.get("maintain", "deferred"),
        time_dependent=False,
        clock_moved=False,
        query=query_of(connection, view),
        options=view.options,
        settings=view.settings,
        plan_text="{}",
        oid=view.oid,
        definition=None,
        state=None,
        read_from=None,
        sources=[],
        created_at=view.asked_at,
        pending=0,
        misses_wal=False,
        stale_below=[],
        refreshed_at=None,
        refreshes=0,
        changed=0,
        seconds=0.0,
        total_seconds=0.0,
        recomputed=False,
        rows=0,
        bytes=0,
        log_bytes=0,
        log_kept=0,
        log_limit=0,
        on_log_limit="warn",
        base=None,
        trouble=None,
        error=view.refusal,
        sqlstate=None,
        failed_at=None,
    )
