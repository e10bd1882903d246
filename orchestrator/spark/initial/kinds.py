"""The types whose values Spark holds as PostgreSQL does: what a column is read as, and computed with.

This is a positive list. A type that is not here is not read, and a state that needs it is computed
in PostgreSQL. Some types are carried along as text and not computed with: their values go back as
they came.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.algebra.dialect import Tree
from orchestrator.frontend.facts import RelationColumn

INTEGERS = {"smallint": 5, "integer": 10, "bigint": 19}
"""With the digits that their values may have."""

MOST_DIGITS = 38
"""Spark's decimals have no more."""

_PLAIN = {
    "smallint": "smallint",
    "integer": "int",
    "bigint": "bigint",
    "boolean": "boolean",
    "date": "date",
    "timestamp without time zone": "timestamp_ntz",
    "timestamp with time zone": "timestamp",
}
_CARRIED = ("real", "double precision", "numeric", "json", "jsonb", "bytea", "uuid")


class InexactError(Exception):
    """Spark cannot be relied on for PostgreSQL's answer; says what it is about."""


@dataclass(frozen=True)
class Kind:
    """A type, as PostgreSQL calls it, with what Spark has to know of it."""

    name: str
    precision: int = 0
    scale: int = 0
    carried: bool = False
    """Whether values are only handed on, as text."""

    @property
    def spark(self) -> str:
        """The type in Spark's words."""
        if self.name == "numeric" and not self.carried:
            return f"DECIMAL({self.precision},{self.scale})"
        return "STRING" if self.carried else _PLAIN.get(self.name, "STRING").upper()

    @property
    def postgresql(self) -> str:
        """The type in which PostgreSQL takes values back."""
        return f"character({self.precision})" if self.name == "character" else self.name

    @property
    def integer(self) -> bool:
        """Whether it is one of the integers."""
        return self.name in INTEGERS

    @property
    def decimal(self) -> bool:
        """Whether it is a numeric to compute with."""
        return self.name == "numeric" and not self.carried

    @property
    def text(self) -> bool:
        """Whether it holds text."""
        return self.name in ("text", "character")

    @property
    def ordered(self) -> bool:
        """Whether `<` compares as PostgreSQL does; that of text depends on its collation."""
        return self.integer or self.decimal or self.name in _ORDERED

    @property
    def comparable(self) -> bool:
        """Whether `=` finds equal what PostgreSQL does, and what is equal looks equal."""
        return not self.carried or self.name in ("uuid", "bytea")


_ORDERED = ("date", "timestamp without time zone", "timestamp with time zone")

BOOLEAN = Kind("boolean")
TEXT = Kind("text")
INTEGER = Kind("integer")
BIGINT = Kind("bigint")
TIMESTAMP = Kind("timestamp without time zone")


def decimal(precision: int, scale: int) -> Kind:
    """Numerics with so many places; what needs more digits than there are is an error of Spark's.

    >>> decimal(40, 4)
    Kind(name='numeric', precision=38, scale=4, carried=False)
    """
    if scale > MOST_DIGITS:
        raise InexactError(f"numbers with {scale} places")
    return Kind("numeric", min(max(precision, scale, 1), MOST_DIGITS), scale)


def as_decimal(kind: Kind) -> Kind:
    """The numerics that an integer becomes."""
    return decimal(INTEGERS[kind.name], 0) if kind.integer else kind


def read_as(column: RelationColumn) -> Kind:
    """What a column of a table is read as.

    A numeric of a fixed scale shows all its places in every value. One of none may hold 1.0 beside
    1.00, so that it is carried along as it is written.
    """
    kind = named(column.plain_type)
    if kind is None:
        raise InexactError(f"column {column.name} is of type {column.plain_type}")
    if kind.text and not column.deterministic:
        raise InexactError(f"column {column.name} has a collation in which unlike texts are equal")
    return kind


def named(type_: str) -> Kind | None:
    """The kind of a type as PostgreSQL writes it, if it is one of those.

    >>> named("numeric(12,2)"), named("numeric").carried, named("interval")
    (Kind(name='numeric', precision=12, scale=2, carried=False), True, None)
    """
    base, sizes = re.sub(r"\(.*?\)", "", type_), [int(n) for n in re.findall(r"\d+", type_)]
    if base == "numeric" and sizes:
        precision, scale = (*sizes, 0)[:2]
        fits = 0 <= scale <= precision <= MOST_DIGITS and "-" not in type_
        return Kind("numeric", precision, scale) if fits else None
    if base == "character" and sizes:
        return Kind("character", sizes[0])
    if base in ("text", "character varying"):
        return TEXT
    if base in _CARRIED:
        return Kind(base, carried=True)
    return Kind(base) if base in _PLAIN else None


@dataclass(frozen=True)
class Value:
    """An expression in Spark's words."""

    tree: Tree
    kind: Kind
    scale: Tree | None = None
    """Where numerics differ in their scale, what tells that of each; the kind's is the largest."""
    scales: tuple[int, ...] = ()
    """In that case, those that there may be."""

    @property
    def possible(self) -> tuple[int, ...]:
        """The scales that values may have."""
        return self.scales if self.scale is not None else (self.kind.scale,)
