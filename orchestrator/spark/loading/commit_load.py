"""Finish a load: one transaction that moves the rows of all its tables into place.

The statements are ordinary DML, so change capture, triggers and constraints see the rows like any others.
With a key to compare by, `replace` writes only rows that differ. Readers and older snapshots see the old
content until the commit, and maintained views get small changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.errors import IntegrityError
from psycopg.sql import SQL, Composed, Identifier

from orchestrator.catalog import loads as catalog_loads
from orchestrator.catalog import relation_oid
from orchestrator.catalog.loads import staging_table
from orchestrator.catalog.search_path import users_path
from orchestrator.frontend.constraints import unique_indexes
from orchestrator.frontend.facts import Relation
from orchestrator.spark.errors import LoadError
from orchestrator.spark.loading.conflicts import references, reject_conflicting, same, table_name
from orchestrator.spark.loading.ledger import Load, added, plain
from orchestrator.spark.streams.changes import deletes, not_older, prepare_changes
from orchestrator.spark.streams.sums import add, lock
from orchestrator.spark.streams.tables import is_batch, write_changes


@dataclass(frozen=True)
class Moved:
    """How many rows a load read, wrote, removed and rejected."""

    read: int
    loaded: int
    removed: int
    rejected: int


class IncompleteError(LoadError):
    """Partitions are missing in the ledger, because the server crashed during the load."""


class MissingTableError(LoadError):
    """The table of a load no longer exists."""


def in_order(loads: Sequence[Load]) -> list[Load]:
    """Return the loads with referenced tables before tables that reference them."""
    waiting = {load.target.relation.oid: load for load in loads if load.target.relation is not None}
    ordered = [load for load in loads if load.target.relation is None]
    while waiting:
        free = [
            oid
            for oid, load in waiting.items()
            if not {key.target for key in references(load)} & (set(waiting) - {oid})
        ]
        # Tables that reference each other in a cycle go in any order: deferred checks may accept it.
        for oid in free or list(waiting)[:1]:
            ordered.append(waiting.pop(oid))
    return ordered


def commit_loads(
    connection: Connection[Any], loads: Sequence[tuple[Load, int]]
) -> dict[int, Moved]:
    """Move the rows of loads, given with their numbers of partitions, in the open transaction."""
    parts = {load.id: number for load, number in loads}
    ordered = in_order([load for load, _ in loads])
    connection.execute("SET CONSTRAINTS ALL DEFERRED")
    for load in ordered:
        lock_and_verify(connection, load, parts[load.id])
    rejects = any(load.quarantine for load in ordered)
    if rejects and all(_refused_on_insert(connection, load) for load in ordered):
        # Most loads have no row that violates a key, and searching for such rows reads and sorts all rows.
        try:
            with connection.transaction():
                return _move_all(connection, ordered, rejects=False)
        except IntegrityError:
            pass
    return _move_all(connection, ordered, rejects)


def _refused_on_insert(connection: Connection[Any], load: Load) -> bool:
    """Return whether PostgreSQL refuses on insert each row that a quarantine would reject."""
    table = load.target.relation
    if _updates_rows(load) or any(key.deferrable for key in references(load)):
        return False
    return table is None or not any(
        index.deferrable for index in unique_indexes(connection, table.oid)
    )


def _updates_rows(load: Load) -> bool:
    """Return whether rows with the keys of existing rows update these rows."""
    if load.target.relation is None:
        return False
    return load.mode in ("upsert", "add") or (load.mode == "replace" and compares(load))


def _move_all(connection: Connection[Any], ordered: list[Load], rejects: bool) -> dict[int, Moved]:
    for load in ordered:
        for column in load.columns:
            # First, because a table with pending trigger events cannot be altered.
            if column.added and load.target.relation is not None:
                connection.execute(added(table_name(connection, load), column))
        prepare_changes(connection, load)
        # These staging tables are joined with other tables.
        if load.mode != "append" or (load.quarantine and rejects):
            connection.execute(SQL("ANALYZE {}").format(staging_table(load.id)))
    # Rows of referencing tables are removed first, rows of referenced tables are inserted first.
    removed = {load.id: _remove(connection, load) for load in reversed(ordered)}
    moved = {load.id: _move(connection, load, removed[load.id], rejects) for load in ordered}
    for load in ordered:
        # The tables are locked, so their names cannot change any more.
        require_present(connection, load)
    return moved


def require_present(connection: Connection[Any], load: Load) -> None:
    """Refuse to continue a load whose table was dropped, renamed or replaced during the load."""
    table = load.target.relation
    if table is None:
        return
    if relation_oid(connection, Identifier(table.schema, table.name)) != table.oid:
        raise MissingTableError(
            f"Nothing was loaded into {table.qualified}: the table was dropped, renamed or replaced while the "
            "load ran. Run the load again if there is a table of this name."
        )


def lock_and_verify(connection: Connection[Any], load: Load, parts: int) -> None:
    """Lock a load against other sessions, and refuse it if partitions are missing."""
    require_present(connection, load)
    count = catalog_loads.parts_in_place(connection, load.id)
    if count is None:
        raise LoadError(
            f"The load into {plain(load.target.name)} was given up meanwhile (load {load.id})."
        )
    if count != parts:
        raise IncompleteError(
            f"Of {parts} partitions for {plain(load.target.name)} only {count} are in the database, "
            "which must have crashed meanwhile: run the load again with --resume."
        )


def _remove(connection: Connection[Any], load: Load) -> int:
    """Delete the rows that `replace` does not find in the source, or that changes delete; return how many."""
    table = load.target.relation
    if table is not None and (rows := deletes(connection, load)) is not None:
        conditions = [same(connection, table, load.key)]
        if (not_late := not_older(load, Identifier("t"), Identifier("s"))) is not None:
            conditions.append(not_late)
        return _write(
            connection,
            SQL("WITH s AS ({}) DELETE FROM {} AS t USING s WHERE {}").format(
                rows, Identifier(table.schema, table.name), SQL(" AND ").join(conditions)
            ),
        )
    if load.mode != "replace" or table is None:
        return 0
    name = Identifier(table.schema, table.name)
    statement = SQL("DELETE FROM {} AS t").format(name)
    if compares(load):
        statement += SQL(" WHERE NOT EXISTS (SELECT FROM {} AS s WHERE {})").format(
            staging_table(load.id), same(connection, table, load.key)
        )
    return _write(connection, statement)


def compares(load: Load) -> bool:
    """Return whether `replace` can compare rows: there is a key, and the load fills all columns."""
    table = load.target.relation
    if table is None or not load.key or set(load.key) - {column.name for column in load.columns}:
        return False
    own = {column.name for column in table.columns if not column.generated}
    return own == {column.name for column in load.columns}


def _move(connection: Connection[Any], load: Load, removed: int, rejects: bool) -> Moved:
    table = load.target.relation
    if load.quarantine and rejects:
        reject_conflicting(connection, load)
    if table is None:
        _create(connection, load)
    names = SQL(", ").join(Identifier(column.name) for column in load.moved)
    statement = SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM {} AS s").format(
        table_name(connection, load), names, names, staging_table(load.id)
    )
    loaded = None
    if table is not None and is_batch(load):
        loaded, removed = write_changes(connection, load, table)
    elif table is not None and load.mode == "add":
        lock(connection, table)
        statement = add(load, table, same(connection, table, load.key))
    elif table is not None and _updates_rows(load):
        statement += _on_conflict(load, table)
    if loaded is None:
        loaded = _write(connection, statement)
    if table is None and load.key:
        connection.execute(
            SQL("ALTER TABLE {} ADD PRIMARY KEY ({})").format(
                table_name(connection, load), SQL(", ").join(map(Identifier, load.key))
            )
        )
    read, rejected = catalog_loads.note_done(
        connection, load.id, table_name(connection, load).as_string(connection), loaded
    )
    return Moved(read, loaded, removed, rejected)


def _write(connection: Connection[Any], statement: Composed) -> int:
    """Change a user's table with the user's search path, so that triggers find names as usual."""
    with users_path(connection):
        return connection.execute(statement).rowcount


def _create(connection: Connection[Any], load: Load) -> None:
    listed = [
        SQL("{} {}").format(Identifier(column.name), SQL(column.type)) for column in load.columns
    ]
    connection.execute(
        SQL("CREATE TABLE {} ({})").format(table_name(connection, load), SQL(", ").join(listed))
    )


def _on_conflict(load: Load, table: Relation) -> Composed:
    changing = [column.name for column in load.moved if column.name not in load.key]
    key = SQL(", ").join(map(Identifier, load.key))
    if not changing:
        return SQL(" ON CONFLICT ({}) DO NOTHING").format(key)
    exact = {column.name for column in table.columns if column.exact}
    not_late = not_older(load, Identifier(table.name), Identifier("excluded"))
    return SQL(" ON CONFLICT ({}) DO UPDATE SET {} WHERE {}({})").format(
        key,
        SQL(", ").join(SQL("{0} = excluded.{0}").format(Identifier(column)) for column in changing),
        SQL("") if not_late is None else SQL("{} AND ").format(not_late),
        # Rows that stay the same are not written, which also saves work in the views that read them.
        SQL(" OR ").join(
            SQL(
                # Without the cast PostgreSQL would compare the fields one by one.
                "ROW({1}.{0})::pg_catalog.record OPERATOR(pg_catalog.*<>) ROW(excluded.{0})"
                if column in exact
                else "ROW({1}.{0}::pg_catalog.text)::pg_catalog.record OPERATOR(pg_catalog.*<>)"
                " ROW(excluded.{0}::pg_catalog.text)"
            ).format(Identifier(column), Identifier(table.name))
            for column in changing
        ),
    )
