"""Read the rows of streams whose rows stay in files, for a session that recomputes a view."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from psycopg import Connection
from psycopg.sql import SQL, Composed, Identifier

from orchestrator.catalog import loads as catalog_loads
from orchestrator.catalog import streams
from orchestrator.catalog.loads import staging_table
from orchestrator.catalog.streams import StreamTable
from orchestrator.frontend import catalog as facts
from orchestrator.frontend.facts import Relation
from orchestrator.runtime.stream_rows import StreamRows
from orchestrator.session_locks import give_back
from orchestrator.spark.loading.commit_load import lock_and_verify
from orchestrator.spark.loading.ledger import Load
from orchestrator.spark.loading.loader import Loader
from orchestrator.spark.loading.progress import Clock, Say
from orchestrator.spark.streams.changes import check_operations, takes_back
from orchestrator.spark.streams.tables import load_of, require_unchanged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def rows_of_streams(
    connection: Connection[Any],
    relations: Sequence[int],
    session: Callable[[], SparkSession],
    threads: int | None,
    say: Say,
) -> Iterator[dict[int, StreamRows]]:
    """Yield temporary tables with the rows of streams, given by oid, while their batches wait.

    They wait from the second reading on, which reads the files that came during the first.
    """
    tables = streams.stream_tables(connection, relations)
    names = facts.relations(connection, list(tables))
    job = Loader(connection, session, say, Clock(), threads, resumable=False)
    read: dict[int, dict[str, int]] = {relation: {} for relation in tables}
    staged: dict[int, list[tuple[Load, int]]] = {relation: [] for relation in tables}

    def catch_up() -> None:
        for relation, table in tables.items():
            known = streams.files_loaded(connection, table.id)
            new = {file: known[file] for file in sorted(known.keys() - read[relation].keys())}
            if new:
                staged[relation].append(_staged(job, table, names[relation], new))
                read[relation] |= new

    with ExitStack() as stack:
        stack.enter_context(catalog_loads.locks_given_back(connection))
        stack.callback(_drop, connection, staged)
        catch_up()
        stack.enter_context(
            streams.batches_held(connection, [table.id for table in tables.values()])
        )
        catch_up()
        tables_read = {}
        for relation, table in tables.items():
            name = f"idivm_stream_{table.id}"
            rows = Identifier("pg_temp", name)
            stack.callback(_drop_table, connection, rows)
            with connection.transaction():
                connection.execute(
                    SQL("CREATE TEMPORARY TABLE {} (LIKE {} INCLUDING CONSTRAINTS)").format(
                        Identifier(name),
                        Identifier(names[relation].schema, names[relation].name),
                    )
                )
                _fill(connection, table, names[relation], rows, staged[relation])
            connection.execute(SQL("ANALYZE {}").format(rows))
            stream = Identifier(names[relation].schema, names[relation].name)
            tables_read[relation] = StreamRows(stream, rows)
        _drop(connection, staged)
        yield tables_read


def _staged(
    job: Loader, table: StreamTable, relation: Relation, files: Mapping[str, int]
) -> tuple[Load, int]:
    """Copy the rows of files into a staging table; return its load with the number of partitions."""
    (opened,) = job.open([load_of(table, relation, list(files))])
    require_unchanged(opened, files, relation)
    load = job.begin(opened, resume=False)
    try:
        return load, job.stage(opened, load)
    except BaseException:
        _end(job.connection, load)
        raise


def _fill(
    connection: Connection[Any],
    table: StreamTable,
    relation: Relation,
    rows: Identifier,
    staged: Sequence[tuple[Load, int]],
) -> None:
    """Fill a table with the rows of a stream: those inserted, less those deleted."""
    for load, parts in staged:
        lock_and_verify(connection, load, parts)
        check_operations(connection, load)
    if not staged:
        return
    query = _union(relation, staged, None if table.op is None else False)
    if table.op is not None:
        query = SQL("{} EXCEPT ALL ({})").format(query, _union(relation, staged, True))
    listed = SQL(", ").join(Identifier(column.name) for column in relation.columns)
    connection.execute(SQL("INSERT INTO {} ({}) {}").format(rows, listed, query))


def _union(
    relation: Relation, staged: Sequence[tuple[Load, int]], deleted: bool | None
) -> Composed:
    """Return the staged rows of all loads, or those that are deleted or not; a column that a load lacks is NULL."""

    def selected(load: Load) -> Composed:
        given = {column.name for column in load.moved}
        columns = [
            SQL("s.{}").format(Identifier(column.name))
            if column.name in given
            else SQL("CAST(NULL AS {})").format(SQL(column.type))
            for column in relation.columns
        ]
        query = SQL("SELECT {} FROM {} AS s").format(
            SQL(", ").join(columns), staging_table(load.id)
        )
        if deleted is None or load.op is None:
            return query
        return SQL("{} WHERE ({}) IS {}").format(
            query, takes_back(load.op), SQL("TRUE" if deleted else "NOT TRUE")
        )

    return SQL(" UNION ALL ").join(SQL("({})").format(selected(load)) for load, _ in staged)


def _drop(connection: Connection[Any], staged: Mapping[int, list[tuple[Load, int]]]) -> None:
    for loads in staged.values():
        while loads:
            load, _ = loads.pop()
            _end(connection, load)


def _end(connection: Connection[Any], load: Load) -> None:
    if not connection.closed:
        catalog_loads.end(connection, load.id)
        catalog_loads.unlock(connection, load.id)


def _drop_table(connection: Connection[Any], table: Identifier) -> None:
    give_back(connection, SQL("DROP TABLE IF EXISTS {}").format(table))
