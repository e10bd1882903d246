"""CSV by every path, compared row by row with what COPY reads or refuses."""

# ruff: noqa: E501 - tables of values

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from orchestrator.bench.load.matrix.comparing import Matrix

TYPES = {
    "smallint": ("0", "-32768", "32768", " 7 ", "1_0", "007", "+3", "1.0"),
    "bigint": ("9223372036854775807", "9223372036854775808", "0x1F"),
    "numeric": ("1.50", "NaN", "Infinity", "-0.000", "1e400", "1e-9", "9" * 60, "1,5"),
    "numeric(6,2)": ("1.005", "9999.99", "10000", ".5"),
    "real": ("1e38", "1e39", "0.1", "-0", "nan"),
    "double precision": ("1e-324", "0.1", "1e308", "-Infinity", "1d"),
    "boolean": ("t", "yes", "on", "TRUE", "2", "f "),
    "text": ("", "NULL", "\\N", "\\.", "  ", "\u00e9", "\U0001f600", "\ufeff", "a\u0000b", "\ud7ff"),
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
    "feeling": ("sad", "SAD", ""),
    "positive": ("1", "0", "x"),
}  # fmt: skip
ALPHABET = (b'"', b"a", b"\n", b"\r", b",", b" ", "\u00e9".encode(), b"\xff", b"\\", b"\0")
LONGEST = {1: 10, 2: 10, 3: 5, 4: 2, 5: 2, 6: 2}
"""From how many characters of the alphabet the texts of a length are made."""
NAMES = {kind: f"c{number}" for number, kind in enumerate(TYPES)}
HEADER = ",".join(["id", "raw", *NAMES.values()]).encode() + b"\n"


def run_csv(matrix: Matrix) -> None:
    """Load rows of CSV by each path."""
    columns = ", ".join(f"{name} {kind}" for kind, name in NAMES.items())
    matrix.execute(
        "CREATE TYPE feeling AS ENUM ('sad', 'ok'); CREATE DOMAIN positive AS int CHECK (VALUE > 0);"
        f"DROP TABLE IF EXISTS twin, t; CREATE TABLE twin (id int, raw text, {columns});"
        "CREATE TABLE t (LIKE twin)"
    )
    rows = csv_rows(matrix)
    refused = _by_copy(matrix, rows)
    wanted = contents(matrix, "twin")
    single = {number: row for number, row in rows.items() if row.count(b"\n") == 1}
    # A row that COPY refuses may be several rows in a file, or the rest of the file.
    closed = {
        number: row
        for number, row in rows.items()
        if number in wanted or (number in single and row.count(b'"') % 2 == 0)
    }

    def sound(some: Mapping[int, bytes]) -> dict[int, bytes]:
        return {number: row for number, row in some.items() if number in wanted}

    spark, theirs = matrix.spark, matrix.their_session()
    shaped = {"where": "id > 0", "select": "*"}
    each = {"on_bad_row": "quarantine", "options": {"multiLine": "false"}}
    several = {"on_bad_row": "quarantine", "options": {"multiLine": "true"}}
    paths: list[tuple[str, str, Mapping[int, bytes], dict[str, Any]]] = [
        ("without Spark, quarantine", "here.csv", single, {"partitions": 3, **each}),
        ("packed, quarantine", "packed.csv.gz", single, {"spark": spark, **each}),
        ("multiLine, packed, own session, where", "several.csv.gz", closed, {"spark": theirs, "where": "id > 0", **several}),
        ("plain", "plain.csv", sound(single), {"spark": spark}),
        ("ranges, quarantine", "ranges.csv", single, {"spark": spark, "partitions": 5, **each}),
        ("own session, where, select, quarantine", "where.csv", single, {"spark": theirs, "partitions": 3, **shaped, **each}),
        ("multiLine", "lines.csv", sound(rows), {"spark": spark, "options": {"multiLine": "true"}}),
        ("multiLine, quarantine", "several.csv", closed, {"spark": spark, **several}),
        ("without Spark", "here.csv", sound(single), {"partitions": 3}),
        ("packed, where", "packed.csv.gz", sound(single), {"spark": spark, "where": "id > 0"}),
    ]  # fmt: skip
    short = [row.partition(b",")[2].rstrip(b",\n") for row in rows.values()]
    values = {**TYPES, "text": [*TYPES["text"], *short]}
    for label, name, some, options in matrix.taken(paths):
        data, lines = numbered(some, HEADER)
        path = matrix.folder / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        compare(matrix, f"CSV, {label}", path, *_of(some, wanted, refused), lines, **options)
        matrix.paths.add(f"CSV, {label}")
    matrix.went("CSV", values, 0)
    matrix.paths.discard("CSV")


def csv_rows(matrix: Matrix) -> dict[int, bytes]:
    """Return rows of CSV: every short text over an alphabet, unquoted, and every value of every type."""
    width = len(NAMES)
    rows: list[tuple[bytes, bytes, bytes]] = [
        (b",", b"".join(text), b"," * width)
        for size, number in LONGEST.items()
        for text in product(ALPHABET[:number], repeat=size)
    ]
    for place, values in enumerate(TYPES.values()):
        for value in values:
            quoted = '"' + value.replace('"', '""') + '"'
            rows += [
                (b"," * (place + 2), text.encode(), b"," * (width - place - 1))
                for text in (value, quoted)
            ]
    taken = matrix.taken(rows)
    return {n: b"%d%b%b%b\n" % (n, *parts) for n, parts in enumerate(taken, 1)}


def numbered(rows: Mapping[int, bytes], header: bytes = b"") -> tuple[bytes, dict[int, int]]:
    """Return a file of rows, and the line at which each row begins."""
    lines: dict[int, int] = {}
    line = 1 + header.count(b"\n")
    for number, row in rows.items():
        lines[number] = line
        line += row.count(b"\n")
    return header + b"".join(rows.values()), lines


def contents(matrix: Matrix, table: str) -> dict[int, str]:
    """Return each row of a table in PostgreSQL's own text, by its id."""
    query = SQL("SELECT id, t::text FROM {} AS t").format(Identifier(table))
    return dict(matrix.orc.connection.execute(query).fetchall())


def _of(
    rows: Mapping[int, bytes], wanted: Mapping[int, str], refused: Mapping[int, str]
) -> tuple[dict[int, str], dict[int, str]]:
    """Return what is wanted and what is refused of some rows."""
    return (
        {number: wanted[number] for number in rows if number in wanted},
        {number: refused[number] for number in rows if number in refused},
    )


def _by_copy(matrix: Matrix, rows: Mapping[int, bytes]) -> dict[int, str]:
    """Copy each row by itself into the table `twin`; return why COPY refuses the rows that it refuses."""
    refused = {}
    connection = matrix.orc.connection
    statement = "COPY twin FROM STDIN (FORMAT csv, HEADER, ENCODING 'UTF8')"
    with connection.transaction():
        for number, row in rows.items():
            try:
                with connection.transaction(), connection.cursor().copy(statement) as copy:
                    copy.write(HEADER + row)
            except psycopg.Error as error:
                refused[number] = error.diag.message_primary or ""
    return refused


def compare(
    matrix: Matrix,
    label: str,
    path: Path,
    wanted: Mapping[int, str],
    refused: Mapping[int, str],
    lines: Mapping[int, int],
    **options: Any,
) -> None:
    """Load a file, and compare the table with what it should hold, and the quarantine too."""
    matrix.execute("TRUNCATE t")
    report = matrix.orc.load(path, "t", views="leave", again=True, **options)
    actual = contents(matrix, "t")
    for number in actual.keys() | wanted.keys():
        if actual.get(number) != wanted.get(number):
            matrix.differs(label, f"row {number}", actual.get(number), wanted.get(number))
    rejected = _quarantined(matrix, report.tables[0].load)
    expected = {lines[number]: reason for number, reason in refused.items()}
    if [line for line, *_ in rejected] != sorted(expected):
        matrix.differs(label, "rejected lines", rejected, sorted(expected))
    for line, column, reason in rejected:
        # The words are PostgreSQL's, but for lines that are no rows.
        words = reason.replace("public.", "")
        if column is not None and not words.startswith(expected.get(line, words)):
            matrix.differs(label, f"reason of line {line}", reason, expected[line])
    matrix.compared += len(wanted) + len(refused)
    matrix.refused += len(refused)


def _quarantined(matrix: Matrix, load: int) -> Sequence[tuple[int, str | None, str]]:
    """Return line, column and reason of each rejected row."""
    return matrix.orc.connection.execute(
        "SELECT line, column_name, reason FROM idivm.rejected_rows WHERE load = %s ORDER BY line",
        [load],
    ).fetchall()
