"""Every query on idivm's own catalog."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, cast

from psycopg import Connection
from psycopg.rows import class_row
from psycopg.sql import SQL, Composable, Identifier
from psycopg.types.json import Jsonb

from orchestrator.deltascript.capture import Captured, Layout
from orchestrator.deltascript.emit import SEARCH_PATH
from orchestrator.deltascript.names import SourceNames
from orchestrator.deltascript.plan import Initialised, Source, SourceColumn
from orchestrator.engine.column_types import ColumnType
from orchestrator.errors import NotFoundError, RightsError
from orchestrator.runtime.catalog import ascii_json
from orchestrator.runtime.errors import near_miss
from orchestrator.runtime.search_path import path_of, users_path
from orchestrator.strategies.ring import Ring

OWN_SCHEMAS = ("idivm", "idivm_def", "idivm_load", "idivm_log", "idivm_state")


@dataclass(frozen=True)
class ViewInfo:
    """A maintained view as the catalog knows it, with how far it lags behind."""

    id: int
    name: str
    """As the user's search path shows it."""
    relation: str
    """Its name for SQL of ours."""
    status: str
    strategy: str
    maintain: str
    time_dependent: bool
    query: str
    options: dict[str, str]
    settings: dict[str, str]
    plan: dict[str, Any]
    oid: int | None
    definition: str | None
    state: str | None
    sources: list[str]
    """In the order of the plan's."""
    created_at: datetime
    pending: int
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
    """Bytes of the logs that it has yet to consume, once they are more than its limit."""
    log_limit: int
    on_log_limit: str
    base: str | None
    """What the names of its state tables begin with."""
    trouble: str | None
    """Why its next refresh recomputes it, or why it cannot be refreshed."""
    error: str | None
    """Why its last refresh failed."""
    sqlstate: str | None
    failed_at: datetime | None


_VIEWS = SQL("""
    SELECT v.id, coalesce(shown.oid::regclass::text, v.name) AS name,
           coalesce(shown.oid::regclass::text, v.name) AS relation,
           CASE WHEN v.status = 'ready' AND present.trouble IS NOT NULL THEN 'invalid' ELSE v.status END AS status,
           v.strategy, v.maintain, v.time_dependent,
           v.query, v.options, v.settings, v.plan::text AS plan, shown.oid, v.definition::text,
           v.state::text, used.sources,
           v.created_at, CASE WHEN v.status = 'ready' THEN idivm.pending_changes(v.id) ELSE 0 END AS pending,
           w.refreshed_at, coalesce(w.refreshes, 0) AS refreshes, coalesce(w.changed, 0) AS changed,
           coalesce(w.seconds, 0) AS seconds, coalesce(w.total_seconds, 0) AS total_seconds,
           coalesce(w.recomputed, false) AS recomputed,
           coalesce(greatest(c.reltuples, 0), 0)::bigint AS rows,
           coalesce(CASE c.relkind WHEN 'v' THEN idivm.state_bytes(v.id)
                    ELSE pg_total_relation_size(c.oid) END, 0) AS bytes, used.log_bytes,
           CASE WHEN used.log_bytes > idivm.log_limit(v.options) THEN idivm.log_kept(v.id) ELSE 0 END AS log_kept,
           idivm.log_limit(v.options) AS log_limit, idivm.log_action(v.options) AS on_log_limit,
           left(c.relname, -length('_' || v.id)) AS base, present.trouble,
           failure.message AS error, failure.sqlstate, failure.at AS failed_at
    FROM idivm.views v
    LEFT JOIN idivm.view_errors failure ON failure.view = v.id
    CROSS JOIN LATERAL (SELECT idivm.trouble(v.id) AS trouble OFFSET 0) AS present
    LEFT JOIN idivm.watermarks w ON w.view = v.id
    LEFT JOIN pg_class c ON c.oid = v.state
    LEFT JOIN pg_class shown ON shown.oid = v.relation
    CROSS JOIN LATERAL (
        SELECT coalesce(array_agg(coalesce(below.relation, s.relation)::text ORDER BY (
                   SELECT min(p.place)
                   FROM jsonb_array_elements(v.plan -> 'sources') WITH ORDINALITY AS p (source, place)
                   WHERE (p.source ->> 'oid')::oid = s.relation), s.id), '{{}}') AS sources,
               coalesce(sum(log.bytes), 0)::bigint AS log_bytes
        FROM idivm.view_sources vs
        JOIN idivm.sources s ON s.id = vs.source
        LEFT JOIN idivm.views below ON below.state = s.relation
        CROSS JOIN LATERAL (
            SELECT sum(pg_total_relation_size(segment.oid)) AS bytes FROM pg_class segment
            WHERE segment.relnamespace = 'idivm_log'::regnamespace
              AND segment.relname IN ('s' || s.id || '_a', 's' || s.id || '_b')
        ) AS log
        WHERE vs.view = v.id
    ) AS used
    WHERE {}
    ORDER BY v.id
""")


def _views(connection: Connection[Any], condition: Composable, *values: object) -> list[ViewInfo]:
    # Times as text are only read in some of the forms that a session may show them in.
    with connection.cursor(row_factory=class_row(ViewInfo), binary=True) as cursor:
        views = cursor.execute(_VIEWS.format(condition), values).fetchall()
    names = iter(shown(connection, [name for v in views for name in (v.name, *v.sources)]))
    return [
        replace(
            v,
            name=next(names),
            sources=[next(names) for _ in v.sources],
            plan=ascii_json.load(cast(str, v.plan)),
        )
        for v in views
    ]


def shown(connection: Connection[Any], names: Sequence[str]) -> list[str]:
    """Names of relations, given with their schemas, as the user's search path shows them."""
    path = path_of(connection)
    if path is None or not names:
        return list(names)
    # The calls take place from left to right, and the statement is read under the pinned path.
    row = connection.execute(
        "SELECT set_config('search_path', %s, false), ARRAY("
        # Of a relation that is gone there is but a number.
        "SELECT CASE WHEN n ~ '^[0-9-]' THEN n ELSE coalesce(to_regclass(n)::text, n) END"
        " FROM unnest(%s::text[]) AS n),"
        " set_config('search_path', %s, false)",
        [path, list(names), SEARCH_PATH],
    ).fetchone()
    assert row is not None
    return list(row[1])


def all_views(connection: Connection[Any]) -> list[ViewInfo]:
    """Every maintained view that is ready to be read, oldest first."""
    return _views(connection, SQL("v.status <> 'building'"))


def view_by_oid(connection: Connection[Any], oid: int) -> ViewInfo | None:
    """The maintained view that users read as this relation, if it is one."""
    found = _views(connection, SQL("v.relation = %s::oid"), oid)
    return found[0] if found else None


def view_by_id(connection: Connection[Any], view_id: int) -> ViewInfo:
    """The maintained view with this number."""
    found = _views(connection, SQL("v.id = %s"), view_id)
    if not found:
        raise NotFoundError("The view was dropped meanwhile; `idivm list` shows those there are.")
    return found[0]


Grant = tuple[str, str | None, bool]
"""A privilege, the role that has it or None for everybody, and whether it may be passed on."""


@dataclass(frozen=True)
class DroppedView:
    """A maintained view that DROP ... CASCADE took along with what it read."""

    name: str
    query: str
    columns: list[str]
    options: dict[str, str]
    search_path: str | None
    grants: list[Grant]
    cause: str
    at: datetime


_DROPPED = SQL(
    "SELECT name, query, columns, options, search_path, grants, cause, at FROM idivm.dropped_views"
    " WHERE {} ORDER BY view"
)


def dropped_views(connection: Connection[Any]) -> list[DroppedView]:
    """Return the views that went with what they read, in the order in which they were created."""
    with connection.cursor(row_factory=class_row(DroppedView), binary=True) as cursor:
        return cursor.execute(_DROPPED.format(SQL("true"))).fetchall()


def dropped_view(connection: Connection[Any], name: Composable) -> DroppedView | None:
    """Return the view of this name that went with what it read, if there is one."""
    parts = _qualified(connection, name)
    with connection.cursor(row_factory=class_row(DroppedView), binary=True) as cursor:
        return cursor.execute(_DROPPED.format(SQL("parse_ident(name) = %s")), [parts]).fetchone()


def clear_dropped(connection: Connection[Any], name: Composable) -> bool:
    """Forget a view that went with what it read, and return whether there was one."""
    found = connection.execute(
        "DELETE FROM idivm.dropped_views WHERE parse_ident(name) = %s",
        [_qualified(connection, name)],
    )
    return found.rowcount > 0


def _qualified(connection: Connection[Any], name: Composable) -> list[str | None]:
    """The parts of a name, with the schema in which the user would create it."""
    with users_path(connection):
        row = connection.execute(
            "SELECT pg_catalog.parse_ident(%s), pg_catalog.current_schema()::pg_catalog.text",
            [name.as_string(connection)],
        ).fetchone()
    assert row is not None
    parts, schema = row
    return parts if len(parts) > 1 else [schema, *parts]


def relation_name(connection: Connection[Any], view: ViewInfo) -> Composable:
    """The name of a view for SQL of ours."""
    row = connection.execute("SELECT %s::oid::regclass::text", [view.oid]).fetchone()
    assert row is not None
    return SQL(row[0])


def take_settings(connection: Connection[Any], settings: Mapping[str, str]) -> None:
    """Takes on settings until the end of the transaction."""
    connection.execute(
        "SELECT set_config(s.key, s.value, true) FROM jsonb_each_text(%s) AS s",
        [Jsonb(dict(settings))],
    )


def relation_oid(connection: Connection[Any], name: Composable) -> int | None:
    """The relation that a name means on the user's search path."""
    path, text = path_of(connection), name.as_string(connection)
    if path is None:
        row = connection.execute("SELECT to_regclass(%s)::oid", [text]).fetchone()
    else:
        row = connection.execute(
            "SELECT o FROM (SELECT set_config('search_path', %s, false), to_regclass(%s)::oid AS o,"
            " set_config('search_path', %s, false) OFFSET 0) AS q",
            [path, text, SEARCH_PATH],
        ).fetchone()
    assert row is not None
    oid: int | None = row[0]
    return oid


def exists(connection: Connection[Any], name: Composable) -> bool:
    """Whether a name means a relation."""
    return relation_oid(connection, name) is not None


def give_to_owner_of(connection: Connection[Any], name: Composable, other: Composable) -> None:
    """Gives a view to the owner of another one, if that is not who makes it."""
    row = connection.execute(
        "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = to_regclass(%s)"
        " AND pg_get_userbyid(relowner) <> current_user",
        [other.as_string(connection)],
    ).fetchone()
    if row is not None:
        connection.execute(SQL("ALTER VIEW {} OWNER TO {}").format(name, Identifier(row[0])))


def is_plain_view(connection: Connection[Any], name: Composable) -> bool:
    """Whether a name means a view."""
    row = connection.execute(
        "SELECT FROM pg_class WHERE oid = to_regclass(%s) AND relkind = 'v'",
        [name.as_string(connection)],
    ).fetchone()
    return row is not None


def view_named(connection: Connection[Any], name: Composable) -> ViewInfo:
    """The maintained view of this name."""
    oid = relation_oid(connection, name)
    view = view_by_oid(connection, oid) if oid is not None else None
    if view is None:
        shown = name.as_string(connection)
        if oid is None and (dropped := dropped_view(connection, name)) is not None:
            raise NotFoundError(
                f"There is no view {shown} any more: {dropped.cause} dropped it;"
                f" idivm restore {dropped.name} creates it again."
            )
        if oid is None:
            plain = name.as_string(connection).replace('"', "")
            hint = near_miss(plain, [view.name for view in all_views(connection)])
            raise NotFoundError(
                f"There is no view {shown}; `idivm list` shows the maintained ones.{hint}"
            )
        raise NotFoundError(
            f"{shown} is not maintained by idivm; `idivm list` shows the views that are."
        )
    return view


def visible_relations(connection: Connection[Any]) -> list[str]:
    """The tables and views that the user can name without a schema."""
    with users_path(connection):
        rows = connection.execute(
            "SELECT c.relname FROM pg_catalog.pg_class c"
            " WHERE pg_catalog.pg_table_is_visible(c.oid)"
            " AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,v,m,f,p}'::\"char\"[])"
            " AND c.relnamespace OPERATOR(pg_catalog.<>) 'pg_catalog'::pg_catalog.regnamespace"
        ).fetchall()
    return [row[0] for row in rows]


def names_behind(connection: Connection[Any]) -> dict[str, str]:
    """The objects behind maintained views, by the names of the views that the user knows."""
    rows = connection.execute(
        """
        SELECT 'idivm_def.' || kind || v.id, coalesce(v.relation::text, v.name)
        FROM idivm.views v, unnest(ARRAY['v', 'q']) AS kind
        UNION ALL
        SELECT v.state::text, coalesce(v.relation::text, v.name) FROM idivm.views v WHERE v.state IS NOT NULL
        UNION ALL
        SELECT * FROM (
            SELECT format(ours, s.source), coalesce(v.relation::text, v.name)
            FROM idivm.view_sources s JOIN idivm.views v ON v.id = s.view,
                 unnest(ARRAY['idivm_def.s%s', 'idivm_log.s%s_image']) AS ours ORDER BY v.id
        ) AS readers
        """
    ).fetchall()
    behind: dict[str, list[str]] = {}
    for (ours, _), name in zip(rows, shown(connection, [name for _, name in rows]), strict=True):
        behind.setdefault(ours, []).append(name)
    return {ours: ", ".join(names) for ours, names in behind.items()}


def stored_content(connection: Connection[Any], view_id: int) -> tuple[Source, frozenset[int]]:
    """The table that holds a view's content, with the hidden columns that tell its rows apart.

    And the numbers of the columns that never hold NULL.
    """
    row = connection.execute(
        "SELECT c.oid, n.nspname, c.relname, v.plan::text FROM idivm.views v"
        " JOIN pg_class c ON c.oid = v.state JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE v.id = %s",
        [view_id],
    ).fetchone()
    assert row is not None
    oid, schema, name, plan = row
    plan = ascii_json.load(plan)
    (content,) = (state for state in plan["states"] if state["role"] == plan["content"])
    if "identity" in content:
        identity = content["identity"] or {}
        hidden, equality = [identity[one] for one in ("row", "nth") if identity], "exact"
    else:
        # Rows whose key may be NULL are told apart by their content.
        hidden, equality = [] if content["nullable"] else content["key"], "coarse"
    sure = {*hidden, *content.get("not_null", ())}
    columns = connection.execute(
        "SELECT a.attnum, a.attname, true, format_type(coalesce(nullif(t.typbasetype, 0), t.oid),"
        " CASE WHEN t.typbasetype = 0 THEN a.atttypmod ELSE t.typtypmod END), %s"
        " FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid"
        " WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        [equality, oid],
    ).fetchall()
    source = Source(oid, schema, name, tuple(SourceColumn(*c) for c in columns if c[1] in hidden))
    return source, frozenset(number for number, called, *_ in columns if called in sure)


def record_indexes(
    connection: Connection[Any], view_id: int, made: Sequence[int], used: Sequence[int]
) -> None:
    """Records the indexes made for a view, and those that it uses and were made for another."""
    connection.execute(
        "INSERT INTO idivm.made_indexes SELECT %s, i FROM unnest(%s::oid[]) AS i",
        [view_id, list(made)],
    )
    connection.execute(
        "INSERT INTO idivm.made_indexes SELECT DISTINCT %s::integer, index FROM idivm.made_indexes"
        " WHERE index = ANY (%s::oid[]) ON CONFLICT DO NOTHING",
        [view_id, list(used)],
    )


def sources_of(connection: Connection[Any], view_ids: Sequence[int]) -> set[int]:
    """The captured tables of some views."""
    rows = connection.execute(
        "SELECT source FROM idivm.view_sources WHERE view = ANY (%s)", [list(view_ids)]
    )
    return {row[0] for row in rows.fetchall()}


def views_to_replan(connection: Connection[Any], among: Sequence[int]) -> list[ViewInfo]:
    """Return the views whose plan no longer fits, or names what is not there any more.

    A plain view below was replaced, a key or NOT NULL was lost, the expression of a virtual column was
    altered, or what the query calls was renamed or altered; or the last refresh failed as a name in its
    program is unknown or means something else.
    """
    rows = connection.execute(
        "SELECT v.id FROM idivm.views v WHERE v.id = ANY (%s) AND v.status <> 'building' AND ("
        "EXISTS (SELECT FROM idivm.inlined_views i WHERE i.view = v.id"
        " AND i.signature IS DISTINCT FROM idivm.signature(i.relation))"
        " OR EXISTS (SELECT FROM idivm.broken_promises b WHERE b.view = v.id)"
        " OR EXISTS (SELECT FROM idivm.changed_expressions c WHERE c.view = v.id AND c.in_plan)"
        " OR idivm.code_drift(v.id) IN ('names', 'facts')"
        " OR EXISTS (SELECT FROM idivm.view_errors e WHERE e.view = v.id"
        " AND left(e.sqlstate, 2) IN ('42', '3F') AND e.sqlstate <> '42501')"
        " OR EXISTS (SELECT FROM jsonb_array_elements(v.plan -> 'sources') AS p"
        " JOIN idivm.sources s ON s.relation = (p ->> 'oid')::oid"
        " WHERE NOT s.keyed AND p -> 'columns' @> '[{\"in_key\": true}]')) ORDER BY v.id",
        [list(among)],
    )
    return [view_by_id(connection, row[0]) for row in rows.fetchall()]


def add_to_error(connection: Connection[Any], view_id: int, reason: str) -> str:
    """Add to the reason that is kept of a failed refresh; return the whole reason."""
    row = connection.execute(
        "UPDATE idivm.view_errors SET message = rtrim(message, '.') || '; ' || %s WHERE view = %s"
        " RETURNING message",
        [reason, view_id],
    ).fetchone()
    assert row is not None
    return str(row[0])


def readers_of(connection: Connection[Any], view_id: int) -> list[tuple[int, str]]:
    """The maintained views that read a maintained view, however indirectly, upper ones first."""
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
    names = shown(connection, [name for _, name in rows])
    return [(reader_id, name) for (reader_id, _), name in zip(rows, names, strict=True)]


def view_ids(connection: Connection[Any], names: Sequence[Composable]) -> list[int]:
    """The numbers of the named views, or of all."""
    if names:
        return [_view_id(connection, name) for name in names]
    rows = connection.execute("SELECT id FROM idivm.views WHERE status <> 'building' ORDER BY id")
    return [row[0] for row in rows.fetchall()]


def readers_of_unlogged(connection: Connection[Any], ids: Sequence[int]) -> set[int]:
    """Those of some views that read unlogged tables."""
    rows = connection.execute(
        "SELECT id FROM unnest(%s::integer[]) AS id WHERE idivm.reads_unlogged(id)", [list(ids)]
    )
    return {row[0] for row in rows.fetchall()}


def _view_id(connection: Connection[Any], name: Composable) -> int:
    oid = relation_oid(connection, name)
    row = connection.execute(
        "SELECT id FROM idivm.views WHERE relation = %s::oid", [oid]
    ).fetchone()
    return int(row[0]) if row is not None else view_named(connection, name).id


def refresh_order(connection: Connection[Any], view_ids: Sequence[int]) -> list[int]:
    """Views and the maintained views that they read, however indirectly, lower ones first."""
    rows = connection.execute("SELECT idivm.refresh_order(%s)", [list(view_ids)])
    return [row[0] for row in rows.fetchall()]


def recomputed(connection: Connection[Any], view_ids: Sequence[int]) -> set[int]:
    """Which of some views this transaction has recomputed."""
    rows = connection.execute(
        "SELECT view FROM idivm.watermarks WHERE view = ANY (%s) AND recomputed AND refreshed_at >= now()",
        [list(view_ids)],
    ).fetchall()
    return {view_id for (view_id,) in rows}


def over_log_limit(connection: Connection[Any], but: Sequence[int]) -> list[int]:
    """The views that keep too much of the change logs and are to be refreshed then, without some."""
    rows = connection.execute(
        "SELECT view FROM idivm.over_log_limit() WHERE action = 'refresh' AND view <> ALL (%s)",
        [list(but)],
    )
    return [row[0] for row in rows.fetchall()]


@dataclass(frozen=True)
class Member:
    """A table that carries the capture triggers of a source."""

    number: int
    name: Composable
    layout: Layout
    root: bool = False
    """Whether it is the source's own relation, and no partition or child."""


def load_source(connection: Connection[Any], source_id: int) -> Captured:
    """A captured relation, with the present names of its columns."""
    columns = connection.execute(
        """
        SELECT sc.attnum, a.attname, sc.in_key, format_type(kept.atttypid, kept.atttypmod), sc.equality, sc.name
        FROM idivm.source_columns sc
        JOIN idivm.sources s ON s.id = sc.source
        JOIN pg_attribute a ON a.attrelid = s.relation AND a.attnum = sc.attnum
        JOIN pg_attribute shown ON shown.attrelid = to_regclass('idivm_def.s' || s.id) AND shown.attname = sc.name
        JOIN pg_attribute kept ON kept.attrelid = to_regclass('idivm_log.s' || s.id || '_a')
                              AND kept.attname = 'n_' || sc.attnum
        WHERE sc.source = %s ORDER BY shown.attnum
        """,
        [source_id],
    ).fetchall()
    row = connection.execute(
        "SELECT s.relation::text, count(a.attnum) > %s FROM idivm.sources s"
        " JOIN pg_attribute a ON a.attrelid = to_regclass('idivm_def.s' || s.id) AND a.attnum > 0"
        " WHERE s.id = %s GROUP BY s.relation",
        [len(columns), source_id],
    ).fetchone()
    assert row is not None
    relation, placeholder = row
    shown = tuple((SourceColumn(*facts), name) for *facts, name in columns)
    return Captured(source_id, SQL(relation), shown, placeholder)


def sources_without_capture(connection: Connection[Any], among: Collection[int]) -> list[int]:
    """The sources of which a part was dropped that their changes are captured with."""
    rows = connection.execute(
        "SELECT s.id FROM idivm.sources s JOIN pg_class c ON c.oid = s.relation"
        " WHERE s.id = ANY (%s) AND idivm.capture_is_broken(s.id) ORDER BY s.id",
        [list(among)],
    )
    return [row[0] for row in rows.fetchall()]


def sources_without_their_key(connection: Connection[Any], among: Collection[int]) -> list[int]:
    """The sources of which the key was dropped that tells their rows apart."""
    rows = connection.execute(
        "SELECT s.id FROM idivm.sources s JOIN pg_class c ON c.oid = s.relation"
        " WHERE s.id = ANY (%s) AND s.keyed AND idivm.key_is_gone(s.id) ORDER BY s.id",
        [list(among)],
    )
    return [row[0] for row in rows.fetchall()]


def sources_with_other_members(connection: Connection[Any], among: Collection[int]) -> list[int]:
    """The sources whose partitions or inheritance children are not those that carry capture."""
    rows = connection.execute(
        """
        SELECT s.id FROM idivm.sources s JOIN pg_class c ON c.oid = s.relation
        WHERE (SELECT array_agg(m.member::oid ORDER BY m.member::oid)
               FROM idivm.source_members m WHERE m.source = s.id)
              IS DISTINCT FROM
              (SELECT array_agg(d::oid ORDER BY d::oid) FROM idivm.descendants(s.relation) d)
          AND s.id = ANY (%s)
        ORDER BY s.id
        """,
        [list(among)],
    )
    return [row[0] for row in rows.fetchall()]


def members(connection: Connection[Any], source_id: int) -> list[Member]:
    """The tables that carry the capture triggers of a source."""
    rows = connection.execute(
        """
        SELECT m.number, m.member::text, c.relkind = 'p', c.oid = s.relation, c.oid,
               coalesce(array_agg(a.attnum ORDER BY a.attnum) FILTER (WHERE a.attnum > 0), '{}'),
               coalesce(array_agg(a.attname::text ORDER BY a.attnum) FILTER (WHERE a.attnum > 0), '{}')
        FROM idivm.source_members m JOIN idivm.sources s ON s.id = m.source
        JOIN pg_class c ON c.oid = m.member
        JOIN pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped
        WHERE m.source = %s GROUP BY m.source, m.member, s.id, c.oid ORDER BY m.number
        """,
        [source_id],
    )
    return [
        Member(
            number,
            SQL(name),
            Layout(oid, tuple(zip(attnums, names, strict=True)), partitioned),
            root=root,
        )
        for number, name, partitioned, root, oid, attnums, names in rows.fetchall()
    ]


def note_layout(connection: Connection[Any], source_id: int, number: int) -> None:
    """Records for which columns of a member its capture functions were just made."""
    connection.execute(
        "UPDATE idivm.source_members SET layout = idivm.layout(member) WHERE source = %s AND number = %s",
        [source_id, number],
    )


def former_functions(connection: Connection[Any], source_id: int) -> list[Composable]:
    """Functions that capture once had: bodies stored as parse trees kept tables from rewriting."""
    rows = connection.execute(
        "SELECT p.oid::regprocedure::text FROM pg_proc p"
        " WHERE p.pronamespace = 'idivm_log'::regnamespace AND p.proname LIKE 's' || %s || '\\_pick\\_%%'",
        [source_id],
    )
    return [SQL(row[0]) for row in rows.fetchall()]


def sources_with_other_layouts(connection: Connection[Any], among: Collection[int]) -> list[int]:
    """The sources with members whose columns are not those for which capture was made."""
    rows = connection.execute(
        "SELECT DISTINCT m.source FROM idivm.source_members m JOIN pg_class c ON c.oid = m.member"
        " WHERE m.source = ANY (%s) AND m.layout IS DISTINCT FROM idivm.layout(m.member) ORDER BY 1",
        [list(among)],
    )
    return [row[0] for row in rows.fetchall()]


def source_ids(connection: Connection[Any]) -> list[int]:
    """Every captured relation that is still there."""
    rows = connection.execute(
        "SELECT s.id FROM idivm.sources s JOIN pg_class c ON c.oid = s.relation ORDER BY s.id"
    )
    return [row[0] for row in rows.fetchall()]


def captures_in_c(connection: Connection[Any]) -> bool:
    """Whether capture is to call the function in C: it is there, may be used, and is not refused.

    Nobody but a superuser makes functions in C, so that no other can pass for it.
    """
    row = connection.execute(
        """
        SELECT count(*) = 1 FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
        WHERE p.oid = to_regprocedure('idivm.capture_rows()') AND l.lanname = 'c'
          AND has_function_privilege(p.oid, 'EXECUTE')
          AND current_setting('idivm.accelerate', true) IS DISTINCT FROM 'off'
        """
    ).fetchone()
    return row is not None and bool(row[0])


def trigger_arguments(connection: Connection[Any], source_id: int) -> dict[int, tuple[str, ...]]:
    """What the capture triggers of a source's members call their function with; plpgsql's nothing."""
    rows = connection.execute(
        """
        SELECT m.number, t.tgargs
        FROM idivm.source_members m JOIN pg_trigger t ON t.tgrelid = m.member
        WHERE m.source = %s AND t.tgname = 'idivm_' || m.source || '_update' ORDER BY m.number
        """,
        [source_id],
    )
    return {
        number: tuple(one.decode() for one in arguments.split(b"\0")[:-1])
        for number, arguments in rows.fetchall()
    }


def lost_members(
    connection: Connection[Any], source_id: int
) -> list[tuple[int, Composable | None]]:
    """Numbers and names of what carries capture and does not belong to the source any more.

    What was dropped has no name.
    """
    rows = connection.execute(
        """
        SELECT m.number, m.member::text, c.oid IS NOT NULL
        FROM idivm.source_members m LEFT JOIN pg_class c ON c.oid = m.member
        WHERE m.source = %s AND m.member NOT IN (
            SELECT d FROM idivm.sources s, idivm.descendants(s.relation) d WHERE s.id = m.source)
        ORDER BY m.number
        """,
        [source_id],
    )
    return [(number, SQL(name) if exists else None) for number, name, exists in rows.fetchall()]


def new_members(connection: Connection[Any], source_id: int) -> set[int]:
    """Records the tables that belong to the source and do not carry capture yet; their numbers."""
    rows = connection.execute(
        """
        INSERT INTO idivm.source_members (source, member, number)
        SELECT s.id, d, coalesce((SELECT max(number) FROM idivm.source_members WHERE source = s.id), 0)
                        + row_number() OVER (ORDER BY d::oid)
        FROM idivm.sources s, idivm.descendants(s.relation) d
        WHERE s.id = %s AND NOT EXISTS (
            SELECT FROM idivm.source_members m WHERE m.source = s.id AND m.member = d)
        RETURNING number
        """,
        [source_id],
    )
    return {row[0] for row in rows.fetchall()}


def grants(connection: Connection[Any], relation: Composable) -> list[Grant]:
    """The rights on a relation that others than its owner have."""
    row = connection.execute(
        "SELECT idivm.grants_on(to_regclass(%s))", [relation.as_string(connection)]
    ).fetchone()
    assert row is not None
    return [(privilege, grantee, passed_on) for privilege, grantee, passed_on in row[0]]


def grant(connection: Connection[Any], relation: Composable, rights: Iterable[Grant]) -> None:
    """Gives rights on a relation again, to the roles that are still there."""
    there = {name for (name,) in connection.execute("SELECT rolname FROM pg_roles").fetchall()}
    for privilege, grantee, passed_on in rights:
        if grantee is None or grantee in there:
            connection.execute(
                SQL("GRANT {} ON {} TO {}{}").format(
                    SQL(privilege),
                    relation,
                    SQL("PUBLIC") if grantee is None else Identifier(grantee),
                    SQL(" WITH GRANT OPTION" if passed_on else ""),
                )
            )


def has_children(connection: Connection[Any], source_id: int) -> bool:
    """Whether other tables inherit from a source that is not partitioned."""
    row = connection.execute(
        "SELECT c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid)"
        " FROM idivm.sources s JOIN pg_class c ON c.oid = s.relation WHERE s.id = %s",
        [source_id],
    ).fetchone()
    return row is not None and bool(row[0])


def clear_key(connection: Connection[Any], source_id: int) -> None:
    """Records that a source has no key any more."""
    connection.execute("UPDATE idivm.sources SET keyed = false WHERE id = %s", [source_id])
    connection.execute(
        "UPDATE idivm.source_columns SET in_key = false WHERE source = %s", [source_id]
    )


def invalidate_readers(connection: Connection[Any], source_id: int) -> None:
    """Has the next refresh rebuild the views that read a source."""
    connection.execute(
        "UPDATE idivm.views SET status = 'invalid' WHERE status = 'ready'"
        " AND id IN (SELECT view FROM idivm.view_sources WHERE source = %s)",
        [source_id],
    )


def column_types(
    connection: Connection[Any], oids: dict[str, int], places: Mapping[str, int]
) -> dict[str, ColumnType]:
    """What PostgreSQL's catalog says of some types, which are given and returned by name.

    Of numerics with a declared scale it is known how many `places` they show.
    """
    rows = connection.execute(
        """
        WITH RECURSIVE plain(asked, oid) AS (
            SELECT o, o FROM unnest(%s::oid[]) AS o
          UNION
            SELECT p.asked, t.typbasetype FROM plain p JOIN pg_type t ON t.oid = p.oid WHERE t.typtype = 'd'
        )
        SELECT p.asked, format_type(t.oid, -1),
               (t.typtype IN ('e', 'r', 'm') OR t.typnamespace = 'pg_catalog'::regnamespace)
               AND (EXISTS (
                        SELECT FROM pg_opclass c JOIN pg_am m ON m.oid = c.opcmethod
                        WHERE c.opcdefault AND m.amname = 'btree'
                          AND (c.opcintype = t.oid OR EXISTS (
                                  SELECT FROM pg_cast k WHERE k.castsource = t.oid
                                    AND k.casttarget = c.opcintype AND k.castmethod = 'b')))
                    OR t.typtype IN ('e', 'r', 'm')),
               p.asked <> t.oid
        FROM plain p JOIN pg_type t ON t.oid = p.oid
        WHERE t.typtype <> 'd'
        """,
        [list(set(oids.values()))],
    ).fetchall()
    known = {oid: ColumnType(*facts) for oid, *facts in rows}
    return {
        symbol: replace(known[oid], scale=places.get(symbol))
        for symbol, oid in oids.items()
        if oid in known
    }


def rings(connection: Connection[Any]) -> dict[str, Ring]:
    """The rings that users have registered, by the names of their aggregates."""
    rows = connection.execute(
        """
        SELECT r.schema || '.' || r.name, format_type(lift.prorettype, NULL),
               (SELECT array_agg(format('%I.%I', n.nspname, p.proname) ORDER BY f.place)
                FROM unnest(ARRAY[r.plus, r.times, r.zero, r.one]) WITH ORDINALITY AS f (name, place)
                JOIN pg_proc p ON p.oid = to_regprocedure(f.name) JOIN pg_namespace n ON n.oid = p.pronamespace),
               format('%I.%I(x)', r.schema, r.name || '_sum'),
               format('%I.%I', r.schema, r.name || '_product'),
               format('%I.%I', r.schema, r.name || '_multiple')
        FROM idivm.rings r JOIN pg_proc lift ON lift.oid = to_regprocedure(r.lift)
        """
    ).fetchall()
    # One of a name that is gone is no ring any more.
    return {
        name: Ring(type_, *own, *made) for name, type_, own, *made in rows if len(own or ()) == 4
    }


def note_initialised(
    connection: Connection[Any], view_id: int, initialised: Sequence[Initialised]
) -> None:
    """Remembers where the states of a view were computed, for `explain`."""
    connection.execute(
        "UPDATE idivm.views SET plan = jsonb_set(plan, '{initialised}', %s) WHERE id = %s",
        [ascii_json.dump([asdict(one) for one in initialised]), view_id],
    )


def rebuilt_as_of(connection: Connection[Any], view_id: int, snapshot: str) -> None:
    """Notes that the states of a view hold what they should as of a snapshot.

    Whoever calls it has kept refreshes of the view away since then.
    """
    connection.execute(
        "UPDATE idivm.watermarks SET mark = ROW(%s::pg_snapshot, NULL, NULL)::idivm.watermark,"
        " cluster = idivm.cluster(), refreshed_at = clock_timestamp(), refreshes = refreshes + 1"
        " WHERE view = %s",
        [snapshot, view_id],
    )
    connection.execute(
        "UPDATE idivm.views SET status = CASE WHEN idivm.has_drifted(id) THEN 'invalid' ELSE 'ready' END"
        " WHERE id = %s",
        [view_id],
    )


def distrusted(connection: Connection[Any], definition: int, types: Collection[int]) -> str | None:
    """Why the owner of a definition, or who plans it now, does not trust the code that it calls."""
    row = connection.execute(
        "SELECT coalesce(idivm.distrusted(%(definition)s::oid, %(types)s::oid[]),"
        " idivm.distrusted(%(definition)s::oid, %(types)s::oid[], r.oid))"
        " FROM pg_roles r WHERE r.rolname = current_user",
        {"definition": definition, "types": list(types)},
    ).fetchone()
    assert row is not None
    reason: str | None = row[0]
    return reason


def refuse_forbidden(connection: Connection[Any], view_id: int, name: str) -> None:
    """Refuses a view that may not be maintained by its owner, or looked into by this role."""
    row = connection.execute(
        "SELECT coalesce(idivm.forbidden(v.id), idivm.distrusted(v.definition, v.types, r.oid))"
        " FROM idivm.views v, pg_roles r"
        " WHERE v.id = %s AND v.types IS NOT NULL AND r.rolname = current_user",
        [view_id],
    ).fetchone()
    if row is not None and row[0] is not None:
        raise RightsError(f"The query of {name} is not run: {row[0]}.")


def note_reads(
    connection: Connection[Any],
    view_id: int,
    types: Sequence[int],
    reads: Sequence[tuple[int, int, tuple[int, ...]]],
) -> None:
    """Records what a view reads, and whether others' rights or code are to be checked."""
    names = ("through", "relation", "columns")
    connection.execute(
        "SELECT idivm.note_reads(%s, %s::oid[], %s)",
        [view_id, list(types), Jsonb([dict(zip(names, read, strict=True)) for read in reads])],
    )


def publications_of_ours(connection: Connection[Any]) -> list[str]:
    """The publications for logical replication that take in the tables behind views."""
    rows = connection.execute(
        """
        SELECT quote_ident(p.pubname) FROM pg_publication p
        WHERE p.puballtables OR EXISTS (
            SELECT FROM pg_publication_namespace n
            WHERE n.pnpubid = p.oid AND n.pnnspid::regnamespace::text = ANY (%s))
        ORDER BY p.pubname
        """,
        [list(OWN_SCHEMAS)],
    ).fetchall()
    return [name for (name,) in rows]


def has_drifted(connection: Connection[Any], view_id: int) -> bool:
    """Whether what a view reads is not what it was planned for."""
    row = connection.execute("SELECT idivm.has_drifted(%s)", [view_id]).fetchone()
    return row is not None and bool(row[0])


def has_other_code(connection: Connection[Any], view_id: int) -> bool:
    """Whether what the query of a view calls has changed since its last refresh."""
    row = connection.execute("SELECT idivm.code_drift(%s) IS NOT NULL", [view_id]).fetchone()
    return row == (True,)


def source_names(connection: Connection[Any], view_id: int) -> dict[int, SourceNames]:
    """The captured sources of a view by the oid of their relation."""
    rows = connection.execute(
        "SELECT s.relation::oid, s.id, sc.attnum, sc.name, sc.in_key FROM idivm.view_sources vs"
        " JOIN idivm.sources s ON s.id = vs.source"
        " LEFT JOIN idivm.source_columns sc ON sc.source = s.id WHERE vs.view = %s"
        " ORDER BY sc.attnum",
        [view_id],
    ).fetchall()
    ids = {oid: source_id for oid, source_id, _, _, _ in rows}
    found: dict[int, dict[int, str]] = {oid: {} for oid in ids}
    keys: dict[int, tuple[int, ...]] = dict.fromkeys(ids, ())
    for oid, _, attnum, name, in_key in rows:
        if attnum is not None:
            found[oid][attnum] = name
        if in_key:
            keys[oid] += (attnum,)
    return {oid: SourceNames(ids[oid], columns, keys[oid]) for oid, columns in found.items()}
