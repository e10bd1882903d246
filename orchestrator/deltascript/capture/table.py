"""A captured table: its identity, its columns, and the names of its objects in the log schema."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.deltascript.plan import SourceColumn

PLACEHOLDER = "present"


@dataclass(frozen=True)
class Layout:
    """A table as its triggers know it: its identity, and its columns, dropped ones left out."""

    oid: int
    columns: tuple[tuple[int, str], ...]
    partitioned: bool = False
    """Whether it consists of other tables, its partitions."""


@dataclass(frozen=True)
class Captured:
    """A source as installed: its id, its table and the names its columns have in the source view."""

    id: int
    relation: Composable
    columns: tuple[tuple[SourceColumn, str], ...]
    placeholder: bool = False
    """Whether the source view begins with a column that stands for none, as for count(*)."""

    @property
    def keyed(self) -> bool:
        """Whether the source has a key."""
        return any(column.in_key for column, _ in self.columns)

    @property
    def base(self) -> str:
        """The name that all objects of the source begin with."""
        return f"s{self.id}"

    @property
    def view(self) -> Identifier:
        """The source view."""
        return Identifier("idivm_def", self.base)

    @property
    def image(self) -> Identifier:
        """The type of an image: a row of the source view without the domains."""
        return self.log("_image")

    def arguments(self, number: int) -> tuple[str, ...]:
        """What the C form of capture is told of a table: source, number, the key's columns."""
        key = (str(column.attnum) for column, _ in self.columns if column.in_key)
        return (str(self.id), str(number), *key)

    def log(self, suffix: str = "") -> Identifier:
        """An object in the log schema."""
        return Identifier("idivm_log", self.base + suffix)


def function_body(body: Composable) -> Literal:
    """A function's body as a string constant, so that no name in it can end it."""
    return Literal("\n" + body.as_string(None) + "\n")


def skip(source: Captured) -> int:
    """Return how many of a row's columns to leave out, where the placeholder comes first."""
    return 0 if source.placeholder else 1


def keys(source: Captured) -> list[tuple[SourceColumn, str]]:
    """Return the columns of the key, and their names in the source view."""
    return [(column, name) for column, name in source.columns if column.in_key]


def first_key(source: Captured, row: Composable) -> Composed:
    """Return the first column of the key of an image, which is NULL where there is no image."""
    return SQL("({}).{}").format(row, Identifier(keys(source)[0][1]))
