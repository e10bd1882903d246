"""JSON by every path, compared with Python's json and with PostgreSQL's own input of each value."""

from __future__ import annotations

import gzip
import json
from itertools import product
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from orchestrator.bench.load.matrix.comparing import Matrix
from orchestrator.bench.load.matrix.text import compare, contents, numbered

SCALARS = (
    *("null", "true", "0", "-0.0", "1.50", "1e400", "12345678901234567890123", '""', '"5"'),
    *('"true"', '"null"', '"[1]"', '"{1,2}"', '"x"', '"a\\"b,\\\\"', '"\\u00e9"', '"\u00e9"'),
    *('"\\ud83d\\ude00"', '"\\ud83d"', '"\\u0000"', '"\t"', "NaN", "01", "tru", '"', "'x'", "1."),
)
SHAPES = ("{0}", "[{0}]", "[ {0} ,{0}]", '{{"k" :  {0}, "K":1}}', "[[{0}],[{0}]]", "{0} {0}")
_NULL = 'invalid byte sequence for encoding "UTF8": 0x00'
TYPES = ("json", "jsonb", "text", "numeric", "boolean", "text[]", "jsonb[]", "numeric[]")


def run_json(matrix: Matrix) -> None:
    """Load documents by each path."""
    names = {kind: f"c{number}" for number, kind in enumerate(TYPES)}
    columns = ", ".join(f"{name} {kind}" for kind, name in names.items())
    matrix.execute(
        f"DROP TABLE IF EXISTS twin, t; CREATE TABLE twin (id int, lists text[], {columns});"
        "CREATE TABLE t (LIKE twin)"
    )
    rows: dict[int, bytes] = {0: b'{"id": 0, "lists": ["\xff"]}\n'}
    refused = {0: "invalid byte sequence"}
    pairs = matrix.taken([*product(_values(), TYPES)])
    connection = matrix.orc.connection
    with connection.transaction():
        for number, (text, kind) in enumerate(pairs, 1):
            document = f'{{"id": {number}, "lists": ["x", null], "{names[kind]}": {text}}}\n'
            rows[number] = document.encode()
            insert = SQL("INSERT INTO twin (id, lists, {}) VALUES (%s, '{{x,NULL}}', %s)")
            try:
                value = expected(text, kind)
                parameter = _literal(value) if isinstance(value, list) else value
                with connection.transaction():
                    connection.execute(insert.format(Identifier(names[kind])), [number, parameter])
            except ValueError as error:
                refused[number] = str(error)
            except psycopg.Error as error:
                # Psycopg itself refuses the character 0, in its own words.
                refused[number] = error.diag.message_primary or _NULL
    wanted = contents(matrix, "twin")
    data, lines = numbered(rows)
    good, _ = numbered({number: row for number, row in rows.items() if number in wanted})
    files = {
        "good.json": good,
        "all.json": data,
        "all.json.gz": gzip.compress(data),
        "listed.json": b"[" + b",".join(good.split(b"\n")[:-1]) + b"]",
    }
    for name, content in files.items():
        (matrix.folder / name).write_bytes(content)
    spark, theirs = matrix.spark, matrix.their_session()
    shaped = {"where": "id >= 0 AND lists[0] = 'x'", "select": "*"}
    aside = {"on_bad_row": "quarantine"}
    paths: list[tuple[str, str, dict[str, Any]]] = [
        ("quarantine", "all.json", {"spark": spark, "partitions": 3, **aside}),
        ("plain", "good.json", {"spark": spark, "partitions": 3}),
        ("multiLine", "listed.json", {"spark": spark, "options": {"multiLine": "true"}}),
        ("packed, quarantine", "all.json.gz", {"spark": spark, **aside}),
        ("own session, where, select, quarantine", "all.json", {"spark": theirs, "partitions": 3, **shaped, **aside}),
        ("own session, select", "good.json", {"spark": theirs, "select": "*"}),
    ]  # fmt: skip
    for label, name, options in matrix.taken(paths):
        bad = refused if name.startswith("all") else {}
        compare(matrix, f"JSON, {label}", matrix.folder / name, wanted, bad, lines, **options)
        matrix.paths.add(f"JSON, {label}")
    for text, kind in pairs:
        matrix.values.setdefault(kind, set()).add(text)


def _values() -> list[str]:
    """Return scalars, and each within arrays and objects."""
    values = [shape.format(scalar) for shape in SHAPES for scalar in SCALARS]
    return [*dict.fromkeys(values), "[]", "{}", "[[]]", '[{"a":1}, {"a": 2.0}]', "", "[1,]"]


def expected(text: str, kind: str) -> Any:
    """Return what a column of a type gets for a value of JSON, by Python's json.

    >>> expected('["5", 1.50]', "jsonb[]"), expected('"5"', "text")
    (['"5"', '1.50'], '5')
    """

    def refuse(name: str) -> Any:
        raise ValueError(name)

    def read(raw: str) -> Any:
        return json.loads(raw, parse_constant=refuse)

    def column_value(value: Any, raw: str) -> Any:
        if value is None:
            return None
        return value if isinstance(value, str) and not kind.startswith("json") else raw

    def parts(raw: str) -> list[Any]:
        # Elements are the pieces between commas that are JSON by themselves.
        elements: list[Any] = []
        pending = ""
        for piece in raw.strip()[1:-1].split(","):
            pending = f"{pending},{piece}" if pending else piece
            try:
                value = read(pending)
            except ValueError:
                continue
            element = pending.strip()
            elements.append(
                parts(element) if isinstance(value, list) else column_value(value, element)
            )
            pending = ""
        if pending.strip():
            raise AssertionError(f"{raw} is no array")
        return elements

    value = read(text)
    return (
        parts(text)
        if kind.endswith("[]") and isinstance(value, list)
        else column_value(value, text)
    )


def _literal(value: Any) -> str:
    """Return the literal of an array."""
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return "{" + ",".join(map(_literal, value)) + "}"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
