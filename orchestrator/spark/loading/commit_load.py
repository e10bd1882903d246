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
from orchestrator.catalog.loads import PLACE, staging_table
from orchestrator.catalog.search_path import users_path
from orchestrator.frontend import catalog
from orchestrator.frontend.facts import ForeignKey, Relation
from orchestrator.spark.errors import LoadError
from orchestrator.spark.loading.ledger import Load, added, plain
from orchestrator.spark.streams.changes import deletes, not_older, prepare_changes
from orchestrator.spark.streams.sums import add, lock


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
            if not {key.target for key in _references(load)} & (set(waiting) - {oid})
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
    if rejects and all(map(_refused_on_insert, ordered)):
        # Most loads have no row that violates a key, and searching for such rows reads and sorts all rows.
        try:
            with connection.transaction():
                return _move_all(connection, ordered, rejects=False)
        except IntegrityError:
            pass
    return _move_all(connection, ordered, rejects)


def _refused_on_insert(load: Load) -> bool:
    """Return whether PostgreSQL refuses on insert each row that a quarantine would reject."""
    deferred = any(key.deferrable for key in _references(load))
    return not deferred and not _updates_rows(load)


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
                connection.execute(added(_name(connection, load), column))
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
        conditions = [_same(connection, table, load.key)]
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
            staging_table(load.id), _same(connection, table, load.key)
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
        _reject_conflicting(connection, load)
    if table is None:
        _create(connection, load)
    names = SQL(", ").join(Identifier(column.name) for column in load.moved)
    statement = SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM {} AS s").format(
        _name(connection, load), names, names, staging_table(load.id)
    )
    if table is not None and load.mode == "add":
        lock(connection, table)
        statement = add(load, table, _same(connection, table, load.key))
    elif table is not None and _updates_rows(load):
        statement += _on_conflict(load, table)
    loaded = _write(connection, statement)
    if table is None and load.key:
        connection.execute(
            SQL("ALTER TABLE {} ADD PRIMARY KEY ({})").format(
                _name(connection, load), SQL(", ").join(map(Identifier, load.key))
            )
        )
    read, rejected = catalog_loads.note_done(
        connection, load.id, _name(connection, load).as_string(connection), loaded
    )
    return Moved(read, loaded, removed, rejected)


def _write(connection: Connection[Any], statement: Composed) -> int:
    """Change a user's table with the user's search path, so that triggers find names as usual."""
    with users_path(connection):
        return connection.execute(statement).rowcount


def _name(connection: Connection[Any], load: Load) -> Identifier:
    table, name = load.target.relation, load.target.name
    if table is not None:
        return Identifier(table.schema, table.name)
    if name.schema:
        return name.identifier
    with users_path(connection):
        row = connection.execute("SELECT pg_catalog.current_schema()").fetchone()
    assert row is not None
    return Identifier(row[0], name.name)


def _create(connection: Connection[Any], load: Load) -> None:
    listed = [
        SQL("{} {}").format(Identifier(column.name), SQL(column.type)) for column in load.columns
    ]
    connection.execute(
        SQL("CREATE TABLE {} ({})").format(_name(connection, load), SQL(", ").join(listed))
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


def _same(
    connection: Connection[Any],
    table: Relation,
    columns: Sequence[str],
    staged: Sequence[str] | None = None,
) -> Composed:
    """Return the condition that a row t of a table has the key of a row s, with the equality of its type."""
    types = {column.name: column.type_oid for column in table.columns}
    equal = catalog.equality_operators(connection, [types[column] for column in columns])
    return SQL(" AND ").join(
        SQL("t.{} OPERATOR({}) s.{}").format(
            Identifier(there), equal[types[there]], Identifier(here)
        )
        for there, here in zip(columns, staged or columns, strict=True)
    )


def _references(load: Load) -> tuple[ForeignKey, ...]:
    return load.target.relation.foreign_keys if load.target.relation else ()


def _reject_conflicting(connection: Connection[Any], load: Load) -> None:
    """Reject rows that are valid but conflict with other rows."""
    table = load.target.relation
    if table is None:
        _reject_nulls(connection, load, load.key)
        _reject_repeated(connection, load, load.key)
        return
    loaded = {column.name for column in load.columns}
    if load.op is not None and load.mode == "upsert":
        _reject_nulls(
            connection, load, [c.name for c in table.columns if c.not_null and c.name in loaded]
        )
    for key in table.usable_keys if load.mode != "add" else ():
        names = [table.column(attnum).name for attnum in key.columns]
        if not set(names) <= loaded:
            continue
        _reject_repeated(connection, load, names)
        may_conflict = load.mode == "append" or (
            load.mode == "upsert" and set(names) != set(load.key)
        )
        if may_conflict:
            conflicting = SQL(
                "SELECT s.ctid FROM {} AS s WHERE EXISTS (SELECT FROM {} AS t WHERE {})"
            )
            conflicting_rows = conflicting.format(
                staging_table(load.id), _name(connection, load), _same(connection, table, names)
            )
            _reject(
                connection, load, names, conflicting_rows, "the table has a row with the same key"
            )
    for reference in table.foreign_keys:
        names = [table.column(attnum).name for attnum in reference.columns]
        if set(names) <= loaded:
            _reject(
                connection,
                load,
                names,
                _dangling(connection, load, reference, names),
                f"the row that it refers to is missing ({reference.name})",
            )


def _reject_nulls(connection: Connection[Any], load: Load, names: Sequence[str]) -> None:
    """Reject rows with NULL in columns that the staging table does not check."""
    for name in names:
        missing = SQL("SELECT ctid FROM {} WHERE {} IS NULL").format(
            staging_table(load.id), Identifier(name)
        )
        _reject(connection, load, [name], missing, "the column must not be NULL")


def _reject_repeated(connection: Connection[Any], load: Load, names: Sequence[str]) -> None:
    if names:
        reason = "the source has a row before it with the same key"
        _reject(connection, load, names, _repeated(load, names), reason)


def _repeated(load: Load, names: Sequence[str]) -> Composed:
    return SQL(
        "SELECT ctid FROM (SELECT ctid, row_number() OVER (PARTITION BY {} ORDER BY {}) AS n"
        " FROM {}) AS s WHERE n > 1"
    ).format(
        SQL(", ").join(map(Identifier, names)),
        Identifier(PLACE),
        staging_table(load.id),
    )


def _dangling(
    connection: Connection[Any], load: Load, reference: ForeignKey, names: Sequence[str]
) -> Composed:
    other = catalog.relations(connection, [reference.target])[reference.target]
    targets = [other.column(attnum).name for attnum in reference.target_columns]
    referenced = SQL("EXISTS (SELECT FROM {} AS t WHERE {})").format(
        Identifier(other.schema, other.name), _same(connection, other, targets, names)
    )
    if load.target.relation is not None and other.oid == load.target.relation.oid:
        referenced += SQL(" OR EXISTS (SELECT FROM {} AS t WHERE {})").format(
            staging_table(load.id), _same(connection, other, targets, names)
        )
    return SQL("SELECT s.ctid FROM {} AS s WHERE {} AND NOT ({})").format(
        staging_table(load.id),
        SQL(" AND ").join(SQL("s.{} IS NOT NULL").format(Identifier(name)) for name in names),
        referenced,
    )


def _reject(
    connection: Connection[Any], load: Load, names: Sequence[str], rows: Composed, reason: str
) -> None:
    values = SQL(" || ', ' || ").join(
        SQL("coalesce({}::text, 'NULL')").format(Identifier(name)) for name in names
    )
    line = SQL(" || chr(9) || ").join(
        SQL("coalesce({}::text, '\\N')").format(Identifier(column.name)) for column in load.columns
    )
    texts = SQL("{} || ': (' || {} || ')'").format(reason, values)
    catalog_loads.reject(connection, load.id, rows, ", ".join(names), texts, line)
