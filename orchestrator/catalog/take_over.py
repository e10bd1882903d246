"""Queries on relations that idivm adopts, and on the indexes of users on the contents of views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row
from psycopg.sql import SQL, Composable

from orchestrator.catalog.relations import OWN_SCHEMAS
from orchestrator.catalog.search_path import path_of, users_path


@dataclass(frozen=True)
class Adoptable:
    """A materialized view or a view of pg_ivm that a maintained view can replace."""

    oid: int
    schema: str
    name: str
    relation: str
    """Its name in SQL that idivm writes."""
    query: str
    is_pg_ivm: bool
    owner: str
    is_own: bool
    """Whether this role has the rights of the owner."""
    lost: list[str]
    """The properties that a maintained view does not have."""
    readers: list[int]
    """The maintained views that read it, also through plain views."""


_ADOPTABLE = SQL("""
    SELECT c.oid, n.nspname AS schema, c.relname AS name, c.oid::regclass::text AS relation,
           rtrim(of.query, E'; \\n') AS query, of.is_pg_ivm,
           pg_get_userbyid(c.relowner) AS owner, idivm.owns(c.oid) AS is_own,
           ARRAY(SELECT idivm.lost_by_adopting(c.oid)) AS lost,
           ARRAY(SELECT v.id FROM idivm.views v
                 WHERE EXISTS (SELECT FROM idivm.relations_below(v.definition) AS below
                               JOIN pg_rewrite r ON r.ev_class = below
                               JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
                               WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid)
                 ORDER BY v.id) AS readers
    FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL idivm.adoptable(c.oid) AS of
    WHERE of.query IS NOT NULL AND {}
    ORDER BY c.oid
""")


def adoptable(connection: Connection[Any], oid: int) -> Adoptable | None:
    """Return a relation that can be adopted, or None if it is something else."""
    with connection.cursor(row_factory=class_row(Adoptable), binary=True) as cursor:
        return cursor.execute(_ADOPTABLE.format(SQL("c.oid = %s::oid")), [oid]).fetchone()


def own_adoptables(connection: Connection[Any]) -> list[tuple[str, str]]:
    """Return schemas and names of all relations that this role may adopt, lower views first."""
    return connection.execute(
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('m', 'r') AND idivm.owns(c.oid) AND n.nspname <> ALL (%s)"
        " AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pgivm')"
        " AND (idivm.adoptable(c.oid)).query IS NOT NULL ORDER BY c.oid",
        [list(OWN_SCHEMAS)],
    ).fetchall()


def objects_above(connection: Connection[Any], oids: Sequence[int]) -> dict[int, list[int]]:
    """Return, for each relation, the views and functions that read it directly or through others."""
    return dict(
        connection.execute(
            "WITH RECURSIVE above(base, kind, object) AS ("
            " SELECT oid, 'pg_class'::regclass::oid, oid FROM unnest(%s::oid[]) AS oid"
            " UNION SELECT a.base, CASE WHEN r.oid IS NULL THEN d.classid ELSE 'pg_class'::regclass END,"
            " coalesce(r.ev_class, d.objid)"
            " FROM above a JOIN pg_depend d ON (d.refclassid, d.refobjid) = (a.kind, a.object)"
            " LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid)"
            " SELECT base, array_agg(object) FROM above GROUP BY base",
            [oids],
        ).fetchall()
    )


def is_materialized_view(connection: Connection[Any], oid: int | None) -> bool:
    """Return whether a relation is a materialized view of PostgreSQL."""
    row = connection.execute(
        "SELECT FROM pg_class WHERE oid = %s::oid AND relkind = 'm'", [oid]
    ).fetchone()
    return row is not None


def is_maintained(connection: Connection[Any], oid: int) -> bool:
    """Return whether users read a maintained view as this relation, planned or not."""
    row = connection.execute(
        "SELECT FROM idivm.views WHERE relation = %(oid)s::oid"
        " UNION ALL SELECT FROM idivm.unplanned_views WHERE relation = %(oid)s::oid",
        {"oid": oid},
    ).fetchone()
    return row is not None


def create_index(
    connection: Connection[Any],
    oid: int,
    definition: str,
    name: str | None,
    unique: bool,
    if_not_exists: bool,
) -> None:
    """Create an index on the content of a maintained view. The user's search path resolves names."""
    connection.execute(
        "SELECT idivm.create_index(%s::oid, %s, %s, %s, coalesce(%s, current_setting('search_path')), %s)",
        [oid, definition, name, unique, path_of(connection), if_not_exists],
    )


def views_with_index(connection: Connection[Any], schema: str | None, name: str) -> list[int]:
    """Return the maintained views, by OID, on whose content users have an index of this name.

    Without a schema, these are views in the first schema of the user's search path that has any.
    """
    schemas = [schema]
    if schema is None:
        with users_path(connection):
            row = connection.execute("SELECT pg_catalog.current_schemas(false)").fetchone()
        assert row is not None
        schemas = row[0]
    rows = connection.execute(
        "SELECT i.relation::oid, n.nspname FROM idivm.view_indexes i JOIN pg_class c ON c.oid = i.relation"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE i.name = %(name)s AND n.nspname = ANY (%(schemas)s)"
        " ORDER BY array_position(%(schemas)s, n.nspname::text), i.relation",
        {"name": name, "schemas": schemas},
    ).fetchall()
    return [oid for oid, namespace in rows if namespace == rows[0][1]]


def drop_index(connection: Connection[Any], oid: int, name: str) -> None:
    """Drop an index of users on the content of a maintained view."""
    connection.execute("SELECT idivm.drop_index(%s::oid, %s)", [oid, name])


def rename_index(connection: Connection[Any], oid: int, name: str, renamed: str) -> None:
    """Rename an index of users on the content of a maintained view."""
    connection.execute("SELECT idivm.rename_index(%s::oid, %s, %s)", [oid, name, renamed])


def refuse_distrusted(connection: Connection[Any], view: Adoptable) -> None:
    """Refuse to parse the query of a relation whose code this role does not trust."""
    connection.execute(
        "SELECT idivm.refuse_distrusted(%s::oid, NULL, %s)", [view.oid, view.relation]
    )


def note_indexes(connection: Connection[Any], view: Adoptable) -> list[str]:
    """Store the definitions of the indexes of a relation. Return the names of the indexes that are left out."""
    rows = connection.execute(
        "SELECT i.indexrelid::oid, i.indexrelid::regclass::text,"
        " EXISTS (SELECT FROM idivm.index_code(i.indexrelid))"
        " FROM pg_index i WHERE i.indrelid = %s::oid ORDER BY i.indexrelid",
        [view.oid],
    ).fetchall()
    for index, _, has_code in rows:
        if not has_code:
            connection.execute("SELECT idivm.note_index(%s::oid, %s::oid)", [view.oid, index])
    return [name for _, name, has_code in rows if has_code]


def make_indexes(
    connection: Connection[Any], relation: int | None, view_id: int, state: Composable
) -> None:
    """Create the indexes of users on the table that holds the content of a view."""
    connection.execute(
        "SELECT idivm.make_indexes(%s::oid, %s, %s::regclass)",
        [relation, view_id, state.as_string(connection)],
    )


def options_of(connection: Connection[Any], relation: Composable) -> Composable:
    """Return the options of a view in the form that CREATE OR REPLACE VIEW has to repeat."""
    row = connection.execute(
        "SELECT idivm.options_clause(to_regclass(%s))", [relation.as_string(connection)]
    ).fetchone()
    assert row is not None
    return SQL(row[0])


@contextmanager
def kept_properties(
    connection: Connection[Any], relation: Composable, kind: str = "VIEW"
) -> Iterator[None]:
    """Restore the properties of a relation after a block that replaces it by a relation of its name and of a kind."""
    name = relation.as_string(connection)
    before = connection.execute(
        "SELECT r::oid, ARRAY(SELECT idivm.properties_of(r, %s)) FROM to_regclass(%s) AS r",
        [kind, name],
    ).fetchone()
    assert before is not None
    yield
    connection.execute("SELECT idivm.give_properties(%s::regclass, %s::oid, %s)", [name, *before])


def exchange(connection: Connection[Any], view: Adoptable) -> None:
    """Put an ordinary view in the place of a relation. Its indexes then belong to the view."""
    connection.execute("SELECT idivm.exchange(%s::oid, 'VIEW', %s)", [view.oid, view.query])


def release(connection: Connection[Any], relation: int) -> None:
    """Give a maintained view back as a materialized view."""
    connection.execute("SELECT idivm.release(%s::oid)", [relation])


def existing_views(connection: Connection[Any], ids: Sequence[int]) -> list[int]:
    """Return the IDs of the views that still exist, lower views first."""
    rows = connection.execute(
        "SELECT v.id FROM idivm.views v WHERE v.id = ANY (%s) AND v.status <> 'building' ORDER BY v.id",
        [list(ids)],
    ).fetchall()
    return [view_id for (view_id,) in rows]
