"""Queries that examine whether the objects of idivm in a database are complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Composable, Composed

from orchestrator.catalog.relations import visible_names
from orchestrator.deltascript.names import Names


@dataclass(frozen=True)
class Index:
    """The properties of an index that decide whether another index equals it."""

    unique: bool
    nulls_distinct: bool
    keys: str


@dataclass(frozen=True)
class Orphan:
    """An object in idivm's schemas, or a capture trigger, that belongs to no view of the catalog."""

    name: str
    drop: Composed | None
    """The statement that removes it; None if idivm may not have created it."""


@dataclass(frozen=True)
class LeftBehind:
    """A relation that shows a state table and has no row in the catalog."""

    relation: str
    id: int | None
    """The ID in the name of its definition view, if that view still exists."""


def names_in_catalog(connection: Connection[Any]) -> dict[int, str]:
    """Return the names of all views in the catalog by ID, including half-created views."""
    rows = connection.execute("SELECT id, name FROM idivm.views ORDER BY id").fetchall()
    return dict(rows)


def orphans(connection: Connection[Any]) -> list[Orphan]:
    """Return the orphans: objects that belong to no view of the catalog.

    An orphan is idivm's own if its name has the form of idivm's names and contains an ID that a view or
    source once had.
    """
    rows = connection.execute(
        """
        WITH owned(base) AS (
            SELECT 's' || id FROM idivm.sources
        ), given(views, sources) AS (
            SELECT pg_sequence_last_value(pg_get_serial_sequence('idivm.views', 'id')),
                   pg_sequence_last_value(pg_get_serial_sequence('idivm.sources', 'id'))
        ), lost(place, name, kind, what, number, is_view) AS (
            SELECT CASE c.relkind WHEN 'v' THEN 3 WHEN 'r' THEN 4 ELSE 5 END, c.oid::regclass::text,
                   CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'r' THEN 'TABLE' ELSE 'SEQUENCE' END,
                   c.oid::regclass::text,
                   CASE c.relnamespace::regnamespace::text
                        WHEN 'idivm_def' THEN substring(c.relname, '^[cksvqw]([0-9]{1,9})$')
                        WHEN 'idivm_log' THEN substring(c.relname, '^s([0-9]{1,9})(?:_a|_b|_seq|_image|_changes)?$')
                        ELSE substring(c.relname, '_([0-9]{1,9})$') END::bigint,
                   c.relnamespace = 'idivm_state'::regnamespace OR c.relname ~ '^[ckvqw]'
            FROM pg_class c
            WHERE c.relnamespace = ANY (ARRAY['idivm_def', 'idivm_log', 'idivm_state']::regnamespace[])
              AND c.relkind IN ('r', 'v', 'S')
              AND c.oid NOT IN (SELECT definition FROM idivm.views WHERE definition IS NOT NULL)
              AND c.oid NOT IN (SELECT state FROM idivm.views WHERE state IS NOT NULL)
              AND NOT (c.relnamespace = 'idivm_def'::regnamespace
                       AND EXISTS (SELECT FROM idivm.views v WHERE c.relname ~ ('^[qck]' || v.id || '$')))
              AND NOT (c.relnamespace = 'idivm_def'::regnamespace
                       AND EXISTS (SELECT FROM idivm.unplanned_views u WHERE c.relname = 'w' || u.number))
              AND NOT (c.relnamespace = 'idivm_state'::regnamespace
                       AND EXISTS (SELECT FROM idivm.views v WHERE c.relname ~ ('_' || v.id || '$')))
              AND NOT EXISTS (SELECT FROM owned WHERE c.relname = base OR c.relname LIKE base || '\\_%')
            UNION ALL
            SELECT 2, p.oid::regprocedure::text, 'FUNCTION', p.oid::regprocedure::text,
                   substring(p.proname, '^(?:refresh_|content_|read_|clock_|s)([0-9]{1,9})(?:_|$)')::bigint,
                   p.pronamespace = 'idivm_state'::regnamespace
            FROM pg_proc p
            WHERE p.pronamespace = ANY (ARRAY['idivm_log', 'idivm_state']::regnamespace[])
              AND p.proname NOT IN (
                  SELECT format(form, v.id) FROM idivm.views AS v CROSS JOIN unnest(ARRAY[
                      'refresh_%s', 'content_%s', 'read_%s', 'clock_%s', 'clock_%s_moved', 'clock_%s_quiet']) AS form)
              AND NOT EXISTS (SELECT FROM owned WHERE p.proname LIKE base || '\\_%')
            UNION ALL
            SELECT 1, format('trigger %s on %s', t.tgname, t.tgrelid::regclass), 'TRIGGER',
                   format('%I ON %s', t.tgname, t.tgrelid::regclass),
                   CASE WHEN p.pronamespace IN ('idivm_log'::regnamespace, 'idivm'::regnamespace)
                        THEN substring(t.tgname, '^idivm_([0-9]{1,9})_')::bigint END, false
            FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
            WHERE t.tgname ~ '^idivm_[0-9]+_' AND NOT EXISTS (
                SELECT FROM idivm.source_members m
                WHERE m.member = t.tgrelid AND t.tgname LIKE 'idivm\\_' || m.source || '\\_%')
        )
        SELECT l.name, l.kind, l.what,
               coalesce(l.number <= CASE WHEN l.is_view THEN g.views ELSE g.sources END, false)
        FROM lost l, given g ORDER BY l.place, l.name
        """
    ).fetchall()
    # PostgreSQL itself wrote the names, and quoted them where necessary.
    return [
        Orphan(name, SQL("DROP {} {}").format(SQL(kind), SQL(what)) if ours else None)
        for name, kind, what, ours in rows
    ]


def left_behind(connection: Connection[Any]) -> list[LeftBehind]:
    """Return the relations of maintained views that have no row in the catalog any more."""
    rows = connection.execute(
        """
        SELECT c.oid::regclass::text, (
                   SELECT max(substring(def.relname, '^v([0-9]{1,9})$')::integer)
                   FROM pg_rewrite r
                   JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
                                   AND d.refclassid IN ('pg_type'::regclass, 'pg_class'::regclass)
                   LEFT JOIN pg_type t ON d.refclassid = 'pg_type'::regclass AND t.oid = d.refobjid
                   JOIN pg_class def ON def.oid = CASE WHEN t.oid IS NULL THEN d.refobjid ELSE t.typrelid END
                                    AND def.relnamespace = 'idivm_def'::regnamespace
                   WHERE r.ev_class = c.oid)
        FROM pg_class c
        WHERE c.relkind = 'v' AND c.oid NOT IN (SELECT relation FROM idivm.views WHERE relation IS NOT NULL)
          AND c.oid NOT IN (SELECT relation FROM idivm.unplanned_views)
          AND EXISTS (SELECT FROM pg_trigger t
                      WHERE t.tgrelid = c.oid AND t.tgfoid = 'idivm.refuse_write()'::regprocedure)
        ORDER BY 1
        """
    )
    return [LeftBehind(*row) for row in rows.fetchall()]


def adopt(connection: Connection[Any], left: LeftBehind) -> None:
    """Record a view again that the catalog has lost. Its next refresh plans and rebuilds it."""
    connection.execute(
        """
        INSERT INTO idivm.views (id, name, relation, definition, state, status, strategy, maintain, query)
        SELECT %(id)s, format('%%I.%%I', n.nspname, c.relname), c.oid, def.oid,
               (SELECT max(d.refobjid) FROM pg_rewrite r
                JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
                                AND d.refclassid = 'pg_class'::regclass
                JOIN pg_class s ON s.oid = d.refobjid AND s.relnamespace = 'idivm_state'::regnamespace
                WHERE r.ev_class = c.oid),
               'invalid', 'auto', 'deferred',
               rtrim(pg_get_viewdef(coalesce(to_regclass('idivm_def.q' || %(id)s), def.oid)), ';')
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, pg_class def
        WHERE c.oid = %(relation)s::regclass AND def.oid = ('idivm_def.v' || %(id)s)::regclass
        """,
        {"id": left.id, "relation": left.relation},
    )
    restore_watermark(connection, left.id)


def restore_watermark(connection: Connection[Any], view_id: int | None) -> None:
    """Insert the missing watermark of a view that is to be rebuilt."""
    connection.execute(
        "INSERT INTO idivm.watermarks (view, mark, cluster, refreshed_at)"
        " VALUES (%s, ROW(pg_current_snapshot(), NULL, NULL, NULL)::idivm.watermark, idivm.cluster(), now())"
        " ON CONFLICT DO NOTHING",
        [view_id],
    )


def lacks_watermark(connection: Connection[Any], view_id: int) -> bool:
    """Return whether the watermark of a view is missing."""
    row = connection.execute("SELECT FROM idivm.watermarks WHERE view = %s", [view_id]).fetchone()
    return row is None


def has_content_only(connection: Connection[Any], view_id: int) -> bool:
    """Return whether only the content of a view is current, and not the states behind it."""
    row = connection.execute(
        "SELECT FROM idivm.watermarks WHERE view = %s AND content_only", [view_id]
    ).fetchone()
    return row is not None


def knows_its_tables(connection: Connection[Any], view_id: int) -> bool:
    """Return whether the plan of a view names the tables that it reads by their present oids."""
    row = connection.execute(
        "SELECT bool_and(EXISTS (SELECT FROM idivm.sources s"
        "                        WHERE s.relation = (p ->> 'oid')::oid))"
        " FROM idivm.views v, jsonb_array_elements(v.plan -> 'program' -> 'sources') AS p WHERE v.id = %s",
        [view_id],
    ).fetchone()
    return row is not None and row[0] is True


def count_sources(connection: Connection[Any], view_id: int) -> int:
    """Return how many captured tables the catalog records for a view."""
    row = connection.execute(
        "SELECT count(*) FROM idivm.view_sources WHERE view = %s", [view_id]
    ).fetchone()
    assert row is not None
    return int(row[0])


def invalidate(connection: Connection[Any], view_id: int) -> None:
    """Make the next refresh rebuild a view."""
    connection.execute("UPDATE idivm.views SET status = 'invalid' WHERE id = %s", [view_id])


def standing(connection: Connection[Any], names: list[str]) -> set[str]:
    """Return which of the named tables and views of idivm_state exist."""
    rows = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'idivm_state'::regnamespace"
        " AND relkind IN ('r', 'v') AND relname = ANY (%s)",
        [names],
    )
    return {row[0] for row in rows.fetchall()}


def columns(connection: Connection[Any], table: Composable) -> list[tuple[str, str]]:
    """Return the columns of a table with their types."""
    return connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        [table.as_string(connection)],
    ).fetchall()


def declared(connection: Connection[Any], relation: Composable) -> dict[str, str]:
    """Return the types of a relation's columns with their collations, as a cast accepts them."""
    rows = connection.execute(
        "SELECT a.attname, concat_ws(' COLLATE ', format_type(a.atttypid, a.atttypmod),"
        " quote_ident(n.nspname) || '.' || quote_ident(c.collname))"
        " FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation"
        " LEFT JOIN pg_namespace n ON n.oid = c.collnamespace"
        " WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0",
        [relation.as_string(connection)],
    )
    return dict(rows.fetchall())


def query_of(connection: Connection[Any], view: Composable) -> str:
    """Return the query of a view as PostgreSQL prints it."""
    row = connection.execute(
        "SELECT pg_get_viewdef(to_regclass(%s))", [view.as_string(connection)]
    ).fetchone()
    assert row is not None
    return str(row[0])


def indexes(connection: Connection[Any], table: Composable) -> list[Index]:
    """Return the valid indexes of a table."""
    rows = connection.execute(
        "SELECT i.indisunique, NOT i.indnullsnotdistinct,"
        " (SELECT string_agg(pg_get_indexdef(i.indexrelid, k, false), ', ' ORDER BY k)"
        "  FROM generate_series(1, i.indnkeyatts) AS k)"
        " FROM pg_index i WHERE i.indrelid = to_regclass(%s) AND i.indisvalid AND i.indisready"
        " AND i.indpred IS NULL ORDER BY i.indexrelid",
        [table.as_string(connection)],
    )
    return [Index(*row) for row in rows.fetchall()]


def routines(connection: Connection[Any], source_id: int) -> dict[str, str]:
    """Return the capture functions of a source with their texts."""
    rows = connection.execute(
        "SELECT p.oid::regprocedure::text, pg_get_functiondef(p.oid) FROM pg_proc p"
        " WHERE p.pronamespace = 'idivm_log'::regnamespace"
        " AND substring(p.proname, '^s([0-9]{1,9})_')::integer = %s",
        [source_id],
    )
    return dict(rows.fetchall())


def is_guarded(connection: Connection[Any], relation: str) -> bool:
    """Return whether the relation that users read refuses writes."""
    row = connection.execute(
        "SELECT FROM pg_trigger t WHERE t.tgrelid = to_regclass(%s) AND t.tgenabled <> 'D'"
        " AND t.tgfoid IN ('idivm.refuse_write()'::regprocedure, 'idivm.refuse_direct_write()'::regprocedure)"
        " AND (t.tgname = 'idivm_maintained' AND (SELECT c.relkind = 'v' FROM pg_class c WHERE c.oid = t.tgrelid)"
        " OR t.tgname = 'idivm_columns' AND EXISTS (SELECT FROM pg_trigger o WHERE o.tgrelid = t.tgrelid"
        " AND o.tgname = 'idivm_maintained' AND o.tgenabled <> 'D'))",
        [relation],
    ).fetchone()
    return row is not None


def table_is_whole(connection: Connection[Any], view_id: int) -> bool:
    """Return whether the table that users read has its columns, and the parts by which refreshes reach it."""
    row = connection.execute("SELECT idivm.table_is_whole(%s)", [view_id]).fetchone()
    return row == (True,)


def is_shown(connection: Connection[Any], view_id: int) -> bool:
    """Return whether the relation that users read still shows the maintained content."""
    row = connection.execute("SELECT idivm.is_shown(%s)", [view_id]).fetchone()
    return row == (True,)


def program(connection: Connection[Any], names: Names) -> list[tuple[str, list[str]]]:
    """Return the texts and settings of a view's refresh function, and of the function for its content alone."""
    return connection.execute(
        "SELECT prosrc, ARRAY(SELECT unnest(proconfig) ORDER BY 1) FROM pg_proc"
        " WHERE pronamespace = 'idivm_state'::regnamespace AND proname = ANY (%s) ORDER BY proname",
        [[names.program, names.content_program]],
    ).fetchall()


def all_sources(connection: Connection[Any]) -> list[tuple[int, str]]:
    """Return the IDs and names of the captured tables that exist."""
    rows = connection.execute(
        "SELECT s.id, coalesce(v.relation, s.relation)::text FROM idivm.sources s"
        " JOIN pg_class c ON c.oid = s.relation"
        " LEFT JOIN idivm.views v ON v.state = s.relation ORDER BY s.id"
    ).fetchall()
    names = visible_names(connection, [name for _, name in rows])
    return [(number, name) for (number, _), name in zip(rows, names, strict=True)]


def readers_of_unlogged(connection: Connection[Any], ids: Sequence[int]) -> set[int]:
    """Return which of the given views read unlogged tables, directly or through other views."""
    query = (
        "SELECT b.id FROM (SELECT id, idivm.refresh_order(ARRAY[id]) AS below"
        " FROM unnest(%s::integer[]) AS id) AS b WHERE idivm.reads_unlogged(b.below)"
    )
    return {row[0] for row in connection.execute(query, [list(ids)])}


def readers_of_source(connection: Connection[Any], source_id: int) -> list[int]:
    """Return the IDs of the views that read a captured table."""
    rows = connection.execute(
        "SELECT view FROM idivm.view_sources WHERE source = %s ORDER BY view", [source_id]
    )
    return [row[0] for row in rows.fetchall()]


def log_is_whole(connection: Connection[Any], source_id: int) -> bool:
    """Return whether the log of a source and its definition view have all their parts and columns."""
    row = connection.execute(
        """
        SELECT to_regclass('idivm_def.s' || s.id) IS NOT NULL
               AND to_regclass('idivm_log.s' || s.id) IS NOT NULL
               AND to_regclass('idivm_log.s' || s.id || '_seq') IS NOT NULL
               AND NOT EXISTS (
                   SELECT FROM unnest(ARRAY['_a', '_b']) AS suffix
                   CROSS JOIN LATERAL (
                       SELECT sc.attnum, side || '_' || sc.attnum AS name
                       FROM idivm.source_columns sc CROSS JOIN unnest(ARRAY['o', 'n']) AS side
                       WHERE sc.source = s.id
                     UNION ALL
                       SELECT 0, fixed FROM unnest(ARRAY['seq', 'xid', 'op']) AS fixed
                   ) AS wanted
                   WHERE NOT EXISTS (
                       SELECT FROM pg_attribute a
                       WHERE a.attrelid = to_regclass('idivm_log.s' || s.id || suffix)
                         AND a.attname = wanted.name AND NOT a.attisdropped))
               AND NOT EXISTS (
                   SELECT FROM idivm.source_columns sc
                   WHERE sc.source = s.id AND NOT EXISTS (
                       SELECT FROM pg_attribute a
                       WHERE a.attrelid = to_regclass('idivm_def.s' || s.id)
                         AND a.attname = sc.name AND NOT a.attisdropped))
        FROM idivm.sources s WHERE s.id = %s
        """,
        [source_id],
    ).fetchone()
    return row is not None and bool(row[0])


def uninstall_source(connection: Connection[Any], source_id: int) -> None:
    """Remove a source and everything that is left of it. Its readers must be planned again."""
    connection.execute("SELECT idivm.hold_logs(%s)", [[source_id]])
    connection.execute("DELETE FROM idivm.view_sources WHERE source = %s", [source_id])
    connection.execute("SELECT idivm.uninstall_source(%s)", [source_id])


def members_without_triggers(connection: Connection[Any]) -> list[tuple[int, int, str]]:
    """Return the tables without working capture triggers: source, number among its members, name."""
    rows = connection.execute(
        "SELECT m.source, m.number, c.oid::regclass::text FROM idivm.source_members m"
        " JOIN pg_class c ON c.oid = m.member"
        " WHERE NOT idivm.carries_capture(m.source, m.member) ORDER BY m.source, m.number"
    ).fetchall()
    names = visible_names(connection, [name for *_, name in rows])
    return [(source, number, name) for (source, number, _), name in zip(rows, names, strict=True)]


def broken_duties(connection: Connection[Any]) -> list[tuple[str, int]]:
    """Return the tables of synchronous views that lack a trigger of the modes, with their sources."""
    rows = connection.execute(
        "SELECT member::text, source FROM idivm.broken_duties() ORDER BY 1, 2"
    ).fetchall()
    names = visible_names(connection, [name for name, _ in rows])
    return [(name, source) for (_, source), name in zip(rows, names, strict=True)]


def has_drifted(connection: Connection[Any], view_id: int) -> bool:
    """Return whether something that a view reads differs from what it was planned for."""
    row = connection.execute("SELECT idivm.has_drifted(%s)", [view_id]).fetchone()
    return row is not None and bool(row[0])


def has_other_code(connection: Connection[Any], view_id: int) -> bool:
    """Return whether code that the query of a view calls has changed since its last refresh."""
    row = connection.execute("SELECT idivm.code_drift(%s) IS NOT NULL", [view_id]).fetchone()
    return row == (True,)
