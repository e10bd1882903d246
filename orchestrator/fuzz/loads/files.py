"""The rows of a load as files: CSV and JSON by hand, Parquet and ORC by PyArrow."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Identifier

from orchestrator.fuzz.case import Load, LoadColumn
from orchestrator.fuzz.loads.statements import TWIN

Row = Sequence["str | None"]

_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")


def write_text(step: Load, folder: Path, connection: Connection[Any]) -> dict[str, str]:
    """Write files of CSV or JSON; return the options with which they are read."""
    rng = Random(step.style)
    options = {"multiLine": "true"} if step.multiline else {}
    if step.form == "csv":
        separator = rng.choice((",", ",", ";", "\t"))
        if separator != ",":
            options["sep"] = separator
        write: Callable[[Sequence[Row]], str] = lambda rows: _csv(step, rows, separator, rng)  # noqa: E731
    else:
        write = lambda rows: _json(step, rows, rng, connection)  # noqa: E731
    for number in range(step.files):
        data = write(step.rows[number :: step.files]).encode()
        name = f"{number}.{step.form}"
        if step.packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(data))
        else:
            (folder / name).write_bytes(data)
    return options


def _csv(step: Load, rows: Sequence[Row], separator: str, rng: Random) -> str:
    def field(value: str | None) -> str:
        if value is None:
            return ""
        if value and not set(value) & set(f'"\r\n{separator}') and rng.random() < 0.7:
            return value
        return '"' + value.replace('"', '""') + '"'

    end = rng.choice(("\n", "\n", "\r\n"))
    lines = [separator.join(field(column.name) for column in step.columns)]
    lines += [separator.join(map(field, row)) for row in rows]
    return end.join(lines) + (
        end if not rows or rng.random() < 0.8 or len(row_width(step)) == 1 else ""
    )


def row_width(step: Load) -> range:
    """Return the places of the columns."""
    return range(len(step.columns))


def _json(step: Load, rows: Sequence[Row], rng: Random, connection: Connection[Any]) -> str:
    def array(value: str, kind: str) -> str:
        try:
            with connection.transaction():
                answer = connection.execute(
                    SQL("SELECT array_to_json(%s::{})::text").format(SQL(kind)), [value]
                ).fetchone()
        except Exception:
            return json.dumps(value)
        assert answer is not None
        return str(answer[0])

    def part(column: LoadColumn, value: str) -> str:
        if column.family in ("json", "jsonb"):
            return value
        if column.family.endswith("[]") and rng.random() < 0.7:
            return array(value, column.type)
        raw = value in ("true", "false") if column.family == "bool" else _NUMBER.fullmatch(value)
        if raw and column.family in ("bool", "int", "num", "float") and rng.random() < 0.6:
            return value
        return json.dumps(value, ensure_ascii=rng.random() < 0.5)

    def document(row: Row, whole: bool) -> str:
        parts = [
            f"{json.dumps(column.name)}{blank}:{blank}{'null' if value is None else part(column, value)}"
            for column, value in zip(step.columns, row, strict=True)
            if value is not None or whole or rng.random() < 0.5
        ]
        rng.shuffle(parts)
        return f"{{{f',{blank}'.join(parts)}}}"

    blank = "\n  " if step.multiline else rng.choice(("", " "))
    # The columns of a source are the keys of its documents.
    documents = [document(row, whole=number == 0) for number, row in enumerate(rows)]
    if step.multiline and rng.random() < 0.5:
        return f"[{','.join(documents)}]"
    return "".join(f"{item}\n" for item in documents)


def write_typed(step: Load, folder: Path, connection: Connection[Any]) -> None:
    """Write files of Parquet or ORC with the values of the load's twin.

    Numbers without a scale get one in the twin, because all values of a decimal column have the same.
    """
    import pyarrow.orc as arrow_orc  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import pyarrow.parquet as arrow_parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]

    from orchestrator.spark.formats.arrow import pa

    rng = Random(step.style)
    arrays = [_array(column, connection) for column in step.columns]
    names = [column.name for column in step.columns]
    table = pa.Table.from_arrays(arrays, names=names)
    for number in range(step.files):
        part = table.take(pa.array(range(number, table.num_rows, step.files), pa.int64()))
        path = folder / f"{number}.{step.form}"
        if step.form == "parquet":
            compression = rng.choice(("snappy", "gzip", "zstd", "none"))
            arrow_parquet.write_table(part, path, row_group_size=3, compression=compression)
        else:
            arrow_orc.write_table(part, path, compression=rng.choice(("zlib", "uncompressed")))


def _array(column: LoadColumn, connection: Connection[Any]) -> Any:
    """Return the values of a column of the twin as an Arrow array."""
    from orchestrator.spark.formats.arrow import pa

    name = Identifier(column.name)

    def select(expression: Any) -> list[Any]:
        query = SQL("SELECT {} FROM {} ORDER BY ctid").format(expression, TWIN)
        return [row[0] for row in connection.execute(query).fetchall()]

    text = SQL("{}::text").format(name)
    epoch = SQL("(extract(epoch FROM {}) * 1000000)::bigint").format(name)
    integers = {"smallint": pa.int16(), "bigint": pa.int64()}
    if column.family == "num":
        precision, scale = 10, 2
        if column.type == "numeric":
            scales = select(SQL("coalesce(scale({}), 0)").format(name))
            precision, scale = 38, max(scales, default=0)
            connection.execute(
                SQL("UPDATE {} SET {} = round({}, {})").format(TWIN, name, name, SQL(str(scale)))
            )
        values = [None if digits is None else Decimal(digits) for digits in select(text)]
        return pa.array(values, pa.decimal128(precision, scale))
    if column.family == "date":
        days = select(SQL("{} - date '1970-01-01'").format(name))
        return pa.array(days, pa.int32()).cast(pa.date32())
    if column.family in ("timestamp", "timestamptz"):
        kind = pa.timestamp("us", "UTC" if column.family == "timestamptz" else None)
        return pa.array(select(epoch), pa.int64()).cast(kind)
    kinds = {
        "int": integers.get(column.type, pa.int32()),
        "bool": pa.bool_(),
        "float": pa.float64(),
        "bytea": pa.binary(),
        "int[]": pa.list_(pa.int32()),
        "text[]": pa.list_(pa.string()),
    }
    if column.family in kinds:
        return pa.array(select(name), kinds[column.family])
    return pa.array(select(text), pa.string())
