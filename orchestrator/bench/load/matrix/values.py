"""Generated values of the types that files with types have, and how PostgreSQL shows each."""

# ruff: noqa: E501 - tables of values

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import Any

from orchestrator.spark.formats.arrow import pa

AsText = Callable[[Any], str]


@dataclass(frozen=True)
class Kind:
    """A type in a file, the type of its column, its values, and how PostgreSQL and we show a value."""

    name: str
    arrow: Any
    type: str
    values: list[Any]
    sql: str = "{}::text"
    as_text: AsText = str


DAY = 86_400 * 10**6
FIRST, LAST = -2_440_588 + 1, 2_932_896
"""Days from 4713 BC, the first that PostgreSQL has, to the end of 9999."""
REFORM = -141_427
"""1582-10-15."""
NOW = 2**63 // 1000 - 10**6
"""The microseconds that 64 bits of nanoseconds reach."""
EPOCH = "trunc(extract(epoch FROM {}) * 1000000)::text"

TEXTS = [
    "",
    " ",
    "\\N",
    "\\.",
    "NULL",
    "null",
    '"',
    "'",
    "{}",
    "a,b",
    "\u00e9\U0001f600",
    "x" * 5000,
]
TEXTS += ["\u2028", "\ufeff", *(f"a{chr(code)}b" for code in range(1, 128))]
BYTES = [b"", bytes(range(256)), b"\\x00", *(bytes([byte]) for byte in range(0, 256, 5))]


def integers(chance: Random, low: int, high: int) -> list[int]:
    """Return numbers around the powers of two within bounds, and random numbers."""
    near = {
        sign * 2**power + step for power in range(64) for step in (-1, 0, 1) for sign in (-1, 1)
    }
    drawn = {chance.randint(low, high) for _ in range(20)}
    return sorted({low, high, 0} | {number for number in near | drawn if low <= number <= high})


def decimals(chance: Random, precision: int, scale: int) -> list[Decimal]:
    """Return the bounds of a decimal type, and random numbers."""
    most = 10**precision - 1
    numbers = {0, 1, -1, most, -most, most // 10 * 10, 10**scale if scale < precision else 0}
    numbers |= {chance.randint(-most, most) for _ in range(10)}
    return [Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale)) for n in sorted(numbers)]


def floats(chance: Random, code: str, size: int) -> list[float]:
    """Return special and random numbers of a size in bits."""
    special = [0.0, -0.0, 0.1, 1e-7, 16777217.0, float("inf"), float("-inf"), float("nan"), 1 / 3]
    patterns = [1, 2**size - 1, *(chance.getrandbits(size - 1) for _ in range(20))]
    drawn = [struct.unpack(">" + code, bits.to_bytes(size // 8, "big"))[0] for bits in patterns]
    return [*(struct.unpack(">" + code, struct.pack(">" + code, x))[0] for x in special), *drawn]


def days(chance: Random) -> list[int]:
    """Return days around leap days of centuries, around the reform of the calendar, and random days."""
    leaps = [-719_528 + 366 + 36_524 * n + n // 4 + 58 for n in range(-10, 20)]
    drawn = [chance.randint(FIRST, LAST) for _ in range(20)]
    return [FIRST, LAST, 0, -1, REFORM, REFORM - 1, -719_162, -719_163, -719_528, *leaps, *drawn]


def moments(chance: Random, unit: int, low: int = FIRST * DAY, high: int = LAST * DAY) -> list[int]:
    """Return moments between bounds in microseconds, counted in units of which a second has `unit`."""
    drawn = [chance.randint(low, high) for _ in range(20)]
    # Hours that clocks in New York or Berlin pass over, or show twice.
    clocks = [1_710_055_800, 1_711_850_400 + 1800, 1_730_611_800, -2_717_650_800 + 60]
    edges = [
        0,
        1,
        -1,
        999_999,
        -999_999,
        REFORM * DAY,
        REFORM * DAY - 1,
        low,
        high,
        -719_162 * DAY - 1,
    ]
    edges += [second * 10**6 + 123_456 for second in clocks]
    chosen = sorted({*edges, *drawn})
    return [moment * unit // 10**6 for moment in chosen if low <= moment <= high]


def bits(code: str) -> AsText:
    """Return a function that shows the bits of a number; PostgreSQL has a single NaN."""
    return lambda x: struct.pack(">" + code, float("nan") if x != x else x).hex()


def kinds(chance: Random) -> list[Kind]:
    """Return the types that Parquet and ORC have; other kinds need `s`, `d` and `z`, the first ones."""
    sizes = ((8, "smallint"), (16, "smallint"), (32, "integer"), (64, "bigint"))
    sized = ((1, 0), (4, 4), (9, 2), (18, 6), (19, 3), (38, 0), (38, 18), (38, 38))
    hexed = {size: f"encode(float{size}send({{}}), 'hex')" for size in (4, 8)}
    return [
        Kind("s", pa.string(), "text", TEXTS),
        Kind("d", pa.date32(), "date", days(chance), "({} - date '1970-01-01')::text"),
        Kind("z", pa.timestamp("us", "UTC"), "timestamptz", moments(chance, 10**6), EPOCH),
        Kind("flag", pa.bool_(), "boolean", [True, False], as_text=lambda flag: str(flag).lower()),
        *(
            Kind(f"i{size}", getattr(pa, f"int{size}")(), kind, integers(chance, -(2 ** (size - 1)), 2 ** (size - 1) - 1))
            for size, kind in sizes
        ),
        *(
            Kind(f"n{p}_{s}", pa.decimal128(p, s), f"numeric({p},{s})", decimals(chance, p, s), as_text="{:f}".format)
            for p, s in sized
        ),
        Kind("n", pa.decimal128(20, 5), "numeric", decimals(chance, 20, 5), as_text="{:f}".format),
        Kind("f4", pa.float32(), "real", floats(chance, "f", 32), hexed[4], bits("f")),
        Kind("f8", pa.float64(), "double precision", floats(chance, "d", 64), hexed[8], bits("d")),
        Kind("f48", pa.float32(), "double precision", floats(chance, "f", 32), hexed[8], bits("d")),
        Kind("v", pa.large_string(), "varchar(5000)", TEXTS),
        Kind("raw", pa.binary(), "bytea", BYTES, "encode({}, 'hex')", bytes.hex),
        Kind("at", pa.timestamp("us"), "timestamp", moments(chance, 10**6), EPOCH),
        Kind("far", pa.timestamp("us", "Asia/Tokyo"), "timestamptz", moments(chance, 10**6), EPOCH),
    ]  # fmt: skip


def of_parquet(chance: Random) -> list[Kind]:
    """Return the types that only Parquet has."""
    sizes = ((8, "smallint"), (16, "integer"), (32, "bigint"), (64, "numeric(20)"))
    near = [moment * 1000 for moment in moments(chance, 10**6, -NOW, NOW)]
    return [
        *(
            Kind(f"u{size}", getattr(pa, f"uint{size}")(), kind, integers(chance, 0, 2**size - 1))
            for size, kind in sizes
        ),
        Kind("ns", pa.timestamp("ns"), "timestamp", near, EPOCH, lambda at: str(at // 1000)),
        Kind("nz", pa.timestamp("ns", "UTC"), "timestamptz", near, EPOCH, lambda at: str(at // 1000)),
        Kind("ms", pa.timestamp("ms"), "timestamp(3)", moments(chance, 1000), EPOCH, lambda at: str(at * 1000)),
        Kind("fixed", pa.binary(4), "bytea", [b"\0\\\n\xff"], "encode({}, 'hex')", bytes.hex),
        Kind("coded", pa.dictionary(pa.int32(), pa.string()), "text", ["a", "b", "a"]),
    ]  # fmt: skip


def in_orc(chosen: Sequence[Kind]) -> list[Kind]:
    """Return the types without fractions of seconds before 1970, which PyArrow writes as Java does not read them."""

    def readable(kind: Kind, value: Any) -> bool:
        return not pa.types.is_timestamp(kind.arrow) or value >= 0 or value % 10**6 == 0

    return [
        replace(kind, values=[value for value in kind.values if readable(kind, value)])
        for kind in chosen
    ]
