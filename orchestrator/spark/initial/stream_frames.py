"""The rows of streams in Spark, for states that Spark computes from the files alone.

Only columns are read whose values in the files are those that a batch would store: typed files, and types that
need no rounding or checks on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from psycopg import Connection

from orchestrator.catalog import streams
from orchestrator.catalog.streams import StreamTable
from orchestrator.frontend.facts import Relation, RelationColumn
from orchestrator.spark.errors import SparkError
from orchestrator.spark.formats.exact import quoted
from orchestrator.spark.initial.kinds import InexactError, Kind, kind_or_reason, read_as
from orchestrator.spark.loading.opening import Opened, open_table
from orchestrator.spark.streams.changes import OPERATIONS, TAKING_BACK
from orchestrator.spark.streams.tables import load_of, require_unchanged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TYPED = ("parquet", "orc")

_LOOSE = ("character varying", "bytea", "json", "jsonb", "uuid")
"""Types for which PostgreSQL checks or rewrites the values of files."""


def kinds(table: StreamTable, relation: Relation) -> Mapping[int, Kind | InexactError]:
    """Return how the columns of a stream are read, or why they are not."""
    if table.format not in _TYPED:
        reason = InexactError(f"{relation.name}, whose files are {table.format}")
        return {column.attnum: reason for column in relation.columns}
    return {column.attnum: _kind(column) for column in relation.columns}


def _kind(column: RelationColumn) -> Kind | InexactError:
    kind = kind_or_reason(column)
    if isinstance(kind, InexactError):
        return kind
    if column.type != column.plain_type or any(map(column.plain_type.startswith, _LOOSE)):
        return InexactError(f"column {column.name} is of type {column.type}")
    return kind


def frame(
    connection: Connection[Any],
    spark: SparkSession,
    table: StreamTable,
    relation: Relation,
    attnums: list[int],
) -> DataFrame:
    """Return columns of a stream, named c1, c2, ... by their numbers, as of the snapshot of the open transaction."""
    from pyspark.sql import functions as f

    files = streams.files_loaded(connection, table.id)
    columns = [relation.column(attnum) for attnum in attnums]
    if not files:
        empty = ", ".join(f"c{c.attnum} {read_as(c).spark}" for c in columns)
        return spark.createDataFrame([], empty)
    opened = open_table(connection, lambda: spark, load_of(table, relation, sorted(files)), False)
    require_unchanged(opened, files, relation)
    rows: DataFrame = opened.frame.rows
    selected = [_selected(column, opened).alias(f"c{column.attnum}") for column in columns]
    if opened.op is None:
        return rows.select(*selected)
    source = next(item.source for item in opened.columns if item.name == opened.op)
    op = f.lower(quoted(source).cast("string"))
    unknown = f.concat(f.coalesce(op, f.lit("NULL")), f.lit(f" in column {source} is no operation"))
    known = f.when(op.isin(*OPERATIONS), op).otherwise(f.raise_error(unknown).cast("string"))
    takes_back = known.isin(*TAKING_BACK)
    inserted, deleted = (rows.where(test) for test in (~takes_back, takes_back))
    return inserted.select(*selected).exceptAll(deleted.select(*selected))


def _selected(column: RelationColumn, opened: Opened) -> Any:
    """Return a column of files as a value of its kind; NULL is an error where the stream has none."""
    from pyspark.sql import functions as f

    kind = read_as(column).spark
    source = next((item.source for item in opened.columns if item.name == column.name), None)
    if source is None:
        return f.lit(None).cast(kind)
    if source in opened.frame.exact:
        raise SparkError(f"Spark cannot compute with column {column.name} of the files.")
    value = quoted(source).cast(kind)
    if not column.not_null:
        return value
    message = f.lit(f"column {column.name} of {opened.target.name} is NULL in a file")
    return f.when(value.isNull(), f.raise_error(message).cast(kind)).otherwise(value)
