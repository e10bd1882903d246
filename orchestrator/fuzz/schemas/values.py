"""Column types with small pools of values, so that joins find matches and groups have several rows."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

if TYPE_CHECKING:
    from typing_extensions import LiteralString


@dataclass(frozen=True)
class ColumnType:
    """A column type; types of one family can be compared and mixed.

    `keyable` means that equal values of the pool have the same text, or that the comparison can
    tell whether the value that a DISTINCT, a GROUP BY or a MIN shows is right.
    """

    sql: Composable
    family: str
    pool: tuple[str, ...]
    keyable: bool = True


def _type(sql: LiteralString, family: str, *pool: str, keyable: bool = True) -> ColumnType:
    return ColumnType(SQL(sql), family, pool, keyable)


INTEGER = _type("integer", "int", "-3", "0", "1", "2", "3", "4", "7")
TEXT = _type("text", "text", "", "a", "A", "ab", "b", "é", "É", "数", "it's", "NULL", "a\\b")
UUID = _type("uuid", "uuid", *(f"0000000{n}-0000-4000-8000-000000000000" for n in range(5)))
DATE = _type(
    "date", "date", "2024-02-29", "2024-03-01", "2023-12-31", "1999-01-01", "0044-03-15 BC"
)

TYPES = (
    INTEGER,
    INTEGER,
    _type("bigint", "int", "0", "1", "2", "3", "9000000000"),
    _type("smallint", "int", "0", "1", "2", "3"),
    TEXT,
    _type("varchar(5)", "text", "a", "b", "ab", "abcde", "é"),
    _type("numeric", "num", "0", "1", "1.0", "1.00", "-2.5", "3.125", "NaN", keyable=False),
    _type("numeric(10,2)", "num", "0.00", "1.00", "2.50", "-3.75", "100.00"),
    _type("numeric(8,4)", "num", "0", "1", "2.5", "-3.75", "NaN"),
    DATE,
    _type("timestamp", "timestamp", "2024-02-29 12:00:00", "2024-03-01 00:00:00.5", "1999-01-01"),
    _type(
        "timestamptz", "timestamptz", "2024-03-31 01:30:00+00", "2024-10-27 02:30:00+01", "epoch"
    ),
    _type("boolean", "bool", "true", "false"),
    _type("integer[]", "int[]", "{}", "{1}", "{1,2}", "{2,1}", "{NULL}", "{1,NULL,2}"),
    _type("text[]", "text[]", "{}", "{a}", "{a,b}", '{"a,b"}', '{NULL,"NULL"}'),
    UUID,
    _type("json", "json", '{"a": 1}', '{"a":1}', "[1, 2]", "null", '{"a":"b"}', keyable=False),
    _type("jsonb", "jsonb", '{"a": 1}', '{"a": 1, "b": 2}', "[1, 2]", "null", '"a"', "{}"),
    _type("double precision", "float", "0", "0.1", "0.7", "2.5", "-1.5", "1000000", "NaN"),
    _type("bytea", "bytea", "\\x", "\\x00", "\\x00ff", "\\x6162"),
    _type("interval", "interval", "1 day", "24:00:00", "1 day 01:00:00", "2 mons", "00:00:00"),
)

TEMPORAL = (
    _type(
        *("timestamptz", "timestamptz", "2024-03-30 23:59:59.999999+00", "2024-03-31 00:30:00+00"),
        *("2024-03-31 01:00:00+00", "2024-03-31 01:30:00+00", "2024-04-01 00:00:00+00"),
        *("2024-02-29 12:00:00+00", "2024-03-10 07:00:00+00", "infinity", "-infinity"),
    ),
    _type(
        *("timestamp", "timestamp", "2024-03-30 23:00:00", "2024-03-31 02:30:00"),
        *("2024-03-31 03:00:00", "2024-04-01 00:00:00", "2024-02-29 12:00:00", "infinity"),
    ),
    _type(
        *("date", "date", "2024-02-29", "2024-03-01", "2024-03-30", "2024-03-31", "2024-04-01"),
    ),
)
"""Types of a case whose time moves, with values around which it moves. Clocks change in these months."""

ENUM_LABELS = ("sad", "so so", "it's", "Glad")


def enum_type(name: Identifier) -> tuple[Composed, ColumnType]:
    """Return the statement that creates an enum with this name, and its type."""
    labels = SQL(", ").join(Literal(label) for label in ENUM_LABELS)
    return (
        SQL("CREATE TYPE {} AS ENUM ({})").format(name, labels),
        ColumnType(name, "enum", ENUM_LABELS),
    )


def domain_type(name: Identifier, rng: Random) -> tuple[Composed, ColumnType]:
    """Return the statement that creates a domain with this name, and its type."""
    if rng.random() < 0.5:
        return (
            SQL("CREATE DOMAIN {} AS integer CHECK (VALUE > -1000)").format(name),
            ColumnType(name, "int", INTEGER.pool),
        )
    return (
        SQL("CREATE DOMAIN {} AS text CHECK (length(VALUE) < 100)").format(name),
        ColumnType(name, "text", TEXT.pool),
    )


_CASTS: dict[str, LiteralString] = {
    "int": "integer",
    "text": "text",
    "num": "numeric(10,2)",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
    "bool": "boolean",
    "int[]": "integer[]",
    "text[]": "text[]",
    "uuid": "uuid",
    "json": "json",
    "jsonb": "jsonb",
    "float": "double precision",
    "bytea": "bytea",
    "interval": "interval",
}

COMPARABLE = tuple(family for family in (*_CASTS, "enum") if family != "json")
"""Families with equality and order."""

EXTREMES = tuple(f for f in COMPARABLE if f not in ("bool", "uuid", "jsonb", "bytea"))
"""Families with min() and max() in every version of PostgreSQL."""


def constant(family: str, rng: Random, enum: ColumnType) -> Composed | SQL:
    """Return a constant of a family, with the same type as its keyable columns."""
    if family == "row":
        return SQL("NULL")
    if family == "int":
        return SQL(str(rng.randint(0, 5)))
    if family == "enum":
        return SQL("{}::{}").format(Literal(rng.choice(enum.pool)), enum.sql)
    pool = next(t.pool for t in TYPES if t.family == family and (t.keyable or family == "json"))
    return SQL("{}::{}").format(Literal(rng.choice(pool)), SQL(_CASTS[family]))


def fresh_value(family: str, number: int) -> str:
    """Return a value for a key that no pool has, unique for each number."""
    if family == "uuid":
        return f"{number:08x}-0000-4000-8000-000000000001"
    return str(number) if family == "int" else f"k{number}"
