"""PostgreSQL's statistics of the sizes, values and indexes of tables."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row

from orchestrator.frontend.facts import (
    Index,
    TableStatistics,
)


def indexes_on(connection: Connection[Any], tables: Collection[int]) -> list[Index]:
    """Return the indexes that can find rows of some tables by `=`."""
    with connection.cursor(row_factory=class_row(Index)) as cursor:
        return cursor.execute(
            "SELECT i.indexrelid AS oid, i.indrelid AS table, i.indkey[0]::integer AS first_column"
            " FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
            " JOIN pg_am am ON am.oid = c.relam AND am.amname IN ('btree', 'hash')"
            " WHERE i.indrelid = ANY (%s::oid[]) AND i.indisvalid AND i.indpred IS NULL",
            [sorted(tables)],
        ).fetchall()


COMMON = 50
"""The smallest number of rows with a common value for which its share is reported."""


def statistics(connection: Connection[Any], tables: Collection[int]) -> list[TableStatistics]:
    """Return the statistics of tables: their sizes, the values of columns, and their changes.

    The size of a table that was never analyzed is estimated from its file. Its current rows are
    assumed to have been loaded, so that only further inserts count as changes. Common values are
    given by digests.
    """
    with connection.cursor(row_factory=class_row(TableStatistics)) as cursor:
        return cursor.execute(
            # OFFSET keeps the planner from joining all statistics of the database.
            """
            WITH RECURSIVE tree(root, member) AS (
                SELECT o, o FROM unnest(%s::oid[]) AS o
              UNION
                SELECT tree.root, i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.member
            ), sizes AS (
                SELECT tree.root, sum(CASE WHEN c.relkind = 'p' THEN 0 WHEN c.reltuples >= 0 THEN c.reltuples
                                           ELSE pg_relation_size(c.oid) / 100 END) AS rows,
                       sum(pg_stat_get_tuples_updated(c.oid)) AS updated,
                       sum(pg_stat_get_tuples_deleted(c.oid)) AS deleted,
                       sum(greatest(0, pg_stat_get_tuples_inserted(c.oid) - pg_stat_get_live_tuples(c.oid)))
                           AS inserted
                FROM tree JOIN pg_class c ON c.oid = tree.member
                GROUP BY tree.root
            )
            SELECT s.root AS table, s.rows::float8, coalesce(s.updated, 0)::float8 AS updated,
                   coalesce(s.deleted, 0)::float8 AS deleted, coalesce(s.inserted, 0)::float8 AS inserted,
                   coalesce(v.distinct_values, '{}') AS distinct_values,
                   coalesce(v.common_values, '{}') AS common_values,
                   coalesce(v.null_shares, '{}') AS null_shares
            FROM sizes s
            CROSS JOIN LATERAL (
                SELECT jsonb_object_agg(a.attnum, CASE WHEN p.n_distinct < 0 THEN -p.n_distinct * s.rows
                                                       ELSE p.n_distinct END ORDER BY p.inherited)
                           FILTER (WHERE p.n_distinct <> 0) AS distinct_values,
                       jsonb_object_agg(a.attnum, m.shares ORDER BY p.inherited)
                           FILTER (WHERE m.shares IS NOT NULL) AS common_values,
                       jsonb_object_agg(a.attnum, p.null_frac ORDER BY p.inherited) AS null_shares
                FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                CROSS JOIN LATERAL (SELECT p.* FROM pg_stats p
                                    WHERE p.schemaname = n.nspname AND p.tablename = c.relname OFFSET 0) AS p
                JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = p.attname
                CROSS JOIN LATERAL (
                    SELECT jsonb_object_agg(hashtext(value), share) AS shares
                    FROM unnest(p.most_common_vals::text::text[], p.most_common_freqs) AS u(value, share)
                    WHERE share * s.rows >= %s
                ) AS m
                WHERE c.oid = s.root
            ) AS v
            """,
            [sorted(tables), COMMON],
        ).fetchall()


def pages(connection: Connection[Any], table: int) -> int:
    """Return the number of pages of a table's file."""
    row = connection.execute(
        "SELECT pg_relation_size(%s::oid::regclass) / current_setting('block_size')::bigint",
        [table],
    ).fetchone()
    assert row is not None
    # The size is NULL if the table was dropped meanwhile.
    return int(row[0] or 0)
