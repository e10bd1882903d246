"""Read PostgreSQL into Arrow batches: COPY sends CSV, which Arrow parses in chunks.

Types that Spark lacks (uuid, json, enums, arrays, numeric without a precision) are read as text, so nothing
is lost. Parts are ranges of pages. Without a snapshot, each part is read as of its own start.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Composed, Identifier, Literal

from orchestrator.runtime.sessions import open_session
from orchestrator.spark.errors import LoadError
from orchestrator.spark.formats.arrow import arrow_csv, pa

_BLOCK = 4 << 20
"""The bytes of text that become one batch."""


@dataclass(frozen=True)
class TablePart:
    """A range of a table's pages: from `first` up to, and without, `last`; None is an open end."""

    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class ReadPlan:
    """What to read, and with which types."""

    dsn: str
    source: str
    """The table or the query, as text for the FROM clause."""
    columns: tuple[tuple[str, str], ...]
    """The names, and their types in Spark."""
    parts: tuple[TablePart, ...]
    snapshot: str | None
    whole: bool = False
    """Whether a policy that hides rows is an error."""
    lock_timeout: str = "0"
    state: bool = False
    """Whether `source` is the query of a maintained view over its state, and ends with a condition."""

    @property
    def schema(self) -> str:
        """The columns with Spark's types, in Spark's DDL syntax."""
        quoted = ((name.replace("`", "``"), kind) for name, kind in self.columns)
        return ", ".join(f"`{name}` {kind}" for name, kind in quoted)


def plan_read(
    dsn: str,
    *,
    table: str | None = None,
    query: str | None = None,
    partitions: int = 1,
    pages: int = 0,
    snapshot: str | None = None,
    columns: Sequence[str] | None = None,
    as_text: Sequence[str] = (),
    whole: bool = False,
    lock_timeout: str = "0",
) -> ReadPlan:
    """Return how to read a table or a query; a table may be divided into parts.

    Without `columns` all columns are read. The columns in `as_text` are read as PostgreSQL writes them.
    With `pages`, each part of a table has this number of pages.
    """
    # Imported here, because Spark's tasks run in many processes and do not need these modules.
    from orchestrator.catalog import relation_oid
    from orchestrator.catalog.search_path import pinned
    from orchestrator.frontend import catalog, statistics
    from orchestrator.frontend.statements import parse_name

    if (table is None) == (query is None):
        raise LoadError("The data source needs either the option table or the option query.")
    with open_session(dsn) as connection, pinned(connection):
        _set_lock_timeout(connection, lock_timeout)
        parts: tuple[TablePart, ...] = (TablePart(),)
        if table is not None:
            name = parse_name(table).identifier
            oid = relation_oid(connection, name)
            if oid is None:
                raise LoadError(f"There is no table or view {table} to read.")
            relation = catalog.relations(connection, [oid])[oid]
            source = Identifier(relation.schema, relation.name)
            stored: tuple[str, int] | None = None
            if relation.relkind in ("r", "m") and not relation.children:
                parts = _divide_pages(statistics.pages(connection, oid), partitions, pages)
            elif relation.maintained is not None and (partitions > 1 or pages):
                stored = _query_over_state(connection, oid)
            text = source.as_string(connection)
            if stored is not None:
                text, state = stored
                parts = _divide_pages(statistics.pages(connection, state), partitions, pages)
        else:
            text = f"({query})"
            stored = None
        from_clause = text if stored is None else f"({text})"
        kinds = dict(_result_columns(connection, from_clause)) | dict.fromkeys(as_text, "string")
    read = tuple((name, kinds[name]) for name in (kinds if columns is None else columns))
    return ReadPlan(dsn, text, read, parts, snapshot, whole, lock_timeout, stored is not None)


def _query_over_state(connection: Connection[Any], view: int) -> tuple[str, int] | None:
    """Return the query of a maintained view over its state, and the state, whose pages divide the rows.

    Return None if the view does more than read its state, or if only its owner may read the state.
    """
    row = connection.execute(
        "SELECT rtrim(pg_get_viewdef(v.relation), '; '), v.state::oid::bigint FROM idivm.views AS v"
        " WHERE v.relation = %s::oid::regclass AND has_table_privilege(v.state, 'SELECT')",
        [view],
    ).fetchone()
    if row is None or not re.search(
        r"\sFROM \S+ s\s+WHERE \('[^']+'::\S*regclass IS NOT NULL\)$", row[0]
    ):
        return None
    return row[0], row[1]


def read_part(plan: ReadPlan, part: TablePart) -> Iterator[Any]:
    """Yield the rows of a part in batches."""
    with open_session(plan.dsn) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if plan.snapshot:
            connection.execute(SQL("SET TRANSACTION SNAPSHOT {}").format(Literal(plan.snapshot)))
        connection.execute("SET DateStyle = ISO; SET bytea_output = hex; SET TimeZone = 'UTC'")
        connection.execute("SET extra_float_digits = 1; SET statement_timeout = 0")
        _set_lock_timeout(connection, plan.lock_timeout)
        if plan.whole:
            connection.execute("SET row_security = off")
        with connection.cursor().copy(_statement(plan, part)) as copy:
            yield from _batches(plan, io.BufferedReader(_Stream(copy), _BLOCK))


def _set_lock_timeout(connection: Connection[Any], timeout: str) -> None:
    connection.execute("SELECT pg_catalog.set_config('lock_timeout', %s, false)", [timeout])


def _divide_pages(pages: int, partitions: int, pages_each: int) -> tuple[TablePart, ...]:
    if pages_each:
        partitions = -(-pages // pages_each)
    if partitions < 2 or pages < partitions:
        return (TablePart(),)
    bounds = [pages * number // partitions for number in range(partitions)]
    # The last part has an open end, because the table may grow.
    return tuple(
        TablePart(first, last) for first, last in zip(bounds, [*bounds[1:], None], strict=True)
    )


_SPARK_TYPES = {
    "smallint": "smallint",
    "integer": "int",
    "bigint": "bigint",
    "real": "float",
    "double precision": "double",
    "boolean": "boolean",
    "date": "date",
    "timestamp without time zone": "timestamp_ntz",
    "timestamp with time zone": "timestamp",
    "bytea": "binary",
}


def _result_columns(connection: Connection[Any], source: str) -> tuple[tuple[str, str], ...]:
    from orchestrator.catalog.search_path import users_path
    from orchestrator.frontend.catalog import type_names

    with users_path(connection):
        cursor = connection.execute(f"SELECT * FROM {source} AS t LIMIT 0".encode())  # noqa: S608
    description = cursor.description or ()
    types = type_names(connection, {column.type_code for column in description})
    columns = []
    for column in description:
        name = re.sub(r"\(\d+\)", "", types.get(column.type_code, ""))
        kind = _SPARK_TYPES.get(name, "string")
        if name == "numeric" and column.precision is not None:
            precision, scale = column.precision, column.scale or 0
            kind = f"decimal({precision},{scale})" if 0 <= scale <= precision <= 38 else "string"
        columns.append((column.name, kind))
    return tuple(columns)


def _statement(plan: ReadPlan, part: TablePart) -> Composed:
    listed = SQL(", ").join(
        SQL("pg_catalog.encode(t.{}, 'hex'::pg_catalog.text)").format(Identifier(name))
        if kind == "binary"
        else SQL("t.{}").format(Identifier(name))
        for name, kind in plan.columns
    )
    # The source is the caller's own query, a name quoted by plan_read, or PostgreSQL's text of a view.
    source = SQL(plan.source)
    alias = Identifier("s" if plan.state else "t")
    condition: Composed = SQL("").format()
    if part.first is not None:
        condition = SQL(" {} {}.ctid OPERATOR(pg_catalog.>=) {}::pg_catalog.tid").format(
            *(SQL("AND" if plan.state else "WHERE"), alias, Literal(f"({part.first},0)"))
        )
        if part.last is not None:
            condition += SQL(" AND {}.ctid OPERATOR(pg_catalog.<) {}::pg_catalog.tid").format(
                alias, Literal(f"({part.last},0)")
            )
    form = "COPY (SELECT {} FROM ({}{}) AS t) TO STDOUT (FORMAT csv)"
    if not plan.state:
        form = "COPY (SELECT {} FROM {} AS t{}) TO STDOUT (FORMAT csv)"
    return SQL(form).format(listed, source, condition)


class _Stream(io.RawIOBase):
    """The bytes that a COPY sends, as a readable file."""

    def __init__(self, copy: Any) -> None:
        self.copy = copy
        self.rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self.rest:
            self.rest = memoryview(self.copy.read())
        size = min(len(buffer), len(self.rest))
        buffer[:size] = self.rest[:size]
        self.rest = self.rest[size:]
        return size


_ARROW_TYPES = {
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "binary": pa.string(),
}


def _batches(plan: ReadPlan, stream: Any) -> Iterator[Any]:
    names = [name for name, _ in plan.columns]
    names_in_csv = [str(number) for number in range(len(names))]
    types = {
        name: _arrow_type(kind) for name, (_, kind) in zip(names_in_csv, plan.columns, strict=True)
    }
    try:
        reader = arrow_csv.open_csv(
            stream,
            read_options=arrow_csv.ReadOptions(
                column_names=names_in_csv, block_size=_BLOCK, use_threads=False
            ),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=arrow_csv.ConvertOptions(
                column_types=types,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                true_values=["t"],
                false_values=["f"],
                timestamp_parsers=["%Y-%m-%d %H:%M:%S+00", arrow_csv.ISO8601],
            ),
        )
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):
            return
        raise
    for batch in reader:
        columns = [
            _bytes(column) if kind == "binary" else column
            for column, (_, kind) in zip(batch.columns, plan.columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, names=names)


def _arrow_type(kind: str) -> Any:
    if match := re.fullmatch(r"decimal\((\d+),(\d+)\)", kind):
        return pa.decimal128(int(match[1]), int(match[2]))
    return _ARROW_TYPES[kind]


def _bytes(column: Any) -> Any:
    return pa.array(
        [None if value is None else bytes.fromhex(value) for value in column.to_pylist()],
        pa.binary(),
    )
