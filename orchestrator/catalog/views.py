"""Queries on maintained views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, cast

from psycopg import Connection
from psycopg.rows import class_row
from psycopg.sql import SQL, Composable
from psycopg.types.json import Jsonb

from orchestrator import screenful
from orchestrator.caching import cached_property
from orchestrator.catalog import ascii_json
from orchestrator.catalog.dropped import dropped_view
from orchestrator.catalog.relations import relation_oid, visible_names
from orchestrator.deltascript.plan import VERSION, Initialised, MaintenancePlan
from orchestrator.errors import VIEW_DROPPED, NotFoundError, RightsError, UsageError, near_miss


@dataclass(frozen=True)
class ViewInfo:
    """A maintained view in the catalog, with its pending changes."""

    def __repr__(self) -> str:
        """Return a line, without the query and the plan."""
        return f"ViewInfo({self.name!r}, {', '.join(f'{k}={v!r}' for k, v in self._facts())})"

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        facts = [("view", self.name), *self._facts(), ("query", self.query)]
        return screenful.as_html([name for name, _ in facts], [[value for _, value in facts]])

    def _facts(self) -> list[tuple[str, object]]:
        names = ("maintain", "strategy", "status", "pending", "rows", "refreshed_at")
        return [(name, getattr(self, name)) for name in names]

    id: int
    name: str
    """The name as the user's search path shows it."""
    relation: str
    """Its name in SQL that idivm writes."""
    status: str
    strategy: str
    maintain: str
    time_dependent: bool
    clock_moved: bool
    """Whether rows are due to come or go because the time moved since the last refresh."""
    query: str
    options: dict[str, str]
    settings: dict[str, str]
    plan_text: str
    """The plan as stored, in JSON."""
    oid: int | None
    definition: str | None
    state: str | None
    read_from: str | None
    """The view that merges its content with pending changes, if it is read through one."""
    sources: list[str]
    """In the order of the plan."""
    created_at: datetime
    pending: int
    misses_wal: bool
    stale_below: list[str]
    """The stale views that it reads, directly or through other views."""
    refreshed_at: datetime | None
    refreshes: int
    changed: int
    seconds: float
    total_seconds: float
    recomputed: bool
    """Whether its last refresh recomputed it."""
    rows: int
    bytes: int
    log_bytes: int
    log_kept: int
    """The bytes of the logs that the view has yet to consume, if its logs exceed its limit; otherwise 0."""
    log_limit: int
    on_log_limit: str
    base: str | None
    """The prefix of the names of its state tables."""
    trouble: str | None
    """Why its next refresh recomputes it, or why it cannot be refreshed."""
    error: str | None
    """Why its last refresh failed."""
    sqlstate: str | None
    failed_at: datetime | None

    @cached_property
    def stored_plan(self) -> dict[str, Any]:
        """The plan as stored."""
        return cast("dict[str, Any]", ascii_json.load(self.plan_text))

    @cached_property
    def plan(self) -> MaintenancePlan:
        """The plan that maintains the view."""
        return read_plan(self.stored_plan, self.name)

    @property
    def is_planned(self) -> bool:
        """Whether this version of idivm can read its plan."""
        return self.stored_plan.get("version") == VERSION


def read_plan(stored: dict[str, Any], name: str) -> MaintenancePlan:
    """Return the plan of a view from its form in the catalog."""
    if not stored:
        raise UsageError(f"{name} is not planned yet; run idivm plan.")
    plan = MaintenancePlan.of_stored(stored)
    if plan is None:
        raise UsageError(f"Another version of idivm planned {name}; refresh it to plan it again.")
    return plan


# Sets find the views that need a closer look; most have no trouble, nothing pending and no view below.
_VIEWS = SQL("""
    WITH chosen AS MATERIALIZED (
        SELECT array_agg(v.id) AS ids FROM idivm.views v WHERE {}
    ), near AS MATERIALIZED (
        SELECT idivm.troubled_views(ids) AS troubled, idivm.pending_views(ids) AS due, idivm.upper_views(ids) AS upper,
               idivm.views_missing_wal(ARRAY(SELECT v.id FROM idivm.views v)) AS unread,
               idivm.log_limit('{{}}') AS log_limit, idivm.log_action('{{}}') AS on_log_limit
        FROM chosen WHERE ids IS NOT NULL
    ), logs AS MATERIALIZED (
        SELECT s.id AS source, coalesce(below.relation, s.relation)::text AS name, s.relation,
               coalesce(pg_total_relation_size(to_regclass('idivm_log.s' || s.id || '_a')), 0)
               + coalesce(pg_total_relation_size(to_regclass('idivm_log.s' || s.id || '_b')), 0) AS bytes
        FROM idivm.sources s LEFT JOIN idivm.views below ON below.state = s.relation
        WHERE s.id IN (SELECT vs.source FROM chosen CROSS JOIN unnest(ids) AS id
                       JOIN idivm.view_sources vs ON vs.view = id)
    )
    SELECT v.id, coalesce(shown.oid::regclass::text, v.name) AS name,
           coalesce(shown.oid::regclass::text, v.name) AS relation,
           CASE WHEN v.status = 'ready' AND present.trouble IS NOT NULL THEN 'invalid' ELSE v.status END AS status,
           v.strategy, v.maintain, v.time_dependent,
           v.status <> 'building' AND v.has_clock AND idivm.rows_are_due(v.id) AS clock_moved,
           v.query, v.options, v.settings, v.plan::text AS plan_text, shown.oid, v.definition::text,
           v.state::text, v.read_from::text, used.sources, v.created_at,
           CASE WHEN v.status = 'ready' AND v.id IN (SELECT unnest(near.due) FROM near)
                THEN idivm.pending_changes(v.id) ELSE 0 END AS pending, v.id = ANY (near.unread) AS misses_wal,
           CASE WHEN v.id = ANY (near.upper) THEN idivm.stale_below(v.id, near.unread) ELSE '{{}}' END AS stale_below,
           w.refreshed_at, coalesce(w.refreshes, 0) AS refreshes, coalesce(w.changed, 0) AS changed,
           coalesce(w.seconds, 0) AS seconds, coalesce(w.total_seconds, 0) AS total_seconds,
           coalesce(w.recomputed, false) AS recomputed,
           coalesce(greatest(c.reltuples, 0), 0)::bigint AS rows,
           coalesce(CASE c.relkind WHEN 'v' THEN idivm.state_bytes(v.id)
                    ELSE pg_total_relation_size(c.oid) END, 0) AS bytes, used.log_bytes,
           CASE WHEN used.log_bytes > own.log_limit THEN idivm.log_kept(v.id) ELSE 0 END AS log_kept,
           own.log_limit, own.on_log_limit,
           left(c.relname, -length('_' || v.id)) AS base, present.trouble,
           failure.message AS error, failure.sqlstate, failure.at AS failed_at
    FROM idivm.views v
    LEFT JOIN idivm.view_errors failure ON failure.view = v.id
    CROSS JOIN near
    CROSS JOIN LATERAL (
        SELECT CASE WHEN v.id IN (SELECT unnest(near.troubled) FROM near) THEN idivm.trouble(v.id) END AS trouble
        OFFSET 0
    ) AS present
    CROSS JOIN LATERAL (
        SELECT CASE WHEN v.options ? 'log_limit' THEN idivm.log_limit(v.options) ELSE near.log_limit END AS log_limit,
               CASE WHEN v.options ? 'on_log_limit' THEN idivm.log_action(v.options)
                    ELSE near.on_log_limit END AS on_log_limit
    ) AS own
    LEFT JOIN idivm.watermarks w ON w.view = v.id
    LEFT JOIN pg_class c ON c.oid = v.state
    LEFT JOIN pg_class shown ON shown.oid = v.relation
    CROSS JOIN LATERAL (
        SELECT CASE WHEN count(*) < 2 THEN array_remove(ARRAY[min(l.name)], NULL)
                    ELSE array_agg(l.name ORDER BY (
                             SELECT min(p.place)
                             FROM jsonb_array_elements(v.plan -> 'program' -> 'sources')
                                  WITH ORDINALITY AS p (source, place)
                             WHERE (p.source ->> 'oid')::oid = l.relation), l.source) END AS sources,
               coalesce(sum(l.bytes), 0)::bigint AS log_bytes
        FROM idivm.view_sources vs
        JOIN logs l ON l.source = vs.source
                   AND NOT (v.has_clock AND l.relation IS NOT DISTINCT FROM to_regclass('idivm_def.c' || v.id))
        WHERE vs.view = v.id
    ) AS used
    WHERE {}
    ORDER BY v.id
""")


def _views(connection: Connection[Any], condition: Composable, *values: object) -> list[ViewInfo]:
    # As text, times could be read only in some of the formats that a session may use.
    with connection.cursor(row_factory=class_row(ViewInfo), binary=True) as cursor:
        views = cursor.execute(_VIEWS.format(condition, condition), [*values, *values]).fetchall()
    names = [name for view in views for name in (view.name, *view.sources, *view.stale_below)]
    visible = iter(visible_names(connection, names))
    return [
        replace(
            view,
            name=next(visible),
            sources=[next(visible) for _ in view.sources],
            stale_below=[next(visible) for _ in view.stale_below],
        )
        for view in views
    ]


def all_views(connection: Connection[Any]) -> list[ViewInfo]:
    """Return every maintained view that is ready to be read, oldest first."""
    return _views(connection, SQL("v.status <> 'building'"))


def view_by_oid(connection: Connection[Any], oid: int) -> ViewInfo | None:
    """Return the maintained view that users read as this relation, if there is one."""
    views = _views(connection, SQL("v.relation = %s::oid"), oid)
    return views[0] if views else None


def view_by_id(connection: Connection[Any], view_id: int) -> ViewInfo:
    """Return the maintained view with this ID."""
    views = _views(connection, SQL("v.id = %s"), view_id)
    if not views:
        raise NotFoundError(VIEW_DROPPED)
    return views[0]


def relation_name(connection: Connection[Any], view: ViewInfo) -> Composable:
    """Return the name of a view for SQL that idivm writes."""
    row = connection.execute("SELECT %s::oid::regclass::text", [view.oid]).fetchone()
    assert row is not None
    return SQL(row[0])


def view_named(connection: Connection[Any], name: Composable) -> ViewInfo:
    """Return the maintained view of this name."""
    oid = relation_oid(connection, name)
    view = view_by_oid(connection, oid) if oid is not None else None
    if view is None:
        label = name.as_string(connection)
        if oid is None and (dropped := dropped_view(connection, name)) is not None:
            raise NotFoundError(
                f"There is no view {label} any more: {dropped.cause} dropped it;"
                f" idivm restore {dropped.name} creates it again."
            )
        if oid is None:
            plain = name.as_string(connection).replace('"', "")
            hint = near_miss(plain, [view.name for view in all_views(connection)])
            raise NotFoundError(
                f"There is no view {label}; `idivm list` shows the maintained ones.{hint}"
            )
        waits = connection.execute(
            "SELECT FROM idivm.unplanned_views WHERE relation = %s::oid", [oid]
        ).fetchone()
        if waits is not None:
            raise NotFoundError(
                f"{label} is not planned yet: every read computes its query. Run idivm plan {label}."
            )
        raise NotFoundError(
            f"{label} is not maintained by idivm; `idivm list` shows the views that are."
        )
    return view


def record_indexes(
    connection: Connection[Any], view_id: int, created: Sequence[int], used: Sequence[int]
) -> None:
    """Record the indexes created for a view, and the indexes that it uses and that were created for other
    views.
    """
    connection.execute(
        "INSERT INTO idivm.made_indexes SELECT %s, i FROM unnest(%s::oid[]) AS i",
        [view_id, list(created)],
    )
    connection.execute(
        "INSERT INTO idivm.made_indexes SELECT DISTINCT %s::integer, index FROM idivm.made_indexes"
        " WHERE index = ANY (%s::oid[]) ON CONFLICT DO NOTHING",
        [view_id, list(used)],
    )


def sources_of(connection: Connection[Any], view_ids: Sequence[int]) -> set[int]:
    """Return the captured tables of the given views."""
    rows = connection.execute(
        "SELECT source FROM idivm.view_sources WHERE view = ANY (%s)", [list(view_ids)]
    )
    return {row[0] for row in rows.fetchall()}


def views_to_replan(connection: Connection[Any], among: Sequence[int]) -> list[ViewInfo]:
    """Return the views whose plan no longer fits or contains a name that no longer exists.

    Another version of idivm made the plan, a plain view below was replaced, a key or NOT NULL was dropped,
    the expression of a virtual column was altered, or something that the query calls was renamed or altered.
    Or the last refresh failed because a name in its program is unknown or means something else.
    """
    rows = connection.execute(
        "WITH drift AS MATERIALIZED (SELECT idivm.drifted_among(%s) AS among)"
        " SELECT v.id, v.id = ANY (drift.among), EXISTS (SELECT FROM idivm.view_errors e WHERE e.view = v.id"
        " AND left(e.sqlstate, 2) IN ('42', '3F') AND e.sqlstate <> '42501')"
        " OR (v.plan ->> 'version')::integer IS DISTINCT FROM %s"
        " OR EXISTS (SELECT FROM idivm.other_keys o WHERE o.view = v.id)"
        " FROM drift, idivm.views v WHERE v.id = ANY (%s) AND v.status <> 'building'",
        [list(among), VERSION, list(among)],
    ).fetchall()
    outdated = {view_id for view_id, _, is_outdated in rows if is_outdated}
    if drifted := [view_id for view_id, has_drifted, _ in rows if has_drifted]:
        # A session seldom needs these plans, which take milliseconds.
        unfit = connection.execute(
            "SELECT v.id FROM unnest(%s::integer[]) AS v (id)"
            " WHERE EXISTS (SELECT FROM idivm.inlined_views i WHERE i.view = v.id"
            " AND i.signature IS DISTINCT FROM idivm.signature(i.relation))"
            " OR EXISTS (SELECT FROM idivm.broken_promises b WHERE b.view = v.id)"
            " OR EXISTS (SELECT FROM idivm.changed_expressions c WHERE c.view = v.id AND c.in_plan)"
            " OR idivm.code_drift(v.id) IN ('names', 'facts')",
            [drifted],
        )
        outdated.update(view_id for (view_id,) in unfit)
    return [view_by_id(connection, view_id) for view_id in sorted(outdated)]


def add_to_error(connection: Connection[Any], view_id: int, reason: str) -> str:
    """Add to the stored reason of a failed refresh. Return the whole reason."""
    row = connection.execute(
        "UPDATE idivm.view_errors SET message = rtrim(message, '.') || '; ' || %s WHERE view = %s"
        " RETURNING message",
        [reason, view_id],
    ).fetchone()
    assert row is not None
    return str(row[0])


def readers_of(connection: Connection[Any], view_id: int) -> list[tuple[int, str]]:
    """Return the maintained views that read a maintained view directly or indirectly, upper views first."""
    rows = connection.execute(
        """
        WITH RECURSIVE readers(id, depth) AS (
            SELECT %s::integer, 0
          UNION
            SELECT v.id, r.depth + 1
            FROM readers r JOIN idivm.views v ON r.id IN (SELECT idivm.views_below(v.id))
        )
        SELECT v.id, coalesce(v.relation::text, v.name)
        FROM (SELECT id, max(depth) AS depth FROM readers WHERE depth > 0 GROUP BY id) r
        JOIN idivm.views v USING (id) ORDER BY r.depth DESC, v.id DESC
        """,
        [view_id],
    ).fetchall()
    names = visible_names(connection, [name for _, name in rows])
    return [(reader_id, name) for (reader_id, _), name in zip(rows, names, strict=True)]


def view_ids(connection: Connection[Any], names: Sequence[Composable]) -> list[int]:
    """Return the IDs of the named views, or of all views that are not paused."""
    if names:
        return [_view_id(connection, name) for name in names]
    rows = connection.execute(
        "SELECT id FROM idivm.views v WHERE status <> 'building' AND NOT idivm.is_paused(v) ORDER BY id"
    )
    return [row[0] for row in rows.fetchall()]


def _view_id(connection: Connection[Any], name: Composable) -> int:
    query = "SELECT id FROM idivm.views WHERE relation = %s::oid"
    row = connection.execute(query, [relation_oid(connection, name)]).fetchone()
    return int(row[0]) if row is not None else view_named(connection, name).id


def refresh_order(connection: Connection[Any], view_ids: Sequence[int]) -> list[int]:
    """Return views and the maintained views that they read directly or indirectly, lower views first."""
    rows = connection.execute("SELECT idivm.refresh_order(%s)", [list(view_ids)])
    return [row[0] for row in rows.fetchall()]


def recomputed(connection: Connection[Any], view_ids: Sequence[int]) -> set[int]:
    """Return which of the given views this transaction has recomputed."""
    rows = connection.execute(
        "SELECT view FROM idivm.watermarks WHERE view = ANY (%s) AND recomputed AND refreshed_at >= now()",
        [list(view_ids)],
    ).fetchall()
    return {view_id for (view_id,) in rows}


def over_log_limit(connection: Connection[Any], but: Sequence[int]) -> list[int]:
    """Return the views that exceed their log limit and are refreshed then, except the views in `but`."""
    rows = connection.execute(
        "SELECT view FROM idivm.over_log_limit() WHERE action = 'refresh' AND view <> ALL (%s)",
        [list(but)],
    )
    return [row[0] for row in rows.fetchall()]


def note_initialised(
    connection: Connection[Any], view_id: int, initialised: Sequence[Initialised]
) -> None:
    """Record where the states of a view were computed, for `explain`."""
    connection.execute(
        "UPDATE idivm.views SET plan = jsonb_set(plan, '{evidence,initialised}', %s) WHERE id = %s",
        [ascii_json.dump([asdict(item) for item in initialised]), view_id],
    )


def rebuilt_as_of(connection: Connection[Any], view_id: int, snapshot: str) -> None:
    """Record that the states of a view are correct as of a snapshot.

    The caller must have prevented refreshes of the view since that snapshot.
    """
    connection.execute(
        "UPDATE idivm.watermarks SET content_only = false, cluster = idivm.cluster(),"
        " mark = ROW(%s::pg_snapshot, NULL, NULL, NULL)::idivm.watermark,"
        " refreshed_at = clock_timestamp(), refreshes = refreshes + 1 WHERE view = %s",
        [snapshot, view_id],
    )
    connection.execute(
        "UPDATE idivm.views SET status = CASE WHEN idivm.has_drifted(id) THEN 'invalid' ELSE 'ready' END"
        " WHERE id = %s",
        [view_id],
    )


def refuse_forbidden(connection: Connection[Any], view_id: int, name: str) -> None:
    """Refuse a view that its owner may not have maintained, or whose code this role does not trust."""
    row = connection.execute(
        "SELECT coalesce(idivm.forbidden(v.id), idivm.distrusted(v.definition, v.types, r.oid))"
        " FROM idivm.views v, pg_roles r"
        " WHERE v.id = %s AND v.types IS NOT NULL AND r.rolname = current_user",
        [view_id],
    ).fetchone()
    if row is not None and row[0] is not None:
        raise RightsError(f"The query of {name} is not run: {row[0]}.")


def describe(connection: Connection[Any], view_id: int) -> None:
    """Comment on a view with its query, mode and strategy, unless a user has commented on it."""
    connection.execute(
        "SELECT idivm.describe(relation) FROM idivm.views WHERE id = %s AND relation IS NOT NULL",
        [view_id],
    )


def note_reads(
    connection: Connection[Any],
    view_id: int,
    types: Sequence[int],
    reads: Sequence[tuple[int, int, tuple[int, ...]]],
) -> None:
    """Record what a view reads, and whether the rights or code of others must be checked."""
    names = ("through", "relation", "columns")
    connection.execute(
        "SELECT idivm.note_reads(%s, %s::oid[], %s)",
        [view_id, list(types), Jsonb([dict(zip(names, read, strict=True)) for read in reads])],
    )
