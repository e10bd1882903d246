"""Queries on PostgreSQL's system catalogs for what a table's rows must fulfill."""

from __future__ import annotations

from typing import Any

from psycopg import Connection
from psycopg.rows import dict_row

from orchestrator.frontend.facts import PartitionBounds, UniqueIndex


def check_columns(connection: Connection[Any], table: int) -> dict[str, tuple[str, ...]]:
    """Return the columns that each CHECK constraint of a table reads."""
    rows = connection.execute(
        """
        SELECT k.conname, array_agg(a.attname::text ORDER BY a.attnum)
        FROM pg_constraint k
        JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey)
        WHERE k.conrelid = %s::oid AND k.contype = 'c'
        GROUP BY k.conname
        """,
        [table],
    ).fetchall()
    return {name: tuple(columns) for name, columns in rows}


def unique_indexes(connection: Connection[Any], table: int) -> list[UniqueIndex]:
    """Return the unique indexes of a table that compare by the operators of their types, primary key first."""
    rows = (
        connection.cursor(row_factory=dict_row)
        .execute(
            """
            SELECT c.relname AS name, NOT i.indimmediate AS deferrable,
                   i.indnullsnotdistinct AS nulls_equal,
                   pg_get_expr(i.indpred, i.indrelid) AS condition, used.terms, used.types,
                   (SELECT array_agg(a.attname::text ORDER BY k.nth, a.attnum)
                    FROM pg_attribute a
                    LEFT JOIN unnest(i.indkey) WITH ORDINALITY AS k(attnum, nth)
                      ON k.attnum = a.attnum AND k.nth <= i.indnkeyatts
                    WHERE a.attrelid = i.indrelid AND a.attnum > 0
                      AND (k.nth IS NOT NULL OR EXISTS (
                          SELECT FROM pg_depend d
                          WHERE d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
                            AND d.refclassid = 'pg_class'::regclass AND d.refobjid = i.indrelid
                            AND d.refobjsubid = a.attnum
                            AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)))) AS columns
            FROM pg_index i
            JOIN pg_class c ON c.oid = i.indexrelid
            JOIN pg_am am ON am.oid = c.relam AND am.amname = 'btree'
            CROSS JOIN LATERAL (
                SELECT array_agg('(' || pg_get_indexdef(i.indexrelid, k, true) || ')' || coalesce(
                           (SELECT format(' COLLATE %%I.%%I', n.nspname, co.collname)
                            FROM pg_collation co JOIN pg_namespace n ON n.oid = co.collnamespace
                            WHERE co.oid = i.indcollation[k - 1]), '') ORDER BY k) AS terms,
                       array_agg(coalesce(a.atttypid, own.atttypid)::integer ORDER BY k) AS types,
                       bool_and(opc.opcdefault) AS sound
                FROM generate_series(1, i.indnkeyatts::integer) AS k
                JOIN pg_attribute own ON own.attrelid = i.indexrelid AND own.attnum = k
                JOIN pg_opclass opc ON opc.oid = i.indclass[k - 1]
                LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k - 1]
            ) AS used
            WHERE i.indrelid = %s::oid AND i.indisunique AND NOT i.indisexclusion AND i.indisvalid
              AND used.sound
            ORDER BY i.indisprimary DESC, c.relname
            """,
            [table],
        )
        .fetchall()
    )
    return [
        UniqueIndex(**{**row, **{name: tuple(row[name]) for name in ("terms", "types", "columns")}})
        for row in rows
    ]


def partition_bounds(connection: Connection[Any], table: int) -> PartitionBounds | None:
    """Return which rows the partitions of a table accept; None if the table has no bounds."""
    row = connection.execute(
        """
        WITH own AS (
            SELECT pg_get_partition_constraintdef(%(table)s::oid) AS bound
        ), leaves AS (
            SELECT coalesce(array_agg(pg_get_partition_constraintdef(relid)), '{}') AS bounds
            FROM pg_partition_tree(%(table)s::oid) WHERE isleaf AND relid <> %(table)s::oid
        )
        SELECT CASE WHEN c.relkind = 'p' THEN leaves.bounds ELSE ARRAY[own.bound] END,
               ARRAY(SELECT a.attname::text FROM pg_attribute a
                     WHERE a.attrelid = c.oid AND a.attnum > 0 AND EXISTS (
                         SELECT FROM pg_partitioned_table p
                         WHERE (p.partrelid = c.oid OR p.partrelid IN (
                                   SELECT relid FROM pg_partition_ancestors(c.oid)))
                           AND EXISTS (SELECT FROM pg_attribute k
                                       WHERE k.attrelid = p.partrelid AND k.attname = a.attname
                                         AND k.attnum = ANY (p.partattrs)))
                     ORDER BY a.attnum)
        FROM pg_class c, own, leaves
        WHERE c.oid = %(table)s::oid AND (c.relkind = 'p' OR own.bound IS NOT NULL)
        """,
        {"table": table},
    ).fetchone()
    # Without a bound, a partition accepts all rows.
    if row is None or None in row[0]:
        return None
    return PartitionBounds(tuple(row[0]), tuple(row[1]))
