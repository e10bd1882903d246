"""The objects that idivm keeps in a database, to check that dropping all views leaves none behind."""

from __future__ import annotations

from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Identifier

_OBJECTS = """
    WITH mine AS (SELECT oid FROM pg_namespace WHERE nspname = 'idivm' OR nspname LIKE 'idivm\\_%')
    SELECT 'relation ' || c.oid::regclass FROM pg_class c
    WHERE c.relnamespace IN (SELECT oid FROM mine) AND c.relkind NOT IN ('i', 'c')
    UNION ALL
    SELECT 'function ' || p.oid::regprocedure FROM pg_proc p
    WHERE p.pronamespace IN (SELECT oid FROM mine)
    UNION ALL
    SELECT 'type ' || t.oid::regtype FROM pg_type t
    WHERE t.typnamespace IN (SELECT oid FROM mine) AND t.typrelid = 0 AND t.typelem = 0
    UNION ALL
    SELECT format('trigger %I on %s', t.tgname, t.tgrelid::regclass) FROM pg_trigger t
    JOIN pg_proc p ON p.oid = t.tgfoid WHERE p.pronamespace IN (SELECT oid FROM mine)
    UNION ALL
    SELECT 'replication slot ' || slot_name FROM pg_replication_slots WHERE database = current_database()
    UNION ALL
    SELECT format('%I in the publication %I', r.prrelid::regclass, p.pubname)
    FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
"""


def kept_objects(connection: Connection[Any]) -> set[str]:
    """Return all objects of idivm in a database: relations, functions, triggers, slots, catalog rows.

    The result excludes rings, which users create independently of views, and the history of loads.
    """
    result = {row[0] for row in connection.execute(_OBJECTS).fetchall()}
    tables = connection.execute(
        "SELECT relname FROM pg_class"
        " WHERE relnamespace = 'idivm'::regnamespace AND relkind = 'r'"
        " AND relname NOT IN ('rings', 'loads', 'rejected_rows')"
    ).fetchall()
    for (table,) in tables:
        row = connection.execute(
            SQL("SELECT count(*) FROM {}").format(Identifier("idivm", table))
        ).fetchone()
        assert row is not None
        if row[0]:
            result.add(f"{row[0]} rows in idivm.{table}")
    return result
