"""Batches of streams whose rows stay in files: the views get the changes, and the table stays empty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from psycopg import Connection
from psycopg.sql import SQL, Composed, Identifier

from orchestrator.catalog import streams
from orchestrator.catalog.loads import staging_table
from orchestrator.catalog.search_path import users_path
from orchestrator.catalog.streams import StreamTable
from orchestrator.errors import UsageError
from orchestrator.frontend.facts import Relation
from orchestrator.frontend.statements import QualifiedName
from orchestrator.spark.errors import LoadError
from orchestrator.spark.formats.blocks import local_path
from orchestrator.spark.loading.ledger import Load
from orchestrator.spark.loading.report import TableLoad
from orchestrator.spark.loading.sources import Source
from orchestrator.spark.streams.changes import takes_back
from orchestrator.spark.streams.files import path_of

if TYPE_CHECKING:
    from orchestrator.spark.loading.opening import Opened


@contextmanager
def batch(connection: Connection[Any], tables: Sequence[int]) -> Iterator[None]:
    """Let a block of the open transaction write to those of the tables that are streams, and empty them after it."""
    written = sorted(streams.stream_tables(connection, tables))
    for relation in written:
        streams.open_batch(connection, relation)
    yield
    for relation in written:
        streams.close_batch(connection, relation)


def refuse_stream(connection: Connection[Any], table: Relation) -> None:
    """Refuse a table that only the batches of its own stream may write to."""
    if table.oid in streams.stream_tables(connection, [table.oid]):
        raise UsageError(
            f"The rows of {table.qualified} stay in files: write new files, and load them by idivm stream run."
        )


def load_of(table: StreamTable, relation: Relation, files: Sequence[str]) -> TableLoad:
    """Return the request to load files of a stream."""
    paths = tuple(path_of({"file": file}) for file in files)
    source = Source(paths, table.format, table.options, table.where, table.select)
    return TableLoad(str(QualifiedName(relation.name, relation.schema)), source, op=table.op)


def require_unchanged(opened: Opened, files: Mapping[str, int], relation: Relation) -> None:
    """Refuse files, given with their recorded sizes, that are not as a batch has read them."""
    sizes = {file["file"]: file["bytes"] for file in opened.frame.files}
    changed = [file for file, size in files.items() if sizes.get(file) != size]
    if changed:
        raise LoadError(
            f"{local_path(changed[0]) or changed[0]} has changed since {relation.qualified} took its rows: files of a"
            " stream must stay as they are, as they are read again when a view is computed anew."
        )


def is_batch(load: Load) -> bool:
    """Return whether a load appends changes, as only streams do."""
    return load.mode == "append" and load.op is not None


def write_changes(connection: Connection[Any], load: Load, table: Relation) -> tuple[int, int]:
    """Delete and insert the staged rows of a batch, as bags; return how many rows were inserted and deleted.

    For a moment, the rows to delete are an inheritance child of the stream: PostgreSQL deletes what is there.
    """
    assert load.op is not None
    names = SQL(", ").join(Identifier(column.name) for column in load.moved)
    staging, stream = staging_table(load.id), Identifier(table.schema, table.name)
    deletes = takes_back(load.op)

    def rows(condition: Composed) -> Composed:
        return SQL("SELECT {} FROM {} AS s WHERE {}").format(names, staging, condition)

    inserts = SQL("({}) IS NOT TRUE").format(deletes)
    removed = 0
    query = rows(inserts)
    if connection.execute(SQL("{} LIMIT 1").format(rows(deletes))).fetchone():
        query = SQL("{} EXCEPT ALL {}").format(rows(inserts), rows(deletes))
        old = Identifier("idivm_load", f"d{load.id}")
        connection.execute(
            SQL("CREATE UNLOGGED TABLE {} (LIKE {} INCLUDING CONSTRAINTS)").format(old, stream)
        )
        connection.execute(
            SQL("INSERT INTO {} ({}) {} EXCEPT ALL {}").format(
                old, names, rows(deletes), rows(inserts)
            )
        )
        connection.execute(SQL("ALTER TABLE {} INHERIT {}").format(old, stream))
        with users_path(connection):
            removed = connection.execute(SQL("DELETE FROM {}").format(stream)).rowcount
        connection.execute(SQL("DROP TABLE {}").format(old))
    with users_path(connection):
        inserted = connection.execute(
            SQL("INSERT INTO {} ({}) {}").format(stream, names, query)
        ).rowcount
    return inserted, removed
