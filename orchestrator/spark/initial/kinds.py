"""The types whose values Spark represents like PostgreSQL, and how columns are read.

This is a positive list. A type that is not here is not read, and PostgreSQL computes a state that needs it.
Some types are carried as text, without computing with them: their values are written back unchanged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.algebra.dialect import Tree
from orchestrator.frontend.facts import RelationColumn

INTEGERS = {"smallint": 5, "integer": 10, "bigint": 19}
"""The integer types, and the number of digits that their values may have."""

MOST_DIGITS = 38
"""The maximum number of digits of Spark's decimals."""

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
    """Spark's result may differ from PostgreSQL's; the message names the expression or type."""


@dataclass(frozen=True)
class Kind:
    """A PostgreSQL type, and its representation in Spark."""

    name: str
    precision: int = 0
    scale: int = 0
    carried: bool = False
    """Whether values are only passed on, as text."""

    @property
    def spark(self) -> str:
        """The type's name in Spark."""
        if self.name == "numeric" and not self.carried:
            return f"DECIMAL({self.precision},{self.scale})"
        return "STRING" if self.carried else _PLAIN.get(self.name, "STRING").upper()

    @property
    def postgresql(self) -> str:
        """The type with which PostgreSQL takes values back."""
        return f"character({self.precision})" if self.name == "character" else self.name

    @property
    def integer(self) -> bool:
        """Whether it is an integer type."""
        return self.name in INTEGERS

    @property
    def decimal(self) -> bool:
        """Whether it is a numeric type to compute with."""
        return self.name == "numeric" and not self.carried

    @property
    def text(self) -> bool:
        """Whether it holds text."""
        return self.name in ("text", "character")

    @property
    def ordered(self) -> bool:
        """Whether `<` compares as in PostgreSQL; the order of text depends on its collation."""
        return self.integer or self.decimal or self.name in _ORDERED

    @property
    def comparable(self) -> bool:
        """Whether `=` agrees with PostgreSQL, and equal values look equal."""
        return not self.carried or self.name in ("uuid", "bytea")


_ORDERED = ("date", "timestamp without time zone", "timestamp with time zone")

BOOLEAN = Kind("boolean")
TEXT = Kind("text")
INTEGER = Kind("integer")
BIGINT = Kind("bigint")
TIMESTAMP = Kind("timestamp without time zone")


def decimal(precision: int, scale: int) -> Kind:
    """Return a numeric type with the given scale; values with too many digits are errors in Spark.

    >>> decimal(40, 4)
    Kind(name='numeric', precision=38, scale=4, carried=False)
    """
    if scale > MOST_DIGITS:
        raise InexactError(f"numbers with {scale} places")
    return Kind("numeric", min(max(precision, scale, 1), MOST_DIGITS), scale)


def as_decimal(kind: Kind) -> Kind:
    """Return the numeric type for the values of an integer type."""
    return decimal(INTEGERS[kind.name], 0) if kind.integer else kind


def read_as(column: RelationColumn) -> Kind:
    """Return how a column of a table is read.

    In a numeric column with a fixed scale, all values show all decimal places. A numeric column without one
    may hold 1.0 and 1.00, so its values are carried as text.
    """
    kind = named(column.plain_type)
    if kind is None:
        raise InexactError(f"column {column.name} is of type {column.plain_type}")
    if kind.text and not column.deterministic:
        raise InexactError(f"column {column.name} has a collation in which unlike texts are equal")
    return kind


def kind_or_reason(column: RelationColumn) -> Kind | InexactError:
    """Return how a column of a table is read, or why it is not."""
    try:
        return read_as(column)
    except InexactError as reason:
        return reason


def named(type_: str) -> Kind | None:
    """Return the kind of a type as PostgreSQL writes it; None if Spark cannot represent it.

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
    """An expression in Spark's SQL."""

    tree: Tree
    kind: Kind
    scale: Tree | None = None
    """If numerics differ in scale, the expression for the scale of each; the kind has the largest."""
    scales: tuple[int, ...] = ()
    """If numerics differ in scale, the scales that are possible."""

    @property
    def possible(self) -> tuple[int, ...]:
        """The scales that values may have."""
        return self.scales if self.scale is not None else (self.kind.scale,)
