"""Every path of a load from text gives what COPY and Python's json read: values generated, not chosen.

A file holds all values at once, each in a row of its own. What each row should become is asked of the
reference, row by row; then the file goes through every path.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from orchestrator.api import Orchestrator
from orchestrator.spark.loading.load import SETTINGS
from orchestrator.spark.session import spark_session

SMALL = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
ODD = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "Asia/Kathmandu",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "true",
}
"""What a caller's own session may have set."""

TYPES = {
    "smallint": ("0", "-32768", "32768", " 7 ", "1_0", "007", "+3", "1.0"),
    "bigint": ("9223372036854775807", "9223372036854775808", "0x1F"),
    "numeric": ("1.50", "NaN", "Infinity", "-0.000", "1e400", "1e-9", f"{9}" * 60, "1,5"),
    "numeric(6,2)": ("1.005", "9999.99", "10000", ".5"),
    "real": ("1e38", "1e39", "0.1", "-0", "nan"),
    "double precision": ("1e-324", "0.1", "1e308", "-Infinity", "1d"),
    "boolean": ("t", "yes", "on", "TRUE", "2", "f "),
    "text": (
        "",
        "NULL",
        "\\N",
        "\\.",
        "  ",
        "\u00e9",
        "\U0001f600",
        "\ufeff",
        "a\u0000b",
        "\ud7ff",
    ),
    "varchar(2)": ("ab", "abc", "ab ", "\u00e9\u00e9"),
    "char(2)": ("a", "ab ", "abc"),
    "bytea": ("\\x00ff", "\\x0", "\\\\", "\\001", "a"),
    "date": ("infinity", "-infinity", "0044-03-15 BC", "2024-02-30", "99999-01-01", "1999-12-31"),
    "time": ("24:00", "23:59:60", "12:00:00.1234567"),
    "timestamp": ("0001-01-01 BC", "294276-12-31", "2024-01-01T00:00:00.1234565", "now x"),
    "timestamptz": ("2024-03-31 02:30:00+01:30:15", "infinity", "2024-01-01Z", "4714-11-24 BC"),
    "interval": ("1 day -00:00:00.000001", "P1Y2M", "1 fortnight", "-178000000 years"),
    "uuid": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "{a0eebc999c0b4ef8bb6d6bb9bd380a11}", "a0"),
    "json": ('{"b" : 1.0, "a":  "x", "b": 2}', '"5"', "5", "null", "[1 ,2]", "{", ""),
    "jsonb": ('{"b": 1.0, "a": "x", "b": 2}', '"5"', "5", "null", '"\\u0000"'),
    "integer[]": ("{1,NULL,3}", "{}", "{{1,2},{3,4}}", "[2:3]={1,2}", "{1", "5"),
    "text[]": ('{"a,b","",NULL,"NULL"}', '{a"b}', "{ x ,y}"),
    "inet": ("::1", "10.0.0.0/8", "10.0.0.0/33"),
    "point": ("(1,2)", "1,2", "(1)"),
    "int4range": ("[1,5)", "empty", "[5,1)", "(,)"),
    "bit(3)": ("101", "1010", "1"),
    "money": ("$1,000.50", "x"),
    "xid8": ("18446744073709551615", "-1"),
    "mood": ("sad", "SAD", ""),
    "positive": ("1", "0", "x"),
}
NAMES = {kind: f"c{number}" for number, kind in enumerate(TYPES)}
COLUMNS = ", ".join(f"{name} {kind}" for kind, name in NAMES.items())
TABLE = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN positive AS int CHECK (VALUE > 0);"
    f"CREATE TABLE twin (id int, raw text, {COLUMNS}); CREATE TABLE t (LIKE twin)"
)
ALPHABET = (b'"', b"a", b"\n", b"\r", b",", b" ", "\u00e9".encode(), b"\xff", b"\\", b"\0")
LONGEST = {1: 10, 2: 10, 3: 5, 4: 2, 5: 2, 6: 2}
"""How many of these characters texts of a length are made of."""
HEADER = ",".join(["id", "raw", *NAMES.values()]).encode() + b"\n"


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session("local[2]", "tests", **SETTINGS, **SMALL) as session:
        yield session


def contents(orc: Orchestrator, table: str) -> dict[int, str]:
    """Return each row of a table in PostgreSQL's own text, by its id."""
    query = SQL("SELECT id, t::text FROM {} AS t").format(Identifier(table))
    found = dict(orc.connection.execute(query).fetchall())
    return {int(number): text for number, text in found.items()}


def quarantined(orc: Orchestrator, load: int) -> dict[int, tuple[str | None, str]]:
    """Return column and reason of each rejected row, by its line."""
    rows = orc.connection.execute(
        "SELECT line, column_name, reason FROM idivm.rejected_rows WHERE load = %s", [load]
    ).fetchall()
    assert len({line for line, _, _ in rows}) == len(rows)
    return {line: (column, reason) for line, column, reason in rows}


def compare(
    orc: Orchestrator,
    path: Path,
    wanted: dict[int, str],
    refused: dict[int, str],
    lines: dict[int, int],
    **said: Any,
) -> None:
    """Load a file, and compare the table with what it should hold, and the quarantine too."""
    orc.execute("TRUNCATE t")
    report = orc.load(path, "t", views="leave", again=True, **said)
    assert contents(orc, "t") == wanted, said
    found = quarantined(orc, report.tables[0].load)
    assert sorted(found) == sorted(lines[number] for number in refused), said
    for number, reason in refused.items():
        column, why = found[lines[number]]
        # The words are PostgreSQL's, but for rows that never come to it.
        words = why.replace("public.", "")
        assert column is None or words.startswith(reason), (said, number, reason, column, why)


def numbered(rows: dict[int, bytes], header: bytes = b"") -> tuple[bytes, dict[int, int]]:
    """Return a file of rows, and the line at which each begins."""
    data, lines = header, {}
    for number, row in rows.items():
        lines[number] = data.count(b"\n") + 1
        data += row
    return data, lines


def csv_rows() -> dict[int, bytes]:
    """Return rows of CSV: all short texts of an alphabet as they are, and all values of all types."""
    width = len(NAMES)
    rows: list[bytes] = [
        b"%%d,%b%b\n" % (b"".join(text).replace(b"%", b"%%"), b"," * width)
        for size, number in LONGEST.items()
        for text in product(ALPHABET[:number], repeat=size)
    ]
    for place, values in enumerate(TYPES.values()):
        for value in values:
            quoted = '"' + value.replace('"', '""') + '"'
            rows += [
                b"%%d,%b%b%b\n" % (b"," * (place + 1), text.encode(), b"," * (width - place - 1))
                for text in (value, quoted)
            ]
    return {number: row % number for number, row in enumerate(rows, 1)}


def by_copy(orc: Orchestrator, rows: dict[int, bytes]) -> dict[int, str]:
    """Copy each row by itself into the table `twin`; return why COPY refuses those that it refuses."""
    refused = {}
    with orc.connection.transaction():
        for number, row in rows.items():
            try:
                with orc.connection.transaction(), orc.connection.cursor() as cursor:
                    statement = "COPY twin FROM STDIN (FORMAT csv, HEADER, ENCODING 'UTF8')"
                    with cursor.copy(statement) as copy:
                        copy.write(HEADER + row)
            except psycopg.Error as error:
                refused[number] = error.diag.message_primary or ""
    return refused


@pytest.mark.slow
def test_csv_is_what_copy_reads_on_every_path(
    orc: Orchestrator, spark: Any, tmp_path: Path
) -> None:
    orc.execute(TABLE)
    rows = csv_rows()
    refused = by_copy(orc, rows)
    wanted = contents(orc, "twin")
    assert len(wanted) + len(refused) == len(rows) > 500

    def file(name: str, some: dict[int, bytes]) -> tuple[Path, dict[int, int]]:
        data, lines = numbered(some, HEADER)
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path, lines

    def sound(some: dict[int, bytes]) -> dict[int, bytes]:
        return {number: row for number, row in some.items() if number in wanted}

    def of(some: dict[int, bytes], outcome: dict[int, str]) -> dict[int, str]:
        return {number: outcome[number] for number in some if number in outcome}

    own = spark.newSession()
    for name, value in ODD.items():
        own.conf.set(name, value)
    single = {number: row for number, row in rows.items() if row.count(b"\n") == 1}
    # A row that COPY refuses may be several in a file, or the rest of it.
    closed = {
        number: row
        for number, row in rows.items()
        if number in wanted or (number in single and row.count(b'"') % 2 == 0)
    }
    shaped = {"where": "id > 0", "select": "*"}
    each = {"on_bad_row": "quarantine", "options": {"multiLine": "false"}}
    several = {"on_bad_row": "quarantine", "options": {"multiLine": "true"}}
    paths: list[tuple[str, dict[int, bytes], dict[str, Any]]] = [
        ("plain.csv", sound(single), {"spark": spark}),
        ("here.csv", single, {"partitions": 3, **each}),
        ("ranges.csv", single, {"spark": spark, "partitions": 5, **each}),
        ("packed.csv.gz", single, {"spark": spark, **each}),
        ("where.csv", single, {"spark": own, "partitions": 3, **shaped, **each}),
        ("lines.csv", sound(rows), {"spark": spark, "options": {"multiLine": "true"}}),
        ("several.csv", closed, {"spark": spark, **several}),
        ("several.csv.gz", closed, {"spark": own, "where": "id > 0", **several}),
    ]
    for name, some, said in paths:
        path, lines = file(name, some)
        compare(orc, path, of(some, wanted), of(some, refused), lines, **said)


SCALARS = (
    *("null", "true", "0", "-0.0", "1.50", "1e400", "12345678901234567890123", '""', '"5"'),
    *('"true"', '"null"', '"[1]"', '"{1,2}"', '"x"', '"a\\"b,\\\\"', '"\\u00e9"', '"\u00e9"'),
    *('"\\ud83d\\ude00"', '"\\ud83d"', '"\\u0000"', '"\t"', "NaN", "01", "tru", '"', "'x'", "1."),
)
JSON_TYPES = ("json", "jsonb", "text", "numeric", "boolean", "text[]", "jsonb[]", "numeric[]")


def json_values() -> list[str]:
    """Return scalars, and each within arrays and objects."""
    shapes = ("{0}", "[{0}]", "[ {0} ,{0}]", '{{"k" :  {0}, "K":1}}', "[[{0}],[{0}]]", "{0} {0}")
    values = [shape.format(one) for shape in shapes for one in SCALARS]
    return [*dict.fromkeys(values), "[]", "{}", "[[]]", '[{"a":1}, {"a": 2.0}]', "", "[1,]"]


def expected(text: str, kind: str) -> Any:
    """Return what a column of a type gets for a value of JSON, by Python's json."""

    def given(value: Any, raw: str) -> Any:
        if value is None:
            return None
        if kind.startswith("json"):
            return raw
        return value if isinstance(value, str) else raw

    def refuse(name: str) -> Any:
        raise ValueError(name)

    def read(raw: str) -> Any:
        return json.loads(raw, parse_constant=refuse)

    value = read(text)
    if not kind.endswith("[]") or not isinstance(value, list):
        return given(value, text)

    def parts(raw: str) -> list[Any]:
        # Elements are those pieces between commas that are JSON by themselves.
        found: list[Any] = []
        pending = ""
        for piece in raw.strip()[1:-1].split(","):
            pending = f"{pending},{piece}" if pending else piece
            try:
                one = read(pending)
            except ValueError:
                continue
            shown = pending.strip()
            found.append(parts(shown) if isinstance(one, list) else given(one, shown))
            pending = ""
        assert not pending.strip(), raw
        return found

    return parts(text)


def literal(value: Any) -> str:
    """Return the literal of an array."""
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return "{" + ",".join(map(literal, value)) + "}"
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


@pytest.mark.slow
def test_json_keeps_its_text_on_every_path(orc: Orchestrator, spark: Any, tmp_path: Path) -> None:
    names = {kind: f"c{number}" for number, kind in enumerate(JSON_TYPES)}
    columns = ", ".join(f"{name} {kind}" for kind, name in names.items())
    orc.execute(f"CREATE TABLE twin (id int, lists text[], {columns}); CREATE TABLE t (LIKE twin)")
    rows: dict[int, bytes] = {}
    refused: dict[int, str] = {}
    with orc.connection.transaction():
        for number, (text, kind) in enumerate(product(json_values(), JSON_TYPES), 1):
            rows[number] = (
                f'{{"id": {number}, "lists": ["x", null], "{names[kind]}": {text}}}\n'.encode()
            )
            try:
                value = expected(text, kind)
                shown = literal(value) if isinstance(value, list) else value
                with orc.connection.transaction():
                    orc.connection.execute(
                        SQL(
                            "INSERT INTO twin (id, lists, {}) VALUES (%s, '{{x,NULL}}', %s)"
                        ).format(Identifier(names[kind])),
                        [number, shown],
                    )
            except ValueError as error:
                refused[number] = str(error)
            except psycopg.Error as error:
                refused[number] = error.diag.message_primary or str(error)
    rows[0] = b'{"id": 0, "lists": ["\xff"]}\n'
    refused[0] = "invalid byte sequence"
    wanted = contents(orc, "twin")
    assert len(wanted) + len(refused) == len(rows) > 1_000
    data, lines = numbered(rows)
    good, _ = numbered({number: row for number, row in rows.items() if number in wanted})
    (tmp_path / "good.json").write_bytes(good)
    (tmp_path / "all.json").write_bytes(data)
    (tmp_path / "all.json.gz").write_bytes(gzip.compress(data))
    listed = b"[" + b",".join(good.split(b"\n")[:-1]) + b"]"
    (tmp_path / "listed.json").write_bytes(listed)
    own = spark.newSession()
    for name, value in ODD.items():
        own.conf.set(name, value)
    shaped = {"where": "id >= 0 AND lists[0] = 'x'", "select": "*"}
    put_aside = {"on_bad_row": "quarantine"}
    paths: list[tuple[str, dict[str, Any]]] = [
        ("good.json", {"spark": spark, "partitions": 3}),
        ("listed.json", {"spark": spark, "options": {"multiLine": "true"}}),
        ("all.json", {"spark": spark, "partitions": 3, **put_aside}),
        ("all.json.gz", {"spark": spark, **put_aside}),
        ("all.json", {"spark": own, "partitions": 3, **shaped, **put_aside}),
    ]
    for name, said in paths:
        bad = refused if name.startswith("all") else {}
        compare(orc, tmp_path / name, wanted, bad, lines, **said)
