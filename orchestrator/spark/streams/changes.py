"""Changes of rows as a source: their operations, the last change of each row, and the rows that they delete."""

from __future__ import annotations

from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Composed, Identifier, Literal

from orchestrator.catalog import loads as catalog_loads
from orchestrator.catalog.loads import staging_table
from orchestrator.spark.errors import LoadError
from orchestrator.spark.loading.ledger import Load, plain

_DELETES = ("d", "delete", "-d")
_WRITES = ("i", "insert", "+i", "u", "update", "+u", "c", "create", "r", "read", "upsert")
_OLD = ("-u",)
"""The operations that change logs name, in lower case: `-u` is the old image of an update."""


def prepare_changes(connection: Connection[Any], load: Load) -> None:
    """Check the operations and orders of staged changes, and keep the last change of each row for an upsert."""
    check_operations(connection, load)
    if load.order is not None:
        _check_orders(connection, load, load.order)
    if load.mode == "upsert" and (load.op or load.order):
        _keep_last_changes(connection, load)


TAKING_BACK = _DELETES + _OLD
"""The operations that take back an earlier row: deletes, and old images of updates."""

OPERATIONS = _WRITES + TAKING_BACK
"""All known operations."""


def takes_back(op: str) -> Composed:
    """Return the condition that a staged row s takes back an earlier row: a delete, or the old image of an update."""
    return _is(op, TAKING_BACK)


def _keep_last_changes(connection: Connection[Any], load: Load) -> None:
    """Delete all staged changes of a row but the last; refuse changes whose order is not clear."""
    staging, key = staging_table(load.id), SQL(", ").join(_of("s", name) for name in load.key)
    order = (
        SQL(" ORDER BY {} DESC").format(_of("s", load.order)) if load.order else SQL("")
    )  # Without an order, all changes of a row are peers.
    ranked = SQL(
        "SELECT s.ctid AS row, row_number() OVER w AS nth, rank() OVER w AS place, first_value(s.ctid) OVER w AS last"
        " FROM {} AS s WINDOW w AS (PARTITION BY {}{})"
    ).format(staging, key, order)
    columns = SQL(", ").join(Identifier(column.name) for column in load.columns)
    unclear = connection.execute(
        SQL(
            "SELECT pg_catalog.concat_ws(', ', {}) FROM ({}) AS r JOIN {} AS s ON s.ctid = r.row"
            " WHERE r.nth > 1 AND r.place = 1 AND (SELECT ROW({})::text FROM {} AS x WHERE x.ctid = r.row)"
            " IS DISTINCT FROM (SELECT ROW({})::text FROM {} AS x WHERE x.ctid = r.last) LIMIT 1"
        ).format(key, ranked, staging, columns, staging, columns, staging)
    ).fetchone()
    if unclear is not None:
        names = ", ".join(load.key)
        raise LoadError(
            f"Nothing was loaded into {plain(load.target.name)}: the source changes the row with {names} = "
            f"{unclear[0]} more than once"
            + (
                f" with the same value in {load.order}: order the changes by a column that differs."
                if load.order
                else ". Name the column that orders the changes (--order)."
            )
        )
    connection.execute(
        SQL(
            "DELETE FROM {} AS s WHERE s.ctid = ANY (ARRAY(SELECT r.row FROM ({}) AS r WHERE r.nth > 1))"
        ).format(staging, ranked)
    )


def deletes(connection: Connection[Any], load: Load) -> Composed | None:
    """Return a query of the staged rows that delete rows, which it also takes out of the staging table."""
    if load.op is None or load.mode != "upsert":
        return None
    return SQL("DELETE FROM {} AS s WHERE {} RETURNING *").format(
        staging_table(load.id), _is(load.op, _DELETES)
    )


def not_older(load: Load, table: Identifier, change: Identifier) -> Composed | None:
    """Return the condition that a change is not older than the table's row, if the table stores the order."""
    if load.order is None or load.order not in {column.name for column in load.moved}:
        return None
    order = Identifier(load.order)
    return SQL("({0}.{2} <= {1}.{2}) IS NOT FALSE").format(table, change, order)


def _of(table: str, column: str) -> Identifier:
    return Identifier(table, column)


def _is(column: str, operations: tuple[str, ...]) -> Composed:
    return SQL("pg_catalog.lower({}::text) = ANY ({})").format(
        _of("s", column), Literal(list(operations))
    )


def check_operations(connection: Connection[Any], load: Load) -> None:
    """Refuse or reject staged changes whose operation is not known."""
    if (op := load.op) is None:
        return
    staging = staging_table(load.id)
    if load.mode == "upsert":
        connection.execute(SQL("DELETE FROM {} AS s WHERE {}").format(staging, _is(op, _OLD)))
    unknown = SQL("SELECT s.ctid FROM {} AS s WHERE ({}) IS NOT TRUE").format(
        staging, _is(op, OPERATIONS)
    )
    if load.quarantine:
        _reject(connection, load, op, unknown, "the operation is not known")
        return
    value = connection.execute(
        SQL("SELECT {}::text FROM {} AS s WHERE s.ctid = ANY (ARRAY({} LIMIT 1))").format(
            _of("s", op), staging, unknown
        )
    ).fetchone()
    if value is not None:
        raise LoadError(
            f"Nothing was loaded into {plain(load.target.name)}: {value[0] or 'NULL'} in column {op} "
            f"is no operation; known operations are {', '.join(_WRITES + _DELETES)}."
        )


def _check_orders(connection: Connection[Any], load: Load, order: str) -> None:
    staging = staging_table(load.id)
    without = SQL("SELECT s.ctid FROM {} AS s WHERE {} IS NULL").format(staging, _of("s", order))
    if load.quarantine:
        _reject(connection, load, order, without, "the order of the change is NULL")
    elif connection.execute(without).fetchone() is not None:
        raise LoadError(
            f"Nothing was loaded into {plain(load.target.name)}: a change has NULL in column {order}, which orders "
            "the changes."
        )


def _reject(
    connection: Connection[Any], load: Load, column: str, rows: Composed, reason: str
) -> None:
    line = SQL(" || chr(9) || ").join(
        SQL("coalesce({}::text, '\\N')").format(Identifier(item.name)) for item in load.columns
    )
    catalog_loads.reject(
        connection, load.id, rows, column, SQL("{}::text").format(Literal(reason)), line
    )
