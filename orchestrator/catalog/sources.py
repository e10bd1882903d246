"""Queries on captured tables, and on the facts about their columns that plans use."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Composable

from orchestrator.algebra.column_type import ColumnType
from orchestrator.algebra.ring import Ring
from orchestrator.catalog import ascii_json
from orchestrator.catalog.views import read_plan
from orchestrator.deltascript.capture.table import Captured, Layout
from orchestrator.deltascript.names import SourceNames
from orchestrator.deltascript.plan import BagTable, Source, SourceColumn, StateTable


def stored_content(connection: Connection[Any], view_id: int) -> tuple[Source, frozenset[int]]:
    """Return the table that holds a view's content, with its hidden columns that identify rows.

    Also return the numbers of the columns that never hold NULL.
    """
    row = connection.execute(
        "SELECT c.oid, n.nspname, c.relname, v.plan::text FROM idivm.views v"
        " JOIN pg_class c ON c.oid = v.state JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE v.id = %s",
        [view_id],
    ).fetchone()
    assert row is not None
    oid, schema, name, plan = row
    program = read_plan(ascii_json.load(plan), name).program
    content = program.state(program.content)
    sure: tuple[str, ...] = ()
    if isinstance(content, BagTable):
        identity = content.identity
        hidden: tuple[str, ...] = (identity.row, identity.nth) if identity else ()
        equality = "exact"
    else:
        assert isinstance(content, StateTable)
        # If the key may be NULL, the content of a row identifies it.
        hidden, equality = () if content.nullable else content.key, "coarse"
        sure = content.not_null
    sure = (*hidden, *sure)
    columns = connection.execute(
        "SELECT a.attnum, a.attname, true, format_type(coalesce(nullif(t.typbasetype, 0), t.oid),"
        " CASE WHEN t.typbasetype = 0 THEN a.atttypmod ELSE t.typtypmod END), %s"
        " FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid"
        " WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        [equality, oid],
    ).fetchall()
    source = Source(oid, schema, name, tuple(SourceColumn(*c) for c in columns if c[1] in hidden))
    return source, frozenset(number for number, called, *_ in columns if called in sure)


@dataclass(frozen=True)
class Member:
    """A table that carries the capture triggers of a source."""

    number: int
    name: Composable
    layout: Layout
    root: bool = False
    """Whether it is the source's own relation, not a partition or child."""


def load_source(connection: Connection[Any], source_id: int) -> Captured:
    """Return a captured relation with the present names of its columns."""
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
    named = tuple((SourceColumn(*facts), name) for *facts, name in columns)
    return Captured(source_id, SQL(relation), named, placeholder)


def is_read_within_bounds(connection: Connection[Any], source_id: int) -> bool:
    """Return whether refreshes can read the changes of a source that one snapshot sees, as of this version."""
    row = connection.execute(
        "SELECT pg_get_function_sqlbody(to_regproc(format('idivm_log.%%I', %s::text))) LIKE '%%is_within%%'",
        [f"s{source_id}_pending_changes"],
    ).fetchone()
    return row == (True,)


def sources_without_capture(connection: Connection[Any], among: Collection[int]) -> list[int]:
    """Return the sources whose capture has lost a part."""
    rows = connection.execute(
        "SELECT s.id FROM idivm.sources s JOIN pg_class c ON c.oid = s.relation"
        " WHERE s.id = ANY (%s) AND idivm.capture_is_broken(s.id) ORDER BY s.id",
        [list(among)],
    )
    return [row[0] for row in rows.fetchall()]


def sources_without_their_key(connection: Connection[Any], among: Collection[int]) -> list[int]:
    """Return the sources whose key was dropped."""
    rows = connection.execute(
        "SELECT s.id FROM idivm.sources s JOIN pg_class c ON c.oid = s.relation"
        " WHERE s.id = ANY (%s) AND s.keyed AND idivm.key_is_gone(s.id) ORDER BY s.id",
        [list(among)],
    )
    return [row[0] for row in rows.fetchall()]


def sources_with_other_members(connection: Connection[Any], among: Collection[int]) -> list[int]:
    """Return the sources whose partitions or inheritance children differ from the members with capture."""
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
    """Return the tables that carry the capture triggers of a source."""
    rows = connection.execute(
        """
        SELECT m.number, m.member::text, c.relkind = 'p', c.oid = s.relation, c.oid,
               coalesce(array_agg(a.attnum ORDER BY a.attnum) FILTER (WHERE a.attnum > 0), '{}'),
               coalesce(array_agg(a.attname::text ORDER BY a.attnum) FILTER (WHERE a.attnum > 0), '{}'),
               idivm.is_stream(c.oid)
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
            Layout(oid, tuple(zip(attnums, names, strict=True)), partitioned, is_stream),
            root=root,
        )
        for number, name, partitioned, root, oid, attnums, names, is_stream in rows.fetchall()
    ]


def note_layout(connection: Connection[Any], source_id: int, number: int) -> None:
    """Record the columns of a member for which its capture functions were just created."""
    connection.execute(
        "UPDATE idivm.source_members SET layout = idivm.layout(member) WHERE source = %s AND number = %s",
        [source_id, number],
    )


def former_functions(connection: Connection[Any], source_id: int) -> list[Composable]:
    """Return functions that earlier versions of capture created. Their bodies, stored as parse trees, kept
    tables from rewriting.
    """
    rows = connection.execute(
        "SELECT p.oid::regprocedure::text FROM pg_proc p"
        " WHERE p.pronamespace = 'idivm_log'::regnamespace AND p.proname LIKE 's' || %s || '\\_pick\\_%%'",
        [source_id],
    )
    return [SQL(row[0]) for row in rows.fetchall()]


def sources_with_other_layouts(connection: Connection[Any], among: Collection[int]) -> list[int]:
    """Return the sources with members whose columns differ from the columns at the creation of their capture."""
    rows = connection.execute(
        "SELECT DISTINCT m.source FROM idivm.source_members m JOIN pg_class c ON c.oid = m.member"
        " WHERE m.source = ANY (%s) AND m.layout IS DISTINCT FROM idivm.layout(m.member) ORDER BY 1",
        [list(among)],
    )
    return [row[0] for row in rows.fetchall()]


def source_ids(connection: Connection[Any]) -> list[int]:
    """Return the IDs of all captured relations that still exist."""
    rows = connection.execute(
        "SELECT s.id FROM idivm.sources s JOIN pg_class c ON c.oid = s.relation ORDER BY s.id"
    )
    return [row[0] for row in rows.fetchall()]


def captures_in_c(connection: Connection[Any]) -> bool:
    """Return whether capture should call the function in C: it exists, may be called, and is not turned off.

    Only a superuser can create functions in C, so no other function can pass for it.
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
    """Return the arguments of the capture triggers of a source's members. Triggers in plpgsql have none."""
    rows = connection.execute(
        """
        SELECT m.number, t.tgargs
        FROM idivm.source_members m JOIN pg_trigger t ON t.tgrelid = m.member
        WHERE m.source = %s AND t.tgname = 'idivm_' || m.source || '_update' ORDER BY m.number
        """,
        [source_id],
    )
    return {
        number: tuple(part.decode() for part in arguments.split(b"\0")[:-1])
        for number, arguments in rows.fetchall()
    }


def lost_members(
    connection: Connection[Any], source_id: int
) -> list[tuple[int, Composable | None]]:
    """Return the numbers and names of members that carry capture and no longer belong to the source.

    A dropped member has no name.
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
    """Record the tables that belong to the source and have no capture yet. Return their numbers."""
    rows = connection.execute(
        """
        INSERT INTO idivm.source_members (source, member, number, file)
        SELECT s.id, d, coalesce((SELECT max(number) FROM idivm.source_members WHERE source = s.id), 0)
                        + row_number() OVER (ORDER BY d::oid), c.relfilenode
        FROM idivm.sources s, idivm.descendants(s.relation) d JOIN pg_class c ON c.oid = d
        WHERE s.id = %s AND NOT EXISTS (
            SELECT FROM idivm.source_members m WHERE m.source = s.id AND m.member = d)
        RETURNING number
        """,
        [source_id],
    )
    return {row[0] for row in rows.fetchall()}


def has_children(connection: Connection[Any], source_id: int) -> bool:
    """Return whether other tables inherit from a source that is not partitioned."""
    row = connection.execute(
        "SELECT c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid)"
        " FROM idivm.sources s JOIN pg_class c ON c.oid = s.relation WHERE s.id = %s",
        [source_id],
    ).fetchone()
    return row is not None and bool(row[0])


def take_key(connection: Connection[Any], source_id: int, key: Collection[int]) -> bool:
    """Record the key of a source that had none. Return whether the table has this key, and no children."""
    connection.execute("UPDATE idivm.sources SET keyed = true WHERE id = %s", [source_id])
    connection.execute(
        "UPDATE idivm.source_columns SET in_key = attnum = ANY (%s) WHERE source = %s",
        [list(key), source_id],
    )
    if not has_children(connection, source_id) and not sources_without_their_key(
        connection, [source_id]
    ):
        return True
    clear_key(connection, source_id)
    return False


def clear_key(connection: Connection[Any], source_id: int) -> None:
    """Record that a source no longer has a key."""
    connection.execute("UPDATE idivm.sources SET keyed = false WHERE id = %s", [source_id])
    connection.execute(
        "UPDATE idivm.source_columns SET in_key = false WHERE source = %s", [source_id]
    )


def invalidate_readers(connection: Connection[Any], source_id: int) -> None:
    """Make the next refresh rebuild the views that read a source."""
    connection.execute(
        "UPDATE idivm.views SET status = 'invalid' WHERE status = 'ready'"
        " AND id IN (SELECT view FROM idivm.view_sources WHERE source = %s)",
        [source_id],
    )


def column_types(
    connection: Connection[Any], oids: dict[str, int], places: Mapping[str, int]
) -> dict[str, ColumnType]:
    """Return the facts of PostgreSQL's catalog about some types, which are given and returned by name.

    For numeric columns with a declared scale, `places` holds that scale.
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
    """Return the rings that users have registered, by the names of their aggregates."""
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
    # A ring is unusable if a function that it names is gone.
    return {
        name: Ring(type_, *own, *functions)
        for name, type_, own, *functions in rows
        if len(own or ()) == 4
    }


def source_names(connection: Connection[Any], view_id: int) -> dict[int, SourceNames]:
    """Return the captured sources of a view by the oid of their relation."""
    rows = connection.execute(
        "SELECT s.relation::oid, s.id, sc.attnum, sc.name, sc.in_key FROM idivm.view_sources vs"
        " JOIN idivm.sources s ON s.id = vs.source"
        " LEFT JOIN idivm.source_columns sc ON sc.source = s.id WHERE vs.view = %s"
        " ORDER BY sc.attnum",
        [view_id],
    ).fetchall()
    ids = {oid: source_id for oid, source_id, _, _, _ in rows}
    columns_of: dict[int, dict[int, str]] = {oid: {} for oid in ids}
    keys: dict[int, tuple[int, ...]] = dict.fromkeys(ids, ())
    for oid, _, attnum, name, in_key in rows:
        if attnum is not None:
            columns_of[oid][attnum] = name
        if in_key:
            keys[oid] += (attnum,)
    return {oid: SourceNames(ids[oid], columns, keys[oid]) for oid, columns in columns_of.items()}
