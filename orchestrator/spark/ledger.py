"""The driver's part of a load in the database: begin it, look how far it is, give it up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.errors import LockNotAvailable, UniqueViolation
from psycopg.sql import SQL, Identifier

from orchestrator.errors import NotFoundError
from orchestrator.frontend import catalog
from orchestrator.frontend.facts import Relation
from orchestrator.frontend.statements import QualifiedName
from orchestrator.runtime.catalog import relation_oid
from orchestrator.spark.copying import PART, POSITION, STAGING_SCHEMA, staging_table
from orchestrator.spark.errors import LoadError
from orchestrator.spark.types import Column

_LOCK_CLASS = 1_768_187_767
"""The class of the advisory locks that running loads hold; any number that others do not use."""


TRANSIENT = "initial state"
"""Stands for the layout of a load that nobody goes on with: the initial state of a view."""


@dataclass(frozen=True)
class Target:
    """A table to load, and which of its columns have defaults; no relation yet if it is to be made."""

    name: QualifiedName
    relation: Relation | None
    defaults: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Load:
    """A load into one table that has begun."""

    id: int
    target: Target
    mode: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """The columns that tell rows apart, where there is a key."""
    quarantine: bool
    layout: str | None


@dataclass(frozen=True)
class Progress:
    """How far the tasks of a load have come."""

    parts: int
    rows: int


def target_named(connection: Connection[Any], name: QualifiedName) -> Target:
    """The table of this name, if there is one; refuses what cannot be loaded."""
    oid = relation_oid(connection, name.identifier)
    if oid is None:
        return Target(name, None)
    relation = catalog.relations(connection, [oid])[oid]
    if relation.maintained is not None:
        raise LoadError(f"{plain(name)} is a maintained view: load the tables that it reads.")
    if relation.relkind not in ("r", "p") or relation.persistence == "t" or relation.system:
        raise LoadError(f"{plain(name)} is not a table that can be loaded ({relation.kind}).")
    rows = connection.execute(
        "SELECT adnum::integer FROM pg_attrdef WHERE adrelid = %s::oid", [oid]
    ).fetchall()
    return Target(name, relation, frozenset(row[0] for row in rows))


def key_columns(target: Target, wanted: Sequence[str] | None) -> tuple[str, ...]:
    """The columns that tell the rows of a table apart: those asked for, or those of its best key."""
    table = target.relation
    if table is None:
        return tuple(wanted or ())
    keys = [tuple(table.column(attnum).name for attnum in key.columns) for key in table.usable_keys]
    if not wanted:
        return keys[0] if keys else ()
    for key in keys:
        if set(key) == set(wanted):
            return key
    raise LoadError(
        f"{plain(target.name)} has no key ({', '.join(wanted)}): name the columns of its primary key or "
        "of a unique index whose columns are NOT NULL."
    )


def finished(connection: Connection[Any], command: str, target: Target) -> int | None:
    """The load that has done the same before into the same table, if there is one."""
    if target.relation is None:
        return None
    row = connection.execute(
        "SELECT max(id) FROM idivm.loads"
        " WHERE command = %s AND status = 'done' AND relation = %s::oid::regclass",
        [command, target.relation.oid],
    ).fetchone()
    return row[0] if row else None


def unfinished(connection: Connection[Any], command: str) -> tuple[int, str | None] | None:
    """The same load as it was left by a driver that has ended, with its layout.

    It is locked for this session; refuses one that another session is at.
    """
    row = connection.execute(
        "SELECT id, layout, pg_try_advisory_lock(%s, id) FROM idivm.loads"
        " WHERE command = %s AND status = 'loading'",
        [_LOCK_CLASS, command],
    ).fetchone()
    if row is None:
        return None
    load, layout, locked = row
    if not locked:
        raise _busy(load)
    return load, layout


def begin(
    connection: Connection[Any],
    target: Target,
    *,
    mode: str,
    columns: tuple[Column, ...],
    key: tuple[str, ...],
    quarantine: bool,
    command: str,
    sources: Sequence[Any] = (),
    layout: str | None = None,
) -> Load:
    """Notes a load and makes its staging table; the session holds the load's lock from then on."""
    relation = target.relation
    with connection.transaction():
        try:
            row = connection.execute(
                "INSERT INTO idivm.loads (name, relation, mode, command, sources, layout)"
                " VALUES (%s, %s::oid::regclass, %s, %s, %s, %s)"
                " RETURNING id, pg_advisory_lock(%s, id)",
                [
                    str(target.name),
                    relation.oid if relation else None,
                    *(mode, command, json.dumps(list(sources)), layout, _LOCK_CLASS),
                ],
            ).fetchone()
        except UniqueViolation as error:
            raise LoadError(
                f"The same load into {plain(target.name)} is running in another session: wait for it."
            ) from error
        assert row is not None
        load = Load(row[0], target, mode, columns, key, quarantine, layout)
        _create_staging(connection, load)
    return load


def _create_staging(connection: Connection[Any], load: Load) -> None:
    staging, table = staging_table(load.id), load.target.relation
    if table is None:
        listed = SQL(", ").join(
            # The types are of our own making: see made_type.
            SQL("{} {}").format(Identifier(one.name), SQL(one.type))
            for one in load.columns
        )
        connection.execute(SQL("CREATE UNLOGGED TABLE {} ({})").format(staging, listed))
    else:
        # Its constraints let COPY name the line of a row that violates one.
        connection.execute(
            SQL("CREATE UNLOGGED TABLE {} (LIKE {} INCLUDING CONSTRAINTS)").format(
                staging, Identifier(table.schema, table.name)
            )
        )
        loaded = {column.name for column in load.columns}
        for column in table.columns:
            if column.name not in loaded:
                connection.execute(
                    SQL("ALTER TABLE {} DROP COLUMN {}").format(staging, Identifier(column.name))
                )
    if load.quarantine:
        connection.execute(
            SQL("ALTER TABLE {} ADD COLUMN {} integer, ADD COLUMN {} bigint").format(
                staging, Identifier(PART), Identifier(POSITION)
            )
        )
    connection.execute(SQL("ALTER TABLE {} SET (autovacuum_enabled = false)").format(staging))


def progress(connection: Connection[Any], load: int) -> Progress:
    """Partitions and rows in the staging table, with the rows of the copies that are under way."""
    row = connection.execute(
        "SELECT count(*), coalesce(sum(rows_read), 0)::bigint,"
        " (SELECT coalesce(sum(tuples_processed), 0)::bigint FROM pg_stat_progress_copy"
        "  WHERE relid = to_regclass(%s))"
        " FROM idivm.load_parts WHERE load = %s",
        [staging_table(load).as_string(connection), load],
    ).fetchone()
    assert row is not None
    return Progress(row[0], row[1] + row[2])


def parts_written(connection: Connection[Any], load: int) -> int:
    """How many partitions Spark says it has written."""
    row = connection.execute("SELECT parts FROM idivm.loads WHERE id = %s", [load]).fetchone()
    assert row is not None and row[0] is not None
    return int(row[0])


def fail(connection: Connection[Any], load: int) -> None:
    """Gives a load up for good; its rejected rows stay to be looked at."""
    connection.execute(
        "UPDATE idivm.loads SET status = 'failed', ended_at = now() WHERE id = %s", [load]
    )
    connection.execute("DELETE FROM idivm.load_parts WHERE load = %s", [load])
    drop_staging(connection, load)


def hand_over(load: int, one: Connection[Any], other: Connection[Any]) -> None:
    """Has another session hold a load's lock as well, so that the first one may end."""
    shared = "SELECT pg_advisory_lock_shared(%s, %s)"
    one.execute(shared, [_LOCK_CLASS, load])
    unlock(one, load)
    other.execute(shared, [_LOCK_CLASS, load])


def end(connection: Connection[Any], load: int) -> None:
    """Ends a load of which nothing is to be remembered."""
    connection.execute("DELETE FROM idivm.loads WHERE id = %s", [load])
    connection.execute(SQL("DROP TABLE IF EXISTS {}").format(staging_table(load)))


def drop_staging(connection: Connection[Any], load: int) -> None:
    """Drops a staging table, unless a task that came too late still holds it; `sweep` will do."""
    try:
        with connection.transaction():
            connection.execute("SET LOCAL lock_timeout = '5s'")
            connection.execute(SQL("DROP TABLE IF EXISTS {}").format(staging_table(load)))
    except LockNotAvailable:
        return


def sweep(connection: Connection[Any]) -> None:
    """Drops the staging tables of loads that have ended, and gives up those of states half made."""
    left = connection.execute(
        "SELECT id FROM (SELECT id FROM idivm.loads WHERE layout = %s AND status = 'loading' OFFSET 0)"
        " AS l WHERE pg_try_advisory_lock(%s, id)",
        [TRANSIENT, _LOCK_CLASS],
    ).fetchall()
    for (load,) in left:
        end(connection, load)
        unlock(connection, load)
    rows = connection.execute(
        "SELECT c.relname FROM pg_class c WHERE c.relnamespace = to_regnamespace(%s)"
        " AND c.relkind = 'r' AND NOT EXISTS (SELECT FROM idivm.loads l"
        " WHERE l.status = 'loading' AND c.relname = 'l' || l.id)",
        [STAGING_SCHEMA],
    ).fetchall()
    for (name,) in rows:
        drop_staging(connection, int(name[1:]))


def unlock(connection: Connection[Any], load: int, *, shared: bool = False) -> None:
    """Lets go of a load."""
    if not connection.closed:
        release = "pg_advisory_unlock_shared" if shared else "pg_advisory_unlock"
        connection.execute(SQL("SELECT {}(%s, %s)").format(SQL(release)), [_LOCK_CLASS, load])


def _busy(load: int) -> LoadError:
    return LoadError(
        f"The same load is running in another session (load {load}): wait for it to end."
    )


def plain(name: QualifiedName) -> str:
    """A name as a person reads it.

    >>> plain(QualifiedName("orders", "shop"))
    'shop.orders'
    """
    return f"{name.schema}.{name.name}" if name.schema else name.name


def require(target: Target, create: bool) -> None:
    """Refuses a table that is missing, unless it is to be made."""
    if target.relation is None and not create:
        raise NotFoundError(
            f"There is no table {plain(target.name)}: create it, or let the load do so (--create)."
        )
