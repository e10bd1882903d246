"""Recompute a view by hand: run the query into a temporary table and apply the difference.

A careful person would write this without idivm. A refresh should never cost much more.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
from psycopg import Connection
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.bench.measure import Execution, explained
from orchestrator.bench.workload import SCHEMA

_STORED = Identifier(SCHEMA, "stored")

_RECOMPUTE = """
DO LANGUAGE plpgsql {body}
"""

_BODY = """
DECLARE
    started timestamptz := clock_timestamp();
BEGIN
    CREATE TEMP TABLE computed AS {query};
    PERFORM set_config('bench.query', (extract(epoch FROM clock_timestamp() - started) * 1000)::text, false);
    CREATE TEMP TABLE differing AS
    SELECT ROW({columns})::{stored} AS row, count(*) FILTER (WHERE sign > 0) AS copies
    FROM (SELECT *, 1 AS sign FROM computed UNION ALL SELECT *, -1 FROM {stored}) AS both_sides ({columns}, sign)
    GROUP BY {columns} HAVING sum(sign) <> 0;
    DELETE FROM {stored} AS s USING differing AS d WHERE s = d.row;
    INSERT INTO {stored} SELECT (d.row).* FROM differing AS d, generate_series(1, d.copies);
    DROP TABLE computed, differing;
END
"""


def recomputing(
    connection: Connection[object], query: str
) -> tuple[Callable[[], Execution], Callable[[], float]]:
    """Store the rows of a query; return functions that recompute them and give the query's time."""
    connection.execute(SQL("DROP TABLE IF EXISTS {}").format(_STORED))
    text = _comparable(connection, query)
    connection.execute(SQL("CREATE TABLE {} AS {}").format(_STORED, text))
    described = connection.execute(SQL("SELECT * FROM {} LIMIT 0").format(_STORED)).description
    columns = SQL(", ").join(Identifier(column.name) for column in described or ())
    body = SQL(_BODY).format(query=text, columns=columns, stored=_STORED)
    statement = SQL(_RECOMPUTE).format(body=Literal(body.as_string(connection)))

    def query_alone() -> float:
        row = connection.execute("SELECT current_setting('bench.query')::float").fetchone()
        assert isinstance(row, tuple)
        return float(row[0])

    return lambda: explained(connection, statement.as_string(connection)), query_alone


def _comparable(connection: Connection[object], query: str) -> Composed:
    """Return the query with distinct column names; cast types without equality to text."""
    text = SQL(query.rstrip().rstrip(";"))
    described = connection.execute(SQL("SELECT * FROM ({}) AS q LIMIT 0").format(text)).description
    names = [Identifier(f"c{number}") for number in range(len(described or ()))]
    items: list[Composable] = []
    for name, column in zip(names, described or (), strict=True):
        equal = _has_equality(connection, column.type_code)
        items.append(name if equal else SQL("{}::text AS {}").format(name, name))
    return SQL("SELECT {} FROM ({}) AS q ({})").format(
        SQL(", ").join(items), text, SQL(", ").join(names)
    )


def _has_equality(connection: Connection[object], type_oid: int) -> bool:
    row = connection.execute("SELECT format_type(%s, NULL)", [type_oid]).fetchone()
    assert isinstance(row, tuple)
    try:
        connection.execute(
            SQL("SELECT FROM (SELECT NULL::{}) AS q (c) GROUP BY c").format(SQL(row[0]))
        )
    except psycopg.Error:
        return False
    return True
