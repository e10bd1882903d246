"""Arrow batches as COPY text: what PostgreSQL reads back is what was in the batch."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import psycopg
import pytest

pa = pytest.importorskip("pyarrow")

from orchestrator.spark.loading.encode import encode, texts  # noqa: E402

UTC = dt.timezone.utc
NASTY = [
    "",
    "\\N",
    "\\.",
    "tab\there",
    "line\nfeed",
    "\r\n",
    "back\\slash",
    "NULL",
    "é😀",
    None,
    ",",
]


def through_copy(dsn: str, kind: str, column: Any) -> list[Any]:
    """The values of a column after a COPY into a table of one column of a type."""
    batch = pa.record_batch({"v": column})
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TEMP TABLE t (n serial, v " + kind + ")")
        lines = encode(batch)
        with connection.cursor().copy("COPY t (v) FROM STDIN") as copy:
            copy.write(bytes(lines.data(0, len(lines))))
        return [row[0] for row in connection.execute("SELECT v FROM t ORDER BY n").fetchall()]


@pytest.mark.parametrize(
    "kind, arrow, values",
    [
        ("text", pa.string(), NASTY),
        ("smallint", pa.int16(), [-32768, None, 32767]),
        ("bigint", pa.int64(), [-(2**63), 0, 2**63 - 1]),
        (
            "numeric(38,10)",
            pa.decimal128(38, 10),
            [Decimal("1.1000000000"), None, Decimal("-0E-10")],
        ),
        ("float8", pa.float64(), [0.1, 1e-300, -1.7976931348623157e308, float("inf"), None]),
        ("float4", pa.float32(), [0.5, None]),
        ("boolean", pa.bool_(), [True, False, None]),
        ("date", pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
        ("timestamp", pa.timestamp("us"), [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), None]),
        ("bytea", pa.binary(), [b"", bytes(range(256)), None]),
        ("int[]", pa.list_(pa.int32()), [[1, None], [], None]),
        ("text[]", pa.list_(pa.string()), [NASTY, None, ['"quoted"', "{}"]]),
        ("text[]", pa.list_(pa.list_(pa.string())), [[["a", "b"], ["c", None]]]),
        ("bytea[]", pa.list_(pa.binary()), [[b"\x00\\", b""]]),
        ("int", pa.null(), [None, None]),
    ],
    ids=lambda value: str(value) if not isinstance(value, list) else "",
)
def test_values_survive(dsn: str, kind: str, arrow: Any, values: list[Any]) -> None:
    assert through_copy(dsn, kind, pa.array(values, arrow)) == values


def test_a_slice_is_encoded_alone(dsn: str) -> None:
    column = pa.array(["x", "a\tb", None, "y"])[1:3]
    assert through_copy(dsn, "text", column) == ["a\tb", None]
    lists = pa.array([[1], [2, 3], None, [4]])[1:3]
    assert through_copy(dsn, "int[]", lists) == [[2, 3], None]
    assert through_copy(dsn, "bytea", pa.array([b"x", b"yz", None])[1:]) == [b"yz", None]


def test_instants_are_the_same_whatever_the_zone_of_batch_and_session(dsn: str) -> None:
    moment = dt.datetime(2024, 3, 10, 7, 30, tzinfo=UTC)
    column = pa.array([moment, None], pa.timestamp("us", "America/New_York"))
    assert through_copy(dsn, "timestamptz", column) == [moment, None]


def test_years_before_the_first_and_after_9999(dsn: str) -> None:
    days = pa.array([-800_000, -719_529, None, 3_000_000], pa.int32()).cast(pa.date32())
    with psycopg.connect(dsn) as connection:
        numbers = [
            connection.execute("SELECT (%s::date - date '1970-01-01')", [text]).fetchone()
            for text in texts(days).to_pylist()
        ]
    assert numbers == [(-800_000,), (-719_529,), (None,), (3_000_000,)]


def test_every_row_is_a_line() -> None:
    lines = encode(pa.record_batch({"a": NASTY}))
    assert len(lines) == len(NASTY)
    assert bytes(lines.data(0, len(lines))).count(b"\n") == len(NASTY)
    assert lines.text(NASTY.index("line\nfeed")) == "line\\nfeed"
