"""The driver's part of a load in the database: its tables, and the start of the load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.errors import UniqueViolation
from psycopg.sql import SQL, Composed, Identifier

from orchestrator.catalog import loads as catalog_loads
from orchestrator.catalog import relation_oid
from orchestrator.catalog.loads import PLACE, staging_table
from orchestrator.errors import NotFoundError
from orchestrator.frontend import catalog
from orchestrator.frontend.facts import Relation
from orchestrator.frontend.statements import QualifiedName
from orchestrator.spark.errors import LoadError
from orchestrator.spark.types import Column


@dataclass(frozen=True)
class Target:
    """A table to load, and the columns with defaults; no relation if the load will create the table."""

    name: QualifiedName
    relation: Relation | None
    defaults: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Load:
    """A load into one table that has started."""

    id: int
    target: Target
    mode: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    """The columns that identify rows, if there is a key."""
    quarantine: bool
    layout: str | None
    op: str | None = None
    """The staged column that says what happened to a row."""
    order: str | None = None
    """The staged column that orders the changes of a row."""

    @property
    def moved(self) -> tuple[Column, ...]:
        """The columns that the table gets; the others only control the load."""
        return tuple(column for column in self.columns if not column.control)


def target_named(connection: Connection[Any], name: QualifiedName) -> Target:
    """Return the table of this name, if it exists; refuse relations that cannot be loaded."""
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
    """Return the columns that identify a table's rows: the wanted columns, or its best key."""
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
    """Return the unfinished load of a command whose driver has ended, with its layout.

    The load is locked for this session. If another session is running it, raise an error.
    """
    unfinished_load = catalog_loads.unfinished(connection, command)
    if unfinished_load is None:
        return None
    load, layout, locked = unfinished_load
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
    op: str | None = None,
    order: str | None = None,
) -> Load:
    """Record a load and create its staging table; the session holds the load's lock from then on."""
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
        load = Load(number, target, mode, columns, key, quarantine, layout, op, order)
        _create_staging(connection, load)
    return load


def _create_staging(connection: Connection[Any], load: Load) -> None:
    staging, table = staging_table(load.id), load.target.relation
    if table is None:
        listed = SQL(", ").join(
            # The types come from type_to_create, not from the user.
            SQL("{} {}").format(Identifier(column.name), SQL(column.type))
            for column in load.columns
        )
        connection.execute(SQL("CREATE UNLOGGED TABLE {} ({})").format(staging, listed))
    else:
        # The table's constraints let COPY report the line of a row that violates one. They hold for sums, not for
        # the rows that are added.
        constraints = SQL("" if load.mode == "add" else " INCLUDING CONSTRAINTS")
        connection.execute(
            SQL("CREATE UNLOGGED TABLE {} (LIKE {}{})").format(
                staging, Identifier(table.schema, table.name), constraints
            )
        )
        for new_column in load.columns:
            if new_column.added or new_column.control:
                connection.execute(added(staging, new_column))
        loaded = {column.name for column in load.columns}
        for column in table.columns:
            if column.name not in loaded:
                connection.execute(
                    SQL("ALTER TABLE {} DROP COLUMN {}").format(staging, Identifier(column.name))
                )
            elif (
                load.op
                and load.mode == "upsert"
                and column.not_null
                and column.name not in load.key
            ):
                # A deleted row has only its key.
                connection.execute(
                    SQL("ALTER TABLE {} ALTER COLUMN {} DROP NOT NULL").format(
                        staging, Identifier(column.name)
                    )
                )
    if load.quarantine:
        connection.execute(
            SQL("ALTER TABLE {} ADD COLUMN {} bigint").format(staging, Identifier(PLACE))
        )
    connection.execute(SQL("ALTER TABLE {} SET (autovacuum_enabled = false)").format(staging))


def added(table: Identifier, column: Column) -> Composed:
    """Return the statement that adds a column of a source to a table."""
    return SQL("ALTER TABLE {} ADD COLUMN {} {}").format(
        table, Identifier(column.name), SQL(column.type)
    )


def plain(name: QualifiedName) -> str:
    """Return a name for messages.

    >>> plain(QualifiedName("orders", "shop"))
    'shop.orders'
    """
    return f"{name.schema}.{name.name}" if name.schema else name.name


def require(target: Target, create: bool) -> None:
    """Refuse a missing table, unless the load will create it."""
    if target.relation is None and not create:
        raise NotFoundError(
            f"There is no table {plain(target.name)}: create it, or let the load do so (--create)."
        )
