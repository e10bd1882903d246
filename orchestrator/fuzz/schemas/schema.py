"""The generator's model of a schema, and functions for small parts of SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.fuzz.case import Table
from orchestrator.fuzz.schemas.values import ColumnType, fresh_value
from orchestrator.sqltext import fitted_name

if TYPE_CHECKING:
    from typing_extensions import LiteralString

Row = dict[str, str | None]

ENFORCED = ("primary", "unique", "index")
"""Kinds of keys that PostgreSQL enforces at once: constraints, or a unique index without NULL."""


@dataclass(frozen=True)
class Column:
    """A column of a table; `computed` is the expression of a generated column."""

    name: str
    type: ColumnType
    nullable: bool = True
    identity: str | None = None
    computed: Composable | None = None

    @property
    def sql(self) -> Identifier:
        """Its name in SQL."""
        return Identifier(self.name)


@dataclass(frozen=True)
class Reference:
    """A foreign key."""

    columns: tuple[Column, ...]
    table: Model
    actions: LiteralString


@dataclass(frozen=True)
class Model:
    """The generator's model of a table.

    `path` is its schema and its name. `key` has the columns of its primary key, or of a unique key
    without NULL; `key_kind` says which. `parts` are partitions within `bounds`, or inheritance
    children, and can be written directly.
    """

    path: tuple[str, str]
    columns: tuple[Column, ...]
    key: tuple[Column, ...] = ()
    key_kind: str = "none"
    partitioned_by: str | None = None
    inherited: bool = False
    parts: tuple[tuple[str, str], ...] = ()
    bounds: tuple[Composable, ...] = ()
    references: tuple[Reference, ...] = ()
    rows: tuple[Row, ...] = ()

    @property
    def name(self) -> Identifier:
        """Its name in SQL."""
        return Identifier(*self.path)

    @property
    def key_name(self) -> Identifier:
        """The name of the constraint or index that enforces the key."""
        return Identifier(fitted_name(self.path[1], " key"))

    @property
    def key_index(self) -> Identifier:
        """The qualified name of the index of the key."""
        return Identifier(self.path[0], fitted_name(self.path[1], " key"))

    @property
    def written(self) -> tuple[Column, ...]:
        """The columns that an INSERT can set."""
        return tuple(c for c in self.columns if c.computed is None and c.identity != "ALWAYS")

    @property
    def unique(self) -> tuple[str, ...]:
        """The columns that distinguish its rows; none if a child may repeat the keys of its parent."""
        return () if self.inherited else tuple(column.name for column in self.key)


@dataclass(frozen=True)
class Schema:
    """The schemas, types and tables of a case."""

    schemas: tuple[str, ...]
    types: tuple[str, ...]
    enum: ColumnType
    models: tuple[Model, ...]
    tables: tuple[Table, ...]


def listed(parts: Sequence[Composable]) -> Composed:
    """Return the parts separated by commas."""
    return SQL(", ").join(parts)


def literal(value: str | None) -> Composable:
    """Return a value as a constant without a type, which takes the type of its column."""
    return SQL("NULL") if value is None else Literal(value)


def insert_head(name: Identifier, columns: Sequence[Column], overriding: bool = False) -> Composed:
    """Return `INSERT INTO name (columns)`, without the VALUES."""
    return SQL("INSERT INTO {} ({}){}").format(
        name,
        listed([column.sql for column in columns]),
        SQL(" OVERRIDING SYSTEM VALUE") if overriding else SQL(""),
    )


def row_values(columns: Sequence[Column], row: Row) -> Composed:
    """Return a row of a VALUES list."""
    return SQL("({})").format(listed([literal(row[column.name]) for column in columns]))


def any_value(rng: Random, column: Column, fresh: float = 0.0) -> str | None:
    """Return a value of a column's pool, NULL if allowed, or a new value with chance `fresh`."""
    if column.nullable and rng.random() < 0.2:
        return None
    if rng.random() < fresh:
        return fresh_value(column.type.family, rng.randint(10, 60))
    return rng.choice(column.type.pool)
