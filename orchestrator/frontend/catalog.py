"""Queries on PostgreSQL's system catalogs for the analysis of views. They only read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from psycopg import Connection
from psycopg.rows import dict_row
from psycopg.sql import SQL

from orchestrator.frontend import node_tree
from orchestrator.frontend.facts import (
    ForeignKey,
    Key,
    OutputColumn,
    Relation,
    RelationColumn,
    StoredView,
)
from orchestrator.frontend.used_objects import FIRST_USER_OID, used_functions, used_relations


def _maintained_views(
    connection: Connection[Any], oids: list[int]
) -> dict[int, tuple[int, bool, tuple[int, ...]]]:
    """Return, for those relations that are maintained views, the view's number, whether no table stores its
    rows, and the columns if users read it as a table.
    """
    rows = connection.execute(
        "SELECT v.relation::oid, v.id, coalesce(c.relkind = 'v', false),"
        " ARRAY(SELECT unnest(t.tgattr::int2[])::integer FROM pg_trigger t"
        "       WHERE t.tgrelid = v.relation AND t.tgname = 'idivm_columns') FROM idivm.views v"
        " LEFT JOIN pg_class c ON c.oid = v.state WHERE v.relation = ANY (%s::oid[])",
        [oids],
    ).fetchall()
    return {oid: (number, computed, tuple(columns)) for oid, number, computed, columns in rows}


def _captured(
    connection: Connection[Any], oids: list[int]
) -> dict[int, tuple[frozenset[int], frozenset[int]]]:
    """Return the key columns of captured relations, and all their captured columns.

    There are no key columns if rows are identified by their content.
    """
    rows = connection.execute(
        "SELECT s.relation::oid, array_agg(c.attnum::integer) FILTER (WHERE s.keyed AND c.in_key),"
        " array_agg(c.attnum::integer)"
        " FROM idivm.sources s LEFT JOIN idivm.source_columns c ON c.source = s.id"
        " WHERE s.relation = ANY (%s::oid[]) GROUP BY s.relation",
        [oids],
    ).fetchall()
    return {oid: (frozenset(key or ()), frozenset(every) - {None}) for oid, key, every in rows}


def _is_installed(connection: Connection[Any]) -> bool:
    row = connection.execute("SELECT to_regclass('idivm.views') IS NOT NULL").fetchone()
    return row is not None and bool(row[0])


@contextmanager
def empty_search_path(connection: Connection[Any]) -> Iterator[None]:
    """Make PostgreSQL print names with their schemas in this context.

    The transaction is rolled back at the end, which restores the caller's search path.
    """
    with connection.transaction(force_rollback=True):
        connection.execute("SET LOCAL search_path = ''")
        yield


def stored_view(connection: Connection[Any], oid: int) -> StoredView:
    """Return the text of a view and the objects that its query uses, without those of the views
    below.
    """
    with empty_search_path(connection):
        row = connection.execute(
            "SELECT pg_get_viewdef(c.oid), r.ev_action::text FROM pg_class c"
            " JOIN pg_rewrite r ON r.ev_class = c.oid AND r.rulename = '_RETURN'"
            " WHERE c.oid = %s::oid",
            [oid],
        ).fetchone()
    if row is None:
        raise LookupError(f"relation {oid} is not a view")
    text, tree = row
    nodes = list(node_tree.nodes(tree))
    return StoredView(
        oid=oid,
        text=text.strip().rstrip(";").rstrip(),
        columns=output_columns(connection, oid),
        uses=used_relations(connection, oid, nodes),
        functions=used_functions(connection, nodes),
    )


def output_columns(connection: Connection[Any], oid: int) -> tuple[OutputColumn, ...]:
    """Return the columns of a view with their types and collations."""
    with empty_search_path(connection):
        rows = connection.execute(
            _PLAIN_TYPES
            + SQL("""
            SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.atttypid,
                   format_type(plain.oid, coalesce(nullif(a.atttypmod, -1), plain.typmod)),
                   quote_ident(n.nspname) || '.' || quote_ident(co.collname)
            FROM pg_attribute a JOIN plain ON plain.type = a.atttypid
            LEFT JOIN pg_collation co ON co.oid = a.attcollation
            LEFT JOIN pg_namespace n ON n.oid = co.collnamespace
            WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped
            ORDER BY a.attnum
            """),
            [[oid], oid],
        ).fetchall()
    return tuple(OutputColumn(*row) for row in rows)


_PLAIN_TYPES = SQL("""
    WITH RECURSIVE unfolded(type, oid, typmod, depth) AS (
        SELECT DISTINCT a.atttypid, a.atttypid, -1, 0
        FROM pg_attribute a WHERE a.attrelid = ANY (%s::oid[]) AND a.attnum > 0
      UNION ALL
        SELECT u.type, t.typbasetype, t.typtypmod, u.depth + 1
        FROM unfolded u JOIN pg_type t ON t.oid = u.oid AND t.typtype = 'd'
    ), plain AS (
        SELECT DISTINCT ON (type) type, oid, typmod FROM unfolded ORDER BY type, depth DESC
    )
""")
"""A query of the base type for the type of each column of some relations."""


def relations(connection: Connection[Any], oids: Collection[int]) -> dict[int, Relation]:
    """Return the facts about some relations."""
    wanted = sorted(oids)
    installed = _is_installed(connection)
    maintained = _maintained_views(connection, wanted) if installed else {}
    captured = _captured(connection, wanted) if installed else {}
    with empty_search_path(connection), connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(
            """
            SELECT c.oid, n.nspname AS schema, c.relname AS name, c.relkind::text,
                   c.relpersistence::text AS persistence, pg_get_userbyid(c.relowner) AS owner,
                   c.relrowsecurity AS row_security, c.relispartition AS is_partition,
                   c.oid < %(first)s OR n.nspname = 'information_schema' AS system,
                   ARRAY(SELECT inhrelid::bigint FROM pg_inherits
                         WHERE inhparent = c.oid ORDER BY inhrelid) AS children,
                   ARRAY(SELECT inhparent::bigint FROM pg_inherits
                         WHERE inhrelid = c.oid ORDER BY inhseqno) AS parents
            FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE c.oid = ANY (%(oids)s::oid[])
            """,
            {"oids": wanted, "first": FIRST_USER_OID},
        ).fetchall()
        columns = _columns(cursor, wanted)
        expressions = _expressions(cursor, wanted)
        keys = _keys(cursor, wanted)
        foreign_keys = _foreign_keys(cursor, wanted)
    return {
        row["oid"]: Relation(
            **{**row, "children": tuple(row["children"]), "parents": tuple(row["parents"])},
            columns=tuple(
                _computed(column, expressions.get((row["oid"], column.attnum)))
                for column in columns[row["oid"]]
            ),
            functions=tuple(
                use
                for column in columns[row["oid"]]
                for _, tree in [expressions.get((row["oid"], column.attnum), ("", ""))]
                for use in (used_functions(connection, [*node_tree.nodes(tree)]) if tree else ())
            ),
            # Constraints that users put on the table of a view say nothing about its content.
            keys=() if row["oid"] in maintained else tuple(keys[row["oid"]]),
            foreign_keys=() if row["oid"] in maintained else tuple(foreign_keys[row["oid"]]),
            maintained=maintained.get(row["oid"], (None, False, ()))[0],
            computed=maintained.get(row["oid"], (None, False, ()))[1],
            query_order=maintained.get(row["oid"], (None, False, ()))[2],
            captured_key=captured.get(row["oid"], (None, frozenset()))[0],
            captured_columns=captured.get(row["oid"], (None, frozenset()))[1],
        )
        for row in rows
    }


def _columns(cursor: Any, oids: list[int]) -> Mapping[int, list[RelationColumn]]:
    # A column of a table is NOT NULL only if it is NOT NULL in all inheritance children. A
    # constraint that was never validated (possible since version 18) guarantees nothing.
    rows = cursor.execute(
        _PLAIN_TYPES
        + SQL("""
        , tree(root, member) AS (
            SELECT o, o FROM unnest(%s::oid[]) AS o
          UNION
            SELECT tree.root, i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.member
        ), nullable AS (
            SELECT DISTINCT tree.root, a.attname
            FROM tree JOIN pg_attribute a ON a.attrelid = tree.member
            WHERE NOT a.attnotnull OR EXISTS (
                SELECT FROM pg_constraint k
                WHERE k.conrelid = a.attrelid AND k.contype = 'n' AND NOT k.convalidated
                  AND k.conkey = ARRAY[a.attnum])
        )
        SELECT a.attrelid, a.attnum, a.attname AS name,
               format_type(a.atttypid, a.atttypmod) AS type, a.atttypid AS type_oid,
               format_type(plain.oid, coalesce(nullif(a.atttypmod, -1), plain.typmod))
                   AS plain_type,
               nullable.root IS NULL AS not_null,
               quote_ident(cn.nspname) || '.' || quote_ident(co.collname) AS collation,
               coalesce(co.collisdeterministic, true) AS deterministic,
               a.attgenerated::text AS generated, a.attidentity::text AS identity,
               CASE WHEN eq.family IN ('text_ops', 'integer_ops', 'float_ops')
                         AND eq.builtin AND coalesce(co.collisdeterministic, true)
                    THEN eq.family
                    ELSE eq.family || ' ' || plain.oid || coalesce(' ' || co.oid, '')
               END AS equality,
               coalesce(eq.exact AND coalesce(co.collisdeterministic, true), false) AS exact,
               coalesce(eq.builtin, false) AS builtin_equality, t.typlen AS length,
               CASE t.typalign WHEN 'd' THEN 8 WHEN 'i' THEN 4 WHEN 's' THEN 2 ELSE 1 END AS alignment
        FROM pg_attribute a
        JOIN plain ON plain.type = a.atttypid
        JOIN pg_type t ON t.oid = plain.oid
        LEFT JOIN nullable ON nullable.root = a.attrelid AND nullable.attname = a.attname
        LEFT JOIN pg_collation co ON co.oid = a.attcollation
        LEFT JOIN pg_namespace cn ON cn.oid = co.collnamespace
        LEFT JOIN LATERAL (
            SELECT f.opfname AS family, opc.oid < 16384 AS builtin,
                   t.oid <> 'bpchar'::regtype AND EXISTS (
                       SELECT FROM pg_amproc p
                       WHERE p.amprocfamily = f.oid AND p.amprocnum = 4
                         AND p.amproclefttype = opc.opcintype AND p.amprocrighttype = opc.opcintype
                         AND p.amproc::oid < 16384) AS exact
            FROM pg_opclass opc
            JOIN pg_opfamily f ON f.oid = opc.opcfamily
            JOIN pg_am am ON am.oid = opc.opcmethod AND am.amname = 'btree'
            WHERE opc.opcdefault AND opc.opcintype IN (
                plain.oid,
                CASE WHEN plain.oid = 'varchar'::regtype THEN 'text'::regtype
                     WHEN t.typtype = 'e' THEN 'anyenum'::regtype
                     WHEN t.typtype = 'r' THEN 'anyrange'::regtype
                     WHEN t.typtype = 'm' THEN 'anymultirange'::regtype
                     WHEN t.typtype = 'c' THEN 'record'::regtype
                     WHEN t.typcategory = 'A' THEN 'anyarray'::regtype END)
            ORDER BY opc.opcintype = plain.oid DESC LIMIT 1
        ) AS eq ON true
        WHERE a.attrelid = ANY (%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
        ORDER BY a.attrelid, a.attnum
        """),
        [oids, oids, oids],
    )
    result: dict[int, list[RelationColumn]] = defaultdict(list)
    for row in rows.fetchall():
        result[row.pop("attrelid")].append(RelationColumn(**row))
    return result


def _expressions(cursor: Any, oids: list[int]) -> dict[tuple[int, int], tuple[str, str]]:
    """Return the expressions of virtual generated columns, as text and as trees, by table and
    number.
    """
    rows = cursor.execute(
        "SELECT a.attrelid, a.attnum, pg_get_expr(d.adbin, d.adrelid) AS text, d.adbin::text AS tree"
        " FROM pg_attribute a JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum"
        " WHERE a.attrelid = ANY (%s::oid[]) AND a.attgenerated = 'v' AND NOT a.attisdropped",
        [oids],
    )
    return {(row["attrelid"], row["attnum"]): (row["text"], row["tree"]) for row in rows.fetchall()}


def _computed(column: RelationColumn, text_and_tree: tuple[str, str] | None) -> RelationColumn:
    if text_and_tree is None:
        return column
    text, tree = text_and_tree
    columns = {int(str(node.fields["varattno"][0])) for node in node_tree.nodes(tree, "VAR")}
    return replace(column, expression=text, reads=tuple(sorted(n for n in columns if n > 0)))


def _keys(cursor: Any, oids: list[int]) -> Mapping[int, list[Key]]:
    # An index can enforce another kind of uniqueness: with another operator class, or bytewise
    # although the column's collation treats different texts as equal. Such indexes are no keys, nor
    # are those of WITHOUT OVERLAPS (since version 18), whose rows exclude overlapping ranges.
    rows = cursor.execute(
        """
        SELECT i.indrelid, i.indexrelid AS index, c.relname AS name, i.indisprimary AS primary,
               used.columns, used.width
        FROM pg_index i
        JOIN pg_class c ON c.oid = i.indexrelid
        JOIN pg_am am ON am.oid = c.relam AND am.amname = 'btree'
        CROSS JOIN LATERAL (
            SELECT array_agg(k.attnum::integer ORDER BY k.nth) AS columns,
                   sum(CASE WHEN t.typlen > 0 THEN t.typlen ELSE 32 END)::integer AS width,
                   bool_and(a.attnotnull AND opc.opcdefault
                            AND (coalesce(co.collisdeterministic, true)
                                 OR i.indcollation[k.nth - 1] = a.attcollation)
                            AND NOT EXISTS (
                                SELECT FROM pg_constraint n
                                WHERE n.conrelid = i.indrelid AND n.contype = 'n'
                                  AND NOT n.convalidated AND n.conkey = ARRAY[a.attnum]))
                   AS sound
            FROM unnest(i.indkey) WITH ORDINALITY AS k(attnum, nth)
            LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
            LEFT JOIN pg_type t ON t.oid = a.atttypid
            LEFT JOIN pg_collation co ON co.oid = a.attcollation
            LEFT JOIN pg_opclass opc ON opc.oid = i.indclass[k.nth - 1]
            WHERE k.nth <= i.indnkeyatts
        ) AS used
        WHERE i.indrelid = ANY (%s::oid[]) AND i.indisunique AND NOT i.indisexclusion
          AND i.indimmediate AND i.indisvalid AND i.indisready
          AND i.indpred IS NULL AND i.indexprs IS NULL AND used.sound
        ORDER BY i.indrelid, i.indisprimary DESC, c.relname
        """,
        [oids],
    )
    result: dict[int, list[Key]] = defaultdict(list)
    for row in rows.fetchall():
        result[row.pop("indrelid")].append(Key(**{**row, "columns": tuple(row["columns"])}))
    return result


def columns_with_defaults(connection: Connection[Any], table: int) -> frozenset[int]:
    """Return the numbers of a table's columns that have a default."""
    rows = connection.execute(
        "SELECT adnum::integer FROM pg_attrdef WHERE adrelid = %s::oid", [table]
    ).fetchall()
    return frozenset(row[0] for row in rows)


def equality_operators(connection: Connection[Any], types: Collection[int]) -> dict[int, SQL]:
    """Return the operator, with its schema, that compares keys of each type for equality."""
    rows = connection.execute(
        """
        WITH RECURSIVE plain(asked, oid) AS (
            SELECT o, o FROM unnest(%s::oid[]) AS o
          UNION
            SELECT p.asked, t.typbasetype FROM plain p JOIN pg_type t ON t.oid = p.oid WHERE t.typtype = 'd'
        )
        SELECT DISTINCT ON (p.asked) p.asked, format('%%I.%%s', n.nspname, o.oprname)
        FROM plain p
        JOIN pg_type t ON t.oid = p.oid
        JOIN pg_opclass c ON c.opcdefault AND (
            c.opcintype = t.oid
            OR EXISTS (SELECT FROM pg_cast k
                       WHERE k.castsource = t.oid AND k.casttarget = c.opcintype AND k.castmethod = 'b')
            OR c.opcintype = CASE WHEN t.typtype = 'e' THEN 'anyenum'::regtype
                                  WHEN t.typtype = 'r' THEN 'anyrange'::regtype
                                  WHEN t.typtype = 'm' THEN 'anymultirange'::regtype
                                  WHEN t.typtype = 'c' THEN 'record'::regtype
                                  WHEN t.typcategory = 'A' THEN 'anyarray'::regtype END)
        JOIN pg_am m ON m.oid = c.opcmethod AND m.amname = 'btree'
        JOIN pg_amop a ON a.amopfamily = c.opcfamily AND a.amopstrategy = 3
                      AND a.amoplefttype = c.opcintype AND a.amoprighttype = c.opcintype
        JOIN pg_operator o ON o.oid = a.amopopr
        JOIN pg_namespace n ON n.oid = o.oprnamespace
        WHERE t.typtype <> 'd'
        ORDER BY p.asked, c.opcintype = t.oid DESC, c.opcintype = 'text'::regtype DESC
        """,
        [list(set(types))],
    ).fetchall()
    # PostgreSQL wrote the names, with quotes where necessary.
    return {oid: SQL(operator) for oid, operator in rows}


def type_names(connection: Connection[Any], types: Collection[int]) -> dict[int, str]:
    """Return the names of types without modifiers; a domain has the name of its base type."""
    rows = connection.execute(
        "SELECT oid::bigint, format_type(coalesce(nullif(typbasetype, 0), oid), NULL) FROM pg_type"
        " WHERE oid = ANY (%s::oid[])",
        [list(types)],
    ).fetchall()
    return dict(rows)


def _foreign_keys(cursor: Any, oids: list[int]) -> Mapping[int, list[ForeignKey]]:
    # A reference to a partitioned table is also recorded for each of its partitions. PERIOD and NOT
    # ENFORCED exist since version 18.
    rows = cursor.execute(
        """
        SELECT k.conrelid, k.conname AS name, k.conkey AS columns, k.confrelid AS target,
               k.confkey AS target_columns, k.convalidated AS validated,
               k.condeferrable AS deferrable,
               coalesce((to_jsonb(k) ->> 'conperiod')::boolean, false) AS period
        FROM pg_constraint k
        LEFT JOIN pg_constraint above ON above.oid = k.conparentid
        WHERE k.contype = 'f' AND k.conrelid = ANY (%s::oid[])
          AND (to_jsonb(k) -> 'conenforced') IS DISTINCT FROM 'false'::jsonb
          AND above.conrelid IS DISTINCT FROM k.conrelid
        ORDER BY k.conrelid, k.conname
        """,
        [oids],
    )
    result: dict[int, list[ForeignKey]] = defaultdict(list)
    for row in rows.fetchall():
        tuples = {name: tuple(row[name]) for name in ("columns", "target_columns")}
        result[row.pop("conrelid")].append(ForeignKey(**{**row, **tuples}))
    return result
