"""Queries on relations by name: their kind, their owner, and who may read them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row
from psycopg.sql import SQL, Composable, Identifier
from psycopg.types.json import Jsonb

from orchestrator.catalog.search_path import path_of, users_path
from orchestrator.sqltext import SEARCH_PATH

OWN_SCHEMAS = ("idivm", "idivm_def", "idivm_feed", "idivm_load", "idivm_log", "idivm_state")

Grant = tuple[str, str | None, bool]
"""A privilege, the role that has it (None for everybody), and whether the role may grant it to others."""


def schema_and_name(connection: Connection[Any], name: Composable) -> list[str | None]:
    """Return the parts of a name, with the schema in which the user would create it."""
    with users_path(connection):
        row = connection.execute(
            "SELECT pg_catalog.parse_ident(%s), pg_catalog.current_schema()::pg_catalog.text",
            [name.as_string(connection)],
        ).fetchone()
    assert row is not None
    parts, schema = row
    return parts if len(parts) > 1 else [schema, *parts]


def take_settings(connection: Connection[Any], settings: Mapping[str, str]) -> None:
    """Change settings until the end of the transaction."""
    connection.execute(
        "SELECT set_config(s.key, s.value, true) FROM jsonb_each_text(%s) AS s",
        [Jsonb(dict(settings))],
    )


@contextmanager
def with_settings(connection: Connection[Any], settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings for some statements of a transaction. An error ends the transaction, and so the settings."""
    before = connection.execute(
        "SELECT s.key, current_setting(s.key), set_config(s.key, s.value, true) FROM jsonb_each_text(%s) AS s",
        [Jsonb(dict(settings))],
    ).fetchall()
    yield
    take_settings(connection, {name: value for name, value, _ in before})


def relation_oid(connection: Connection[Any], name: Composable) -> int | None:
    """Return the oid of the relation that a name means on the user's search path."""
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
    """Return whether a name means a relation."""
    return relation_oid(connection, name) is not None


def give_to_owner_of(connection: Connection[Any], name: Composable, other: Composable) -> None:
    """Give a view to the owner of another view, unless the current role owns that view."""
    row = connection.execute(
        "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = to_regclass(%s)"
        " AND pg_get_userbyid(relowner) <> current_user",
        [other.as_string(connection)],
    ).fetchone()
    if row is not None:
        connection.execute(SQL("ALTER VIEW {} OWNER TO {}").format(name, Identifier(row[0])))


def is_plain_view(connection: Connection[Any], name: Composable) -> bool:
    """Return whether a name means a view."""
    row = connection.execute(
        "SELECT FROM pg_class WHERE oid = to_regclass(%s) AND relkind = 'v'",
        [name.as_string(connection)],
    ).fetchone()
    return row is not None


def visible_relations(connection: Connection[Any]) -> list[str]:
    """Return the tables and views that the user can name without a schema."""
    with users_path(connection):
        rows = connection.execute(
            "SELECT c.relname FROM pg_catalog.pg_class c"
            " WHERE pg_catalog.pg_table_is_visible(c.oid)"
            " AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,v,m,f,p}'::\"char\"[])"
            " AND c.relnamespace OPERATOR(pg_catalog.<>) 'pg_catalog'::pg_catalog.regnamespace"
        ).fetchall()
    return [row[0] for row in rows]


def names_behind(connection: Connection[Any]) -> dict[str, str]:
    """Return the objects behind maintained views, with the names of the views that the user knows."""
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
    for (ours, _), name in zip(
        rows, visible_names(connection, [name for _, name in rows]), strict=True
    ):
        behind.setdefault(ours, []).append(name)
    return {ours: ", ".join(names) for ours, names in behind.items()}


def reads_by(connection: Connection[Any], view_id: int) -> str | None:
    """Return how a read of an on_read view computes its rows: `content`, `content and pending changes`, or `query`."""
    row = connection.execute("SELECT idivm.reads_by(%s)", [view_id]).fetchone()
    return None if row is None else row[0]


def grant(connection: Connection[Any], relation: Composable, rights: Iterable[Grant]) -> None:
    """Grant rights on a relation again to the roles that still exist."""
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


def distrusted(connection: Connection[Any], definition: int, types: Collection[int]) -> str | None:
    """Return why the owner of a definition, or the current role, does not trust the code that it calls."""
    row = connection.execute(
        "SELECT coalesce(idivm.distrusted(%(definition)s::oid, %(types)s::oid[]),"
        " idivm.distrusted(%(definition)s::oid, %(types)s::oid[], r.oid))"
        " FROM pg_roles r WHERE r.rolname = current_user",
        {"definition": definition, "types": list(types)},
    ).fetchone()
    assert row is not None
    reason: str | None = row[0]
    return reason


def publications_of_ours(connection: Connection[Any]) -> list[str]:
    """Return the publications for logical replication that include the tables behind views."""
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


def visible_names(connection: Connection[Any], names: Sequence[str]) -> list[str]:
    """Return names of relations, given with schemas, as the user's search path shows them."""
    path = path_of(connection)
    if path is None or not names:
        return list(names)
    # The calls run from left to right, and the statement is parsed under the pinned path.
    row = connection.execute(
        "SELECT set_config('search_path', %s, false), ARRAY("
        # For a dropped relation, only a number is left.
        "SELECT CASE WHEN n ~ '^[0-9-]' THEN n ELSE coalesce(to_regclass(n)::text, n) END"
        " FROM unnest(%s::text[]) AS n),"
        " set_config('search_path', %s, false)",
        [path, list(names), SEARCH_PATH],
    ).fetchone()
    assert row is not None
    return list(row[1])


@dataclass(frozen=True)
class JoinView:
    """A maintained view that stores a join for views of its owner."""

    id: int
    oid: int
    schema: str
    name: str
    definition: int


_JOIN_VIEWS = SQL("""
    SELECT v.id, v.relation::oid AS oid, n.nspname AS schema, c.relname AS name, v.definition::oid AS definition
    FROM idivm.views v JOIN pg_class c ON c.oid = v.relation JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE v.status <> 'building' AND {}
    ORDER BY v.id
""")

_OF_TABLES = SQL("""
    v.common_join AND c.relowner = current_user::regrole AND %s::oid[] = (
        SELECT array_agg(s.relation::oid ORDER BY s.relation::oid)
        FROM idivm.view_sources vs JOIN idivm.sources s ON s.id = vs.source WHERE vs.view = v.id)
""")


def join_views(connection: Connection[Any], tables: Collection[int]) -> list[JoinView]:
    """Return the stored joins of the current role over exactly these tables, which are given by OID."""
    with connection.cursor(row_factory=class_row(JoinView)) as cursor:
        query = _JOIN_VIEWS.format(_OF_TABLES)
        return cursor.execute(query, [sorted(tables)]).fetchall()


def join_view(connection: Connection[Any], view_id: int) -> JoinView | None:
    """Return a maintained view as one that stores a join, if it still exists."""
    with connection.cursor(row_factory=class_row(JoinView)) as cursor:
        return cursor.execute(_JOIN_VIEWS.format(SQL("v.id = %s")), [view_id]).fetchone()


def keep_for_readers(connection: Connection[Any], view_id: int) -> None:
    """Have a view that stores a join go with the last view that reads it, and stay until this transaction ends."""
    connection.execute(
        "SELECT pg_advisory_xact_lock(idivm.lock_class(), v.id) FROM idivm.views v"
        " WHERE v.id = %s AND v.id NOT IN (SELECT idivm.synchronous_views())",
        [view_id],
    )
    connection.execute(
        "UPDATE idivm.views SET common_join = true WHERE id = %s AND common_join IS NOT TRUE",
        [view_id],
    )


def column_widths(
    connection: Connection[Any], tables: Collection[int]
) -> dict[tuple[int, int], int]:
    """Return the bytes of the columns of tables that the current role may read, by table and number.

    A column whose width PostgreSQL has not measured counts 32 bytes. Virtual columns are left out.
    """
    rows = connection.execute(
        "SELECT a.attrelid::bigint, a.attnum::integer,"
        " CASE WHEN a.attlen > 0 THEN a.attlen ELSE coalesce(nullif(s.avg_width, 0), 32) END::integer"
        " FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
        " LEFT JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = a.attname"
        "   AND s.inherited = (c.relkind = 'p')"
        " WHERE a.attrelid = ANY (%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> 'v'"
        " AND has_column_privilege(c.oid, a.attnum, 'SELECT')",
        [sorted(tables)],
    ).fetchall()
    return {(table, number): width for table, number, width in rows}
