"""Open a table's part of a load: the source, its fit with the table, and its division into partitions."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from psycopg import Connection

from orchestrator.frontend.facts import Relation
from orchestrator.frontend.statements import parse_name
from orchestrator.spark.errors import LoadError
from orchestrator.spark.formats.blocks import digest
from orchestrator.spark.formats.exact import quoted, text_name
from orchestrator.spark.formats.text import repeated_name
from orchestrator.spark.loading import ledger
from orchestrator.spark.loading.copying import CORRUPT
from orchestrator.spark.loading.here import open_here
from orchestrator.spark.loading.report import TableLoad
from orchestrator.spark.loading.sources import Frame, cut, layout, open_frame, open_source
from orchestrator.spark.streams.sums import check_sums, summed
from orchestrator.spark.types import Column, added_names, columns_to_create, named, pair

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Opened:
    """A table's part of the job, ready to run."""

    wanted: TableLoad
    frame: Frame
    target: ledger.Target
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    command: str
    op: str | None = None
    order: str | None = None
    """The staged columns of the operation and of the order of changes."""


def open_table(
    connection: Connection[Any], spark: Callable[[], SparkSession], table: TableLoad, here: bool
) -> Opened:
    """Compare a source with its table, and refuse what does not fit.

    `here` says whether this process may copy files without Spark.
    """
    from pyspark.sql.types import StructType

    target = ledger.target_named(connection, parse_name(table.into))
    ledger.require(target, table.create)
    if table.frame is not None:
        frame = open_frame(table.frame, table.source)
    else:
        copied_here = None
        if here and not table.add_columns:
            copied_here = open_here(table.source, target.relation)
        frame = copied_here or open_source(
            spark(), table.source, target.relation, table.add_columns
        )
    _require_single_names(frame)
    key = ledger.key_columns(target, table.key)
    if target.relation is not None:
        positional = frame.text is not None and frame.text.positional
        adds = table.add_columns and not positional
        controls = _controls(table, frame, target.relation)
        added = added_names(frame.schema, target.relation) if adds else []
        added = [name for name in added if name not in controls]
        columns = pair(
            StructType(
                [field for field in frame.schema.fields if field.name not in (*added, *controls)]
            ),
            *(target.relation, target.defaults),
            text=frame.text is not None,
            positional=positional,
            exact=frame.exact,
        )
        new_columns = columns_to_create(added, frame.new_types, frame.exact)
        columns += tuple(replace(column, added=True) for column in new_columns)
        if controls:
            # Tasks copy lines of text as they are, so the columns keep the order of the source.
            by_source = {column.source: column for column in columns} | controls
            columns = tuple(by_source[field.name] for field in frame.schema.fields)
    else:
        columns = columns_to_create(frame.schema.names, frame.new_types, frame.exact)
        if missing := set(key) - {column.name for column in columns}:
            raise LoadError(
                f"The key of {ledger.plain(target.name)} names {', '.join(sorted(missing))}, "
                "which is not in the source."
            )
    if target.relation is None and (table.op or table.order):
        raise LoadError(f"Create {ledger.plain(target.name)} first: --op and --order need a table.")
    if table.mode == "upsert" and not key:
        raise LoadError(
            f"{ledger.plain(target.name)} has no key that upsert could go by: give it a primary key, or load "
            "by append or replace."
        )
    command = _command(table, target, frame)
    if table.mode == "add":
        check_sums(target.relation, ledger.plain(target.name), columns, key)
        if table.on_bad_row == "stop":
            frame = summed(frame, columns, key) or frame
    staged = {column.source: column.name for column in columns}
    op, order = (name and staged[name] for name in (table.op, table.order))
    return Opened(table, frame, target, columns, key, command, op, order)


def _require_single_names(frame: Frame) -> None:
    """Refuse columns whose names are several times in the header of a CSV file, unless `select` renames them."""
    repeated = frame.text.repeated if frame.text else {}
    for column in frame.schema.names:
        if column in repeated:
            name = repeated[column]
            alike = [given for given, original in repeated.items() if original == name]
            raise LoadError(repeated_name(frame.files[0]["file"], name, alike))


def _controls(table: TableLoad, frame: Frame, relation: Relation) -> dict[str, Column]:
    """Return the columns of operation and order that the table does not have, by their names in the source."""
    controls = {}
    for option, name in (("--op", table.op), ("--order", table.order)):
        if name is None:
            continue
        if frame.text is not None and frame.text.positional:
            raise LoadError(f"{option} {name} needs a source whose columns have names.")
        field = next((item for item in frame.schema.fields if item.name == name), None)
        if field is None:
            raise LoadError(f"{option} names {name}, which is not a column of the source.")
        if named(name, relation.columns) is None:
            if option == "--op":
                kind = "text"
            elif frame.text is not None:
                kind = "numeric"
            else:
                kind = frame.new_types[name]
            controls[name] = Column(name, name, kind, control=True)
    return controls


def layout_of(spark: Callable[[], SparkSession], opened: Opened) -> str | None:
    """Return a digest that tells whether the sources are divided as before; None if it cannot be known."""
    if ranges := opened.frame.ranges:
        return digest(ranges)
    cut(spark(), opened.frame)
    return layout(prepared(opened))[0] if opened.frame.format != "frame" else None


def prepared(opened: Opened) -> DataFrame:
    """Return the columns in the order of the load, as text or with the type that keeps their values."""
    from pyspark.sql import functions as f

    kinds = {field.name: field.dataType for field in opened.frame.rows.schema.fields}
    chosen = []
    for column in opened.columns:
        value, kind = quoted(column.source), kinds[column.source].typeName()
        if column.source in opened.frame.exact:
            value = quoted(text_name(column.source))
        elif kind == "variant":
            value = f.to_json(value)
        chosen.append(value.alias(column.source))
    if opened.frame.corrupt:
        chosen.append(f.col(CORRUPT))
    rows: DataFrame = opened.frame.rows
    return rows.select(*chosen)


def _command(table: TableLoad, target: ledger.Target, frame: Frame) -> str:
    """Return a digest of the request, including the sizes and times of the files."""
    source = table.source
    if table.frame is not None:
        return hashlib.sha256(str(time.time_ns()).encode()).hexdigest()
    texts = [
        *(str(target.name), table.mode, list(table.key), table.on_bad_row),
        *(item for item in (table.op, table.order) if item),
        *(list(source.paths), frame.format, sorted(source.options.items())),
        *(source.where, source.select, list(frame.files)),
    ]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()
