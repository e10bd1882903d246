"""Loads that add to sums: the numbers of each row are added to the row of the table with the same key.

The rows themselves stay where they are, in files or in a queue, and PostgreSQL stores a row for each key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Composed, Identifier

from orchestrator.catalog.loads import staging_table
from orchestrator.frontend.facts import Relation
from orchestrator.spark.errors import LoadError
from orchestrator.spark.formats.exact import quoted
from orchestrator.spark.loading.ledger import Load
from orchestrator.spark.loading.sources import Frame
from orchestrator.spark.streams.changes import takes_back
from orchestrator.spark.types import Column

_EXACT = ("smallint", "integer", "bigint", "numeric", "interval")
"""The types whose sums do not depend on the order of the rows."""


def check_sums(
    table: Relation | None, name: str, columns: Sequence[Column], key: Sequence[str]
) -> None:
    """Refuse tables that cannot hold sums by a key."""
    if table is None:
        raise LoadError(f"Create {name} first: --mode add needs a table with a key.")
    moved = {column.name for column in columns if not column.control}
    if not key:
        raise LoadError(f"{name} has no key to add by: give it a primary key.")
    if missing := [column for column in key if column not in moved]:
        raise LoadError(
            f"The source lacks {', '.join(missing)}, the key of {name}: add it (--select)."
        )
    for column in table.columns:
        if (
            column.name in moved
            and column.name not in key
            and not column.plain_type.startswith(_EXACT)
        ):
            raise LoadError(
                f"Column {column.name} of {name} is {column.type}, which has no exact sum: make it one of "
                f"{', '.join(_EXACT)}, put it into the key, or leave it out (--select)."
            )


def summed(frame: Frame, columns: Sequence[Column], key: Sequence[str]) -> Frame | None:
    """Return a source whose rows Spark sums up by key, if its result is exact; else None.

    Spark compares the bytes of texts. Where PostgreSQL's equality is coarser, its own sums join the groups.
    """
    if frame.text is not None or frame.exact:
        return None
    from pyspark.sql import functions as f
    from pyspark.sql import types as kinds

    integers = (kinds.ByteType, kinds.ShortType, kinds.IntegerType, kinds.LongType)
    addable = (*integers, kinds.DecimalType)
    grouping = (*addable, kinds.StringType, kinds.BooleanType, kinds.DateType, kinds.BinaryType)
    types = {field.name: field.dataType for field in frame.rows.schema.fields}
    by = [column.source for column in columns if column.control or column.name in key]
    numbers = [column.source for column in columns if column.source not in by]
    if not all(isinstance(types[name], grouping) for name in by):
        return None
    if not numbers or not all(isinstance(types[name], addable) for name in numbers):
        return None
    rows = frame.rows.groupBy(*(quoted(name) for name in by)).agg(
        *(f.sum(quoted(name)).alias(name) for name in numbers)
    )
    # The rows of the result have no places in the files.
    return replace(frame, rows=rows, scan=rows, format="frame", files=())


def lock(connection: Connection[Any], table: Relation) -> None:
    """Lock a table against other writers, because two transactions might insert the same key."""
    connection.execute(
        SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(
            Identifier(table.schema, table.name)
        )
    )


def add(load: Load, table: Relation, same: Composed) -> Composed:
    """Return the statement that adds the staged rows, summed up by key, to the rows of a table.

    `same` is the condition that a row t of the table has the key of a sum s. The constraints of the table hold
    for the result: an INSERT with ON CONFLICT would also check the summands.
    """
    key = [Identifier(name) for name in load.key]
    sums = [column.name for column in load.moved if column.name not in load.key]
    inserted = [*key, *map(Identifier, sums)]
    values = [(Identifier("t", name), Identifier("s", name)) for name in sums]
    # As in sum(), NULL adds nothing.
    results = [SQL("coalesce({0} + {1}, {0}, {1})").format(*pair) for pair in values]
    statement = SQL(
        "MERGE INTO {} AS t USING (SELECT {} FROM {} AS s GROUP BY {}) AS s ON {}"
    ).format(
        Identifier(table.schema, table.name),
        SQL(", ").join([*key, *(_sum(load, name) for name in sums)]),
        *(staging_table(load.id), SQL(", ").join(key), same),
    )
    if sums:
        statement += SQL(" WHEN MATCHED AND ({}) THEN UPDATE SET {}").format(
            # Rows that stay the same are not written.
            SQL(" OR ").join(
                SQL("{} IS DISTINCT FROM {}").format(own, result)
                for (own, _), result in zip(values, results, strict=True)
            ),
            SQL(", ").join(
                SQL("{} = {}").format(Identifier(name), result)
                for name, result in zip(sums, results, strict=True)
            ),
        )
    return statement + SQL(
        " WHEN NOT MATCHED THEN INSERT ({}) OVERRIDING SYSTEM VALUE VALUES ({})"
    ).format(
        SQL(", ").join(inserted),
        SQL(", ").join(Identifier("s", name) for name in [*load.key, *sums]),
    )


def _sum(load: Load, name: str) -> Composed:
    value = Identifier("s", name)
    if load.op is not None:
        signed = SQL("CASE WHEN {0} THEN -{1} ELSE {1} END").format(takes_back(load.op), value)
        return SQL("pg_catalog.sum({}) AS {}").format(signed, Identifier(name))
    return SQL("pg_catalog.sum({}) AS {}").format(value, Identifier(name))
