"""A captured table: its identity, its columns, and the names of its objects in the log schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.deltascript.plan import SourceColumn

PLACEHOLDER = "present"


@dataclass(frozen=True)
class Layout:
    """The identity of a table and its columns, without dropped ones, as its triggers use them."""

    oid: int
    columns: tuple[tuple[int, str], ...]
    partitioned: bool = False
    """Whether it is a partitioned table."""
    stream: bool = False
    """Whether its rows stay in files: each batch is logged, and then taken out of the table."""


@dataclass(frozen=True)
class Captured:
    """A source as installed: its id, its table, and the names of its columns in the source view."""

    id: int
    relation: Composable
    columns: tuple[tuple[SourceColumn, str], ...]
    placeholder: bool = False
    """Whether the source view begins with a placeholder column, for queries such as count(*)."""

    @property
    def keyed(self) -> bool:
        """Whether the source has a key."""
        return any(column.in_key for column, _ in self.columns)

    @property
    def base(self) -> str:
        """The prefix of the names of all objects of the source."""
        return f"s{self.id}"

    @property
    def view(self) -> Identifier:
        """The source view."""
        return Identifier("idivm_def", self.base)

    @property
    def image(self) -> Identifier:
        """The type of an image: a row of the source view without domains."""
        return self.log("_image")

    def arguments(self, number: int) -> tuple[str, ...]:
        """Return the arguments of the C form of capture: source, table number, key columns."""
        key = (str(column.attnum) for column, _ in self.columns if column.in_key)
        return (str(self.id), str(number), *key)

    def log(self, suffix: str = "") -> Identifier:
        """Return the name of an object in the log schema."""
        return Identifier("idivm_log", self.base + suffix)


def function_body(body: Composable) -> Literal:
    """Return the body of a function as a string constant, so that no name in it can end it."""
    return Literal("\n" + body.as_string(None) + "\n")


def skip(source: Captured) -> int:
    """Return how many leading columns of a row to skip: the placeholder, if the source does not
    need it.
    """
    return 0 if source.placeholder else 1


def keys(source: Captured) -> list[tuple[SourceColumn, str]]:
    """Return the columns of the key, and their names in the source view."""
    return [(column, name) for column, name in source.columns if column.in_key]


def first_key(source: Captured, row: Composable) -> Composed:
    """Return the first key column of an image, which is NULL if there is no image."""
    return SQL("({}).{}").format(row, Identifier(keys(source)[0][1]))


def identify_rows(table: Composable) -> Composed:
    """Return the statement that allows updates of a table without primary key in a publication of
    all tables.
    """
    return SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(table)


def add_key(table: Composable, *columns: str, further: Sequence[Composable] = ()) -> Composed:
    """Return the statement that adds a primary key, which then identifies the rows, and changes the table further."""
    key = SQL("ADD PRIMARY KEY ({})").format(SQL(", ").join(map(Identifier, columns)))
    changes = SQL(", ").join((key, SQL("REPLICA IDENTITY DEFAULT"), *further))
    return SQL("ALTER TABLE {} {}").format(table, changes)
