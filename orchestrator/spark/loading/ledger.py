"""The driver's part of a load in the database: what it is to load, and its beginning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.errors import UniqueViolation
from psycopg.sql import SQL, Composed, Identifier

from orchestrator.catalog import loads as catalog_loads
from orchestrator.catalog import relation_oid
from orchestrator.catalog.loads import PART, POSITION, staging_table
from orchestrator.errors import NotFoundError
from orchestrator.frontend import catalog
from orchestrator.frontend.facts import Relation
from orchestrator.frontend.statements import QualifiedName
from orchestrator.spark.errors import LoadError
from orchestrator.spark.types import Column


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
    return Target(name, relation, catalog.columns_with_defaults(connection, oid))


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


def unfinished(connection: Connection[Any], command: str) -> tuple[int, str | None] | None:
    """The same load as it was left by a driver that has ended, with its layout.

    It is locked for this session; refuses one that another session is at.
    """
    found = catalog_loads.unfinished(connection, command)
    if found is None:
        return None
    load, layout, locked = found
    if not locked:
        raise LoadError(
            f"The same load is running in another session (load {load}): wait for it to end."
        )
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
            number = catalog_loads.insert(
                connection,
                str(target.name),
                relation.oid if relation else None,
                mode=mode,
                command=command,
                sources=sources,
                layout=layout,
            )
        except UniqueViolation as error:
            raise LoadError(
                f"The same load into {plain(target.name)} is running in another session: wait for it."
            ) from error
        load = Load(number, target, mode, columns, key, quarantine, layout)
        _create_staging(connection, load)
    return load


def _create_staging(connection: Connection[Any], load: Load) -> None:
    staging, table = staging_table(load.id), load.target.relation
    if table is None:
        listed = SQL(", ").join(
            # The types are of our own making: see made_type.
            SQL("{} {}").format(Identifier(each.name), SQL(each.type))
            for each in load.columns
        )
        connection.execute(SQL("CREATE UNLOGGED TABLE {} ({})").format(staging, listed))
    else:
        # Its constraints let COPY name the line of a row that violates one.
        connection.execute(
            SQL("CREATE UNLOGGED TABLE {} (LIKE {} INCLUDING CONSTRAINTS)").format(
                staging, Identifier(table.schema, table.name)
            )
        )
        for item in load.columns:
            if item.added:
                connection.execute(added(staging, item))
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


def added(table: Identifier, column: Column) -> Composed:
    """Return the statement that adds a column of a source to a table."""
    return SQL("ALTER TABLE {} ADD COLUMN {} {}").format(
        table, Identifier(column.name), SQL(column.type)
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
