"""The PySpark data source `idivm`: read and write PostgreSQL by streaming COPY.

    spark.readStream.format("idivm").option("dsn", dsn).option("view", "v").load()
    frame.write.format("idivm").option("dsn", dsn).mode("append").save("t")
    spark.read.format("idivm").option("dsn", dsn).load("v")

Spark finds it by the module `pyspark_idivm`. A write is a load of its own: tasks fill a staging table, and
the commit of the job moves the rows in one transaction. `mode("overwrite")` replaces the rows; the option
`key` makes the write an upsert.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from orchestrator.catalog import loads as catalog_loads
from orchestrator.runtime.sessions import open_pinned
from orchestrator.spark.changes import OPTIONS, FeedReader, feed_named, plan_changes
from orchestrator.spark.errors import LoadError
from orchestrator.spark.loading.copying import CopyTask, copy_partition
from orchestrator.spark.reading import ReadPlan, TablePart, plan_read, read_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orchestrator.spark.loading import ledger

NAME = "idivm"
TASKS = "idivm_tasks"
_READ = (
    "table",
    "query",
    "partitions",
    "snapshot",
    "columns",
    "astext",
    "pages",
    "whole",
    "locktimeout",
)
_WRITE = ("table", "key")


@dataclass
class PartWritten(WriterCommitMessage):
    """What a task reports to the driver."""

    part: int
    rows: int


class PostgresCopy(DataSource):
    """A PostgreSQL table, or the result of a query, as a source and a target of Spark."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the data source for `format`."""
        return NAME

    def schema(self) -> str:
        """Return the columns of the table or query, with Spark's types."""
        return self._plan().schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader with one task, or with as many tasks as the option `partitions` says."""
        return _Reader(self._plan())

    def streamReader(self, schema: StructType) -> FeedReader:  # noqa: N802
        """Return a reader of the feed of the view that the option `view` names."""
        if not self._reads_feed():
            raise LoadError(
                f"readStream of {NAME} needs the option view, the name of a view with feed = on."
            )
        return FeedReader(feed_named(_options(self.options, OPTIONS)))

    def _reads_feed(self) -> bool:
        return "view" in {name.lower() for name in self.options}

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Begin a load."""
        return _writer(_options(self.options, _WRITE), schema, overwrite)

    def _plan(self) -> ReadPlan:
        if self._reads_feed():
            feed = feed_named(_options(self.options, OPTIONS))
            return plan_changes(feed, feed.since, feed.upto)
        options = _options(self.options, _READ)
        plan = plan_read(
            options["dsn"],
            table=options.get("table"),
            query=options.get("query"),
            partitions=int(options.get("partitions", "1")),
            pages=int(options.get("pages", "0")),
            snapshot=options.get("snapshot"),
            columns=json.loads(options.get("columns", "null")),
            as_text=json.loads(options.get("astext", "[]")),
            whole=options.get("whole", "false") == "true",
            lock_timeout=options.get("locktimeout", "0"),
        )
        if len(plan.parts) > 1 and plan.snapshot is None:
            raise LoadError(
                f"{options['table']} cannot be read in {len(plan.parts)} partitions without a snapshot, because "
                "each partition would show another moment: read it in a block of `with orchestrator.snapshot() "
                "as name` with the option snapshot = name, or omit partitions."
            )
        return plan


class LoadTasks(PostgresCopy):
    """The data source for initial states; tasks of a registered source get the files of `addPyFile`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the data source for `format`."""
        return TASKS


def register(session: SparkSession) -> None:
    """Register the data source in a session, unless the session knows it already."""
    from pyspark.errors import AnalysisException

    from orchestrator.spark.session import active

    try:
        # Spark refuses a source that the active session knows, whichever session registers it.
        with active(session):
            session.dataSource.register(LoadTasks)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


class _Reader(DataSourceReader):
    def __init__(self, plan: ReadPlan) -> None:
        self.plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(part) for part in self.plan.parts]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        part: TablePart = partition.value
        return read_part(self.plan, part)


class _Writer(DataSourceArrowWriter):
    """Fills the staging table, and finishes the load."""

    def __init__(self, task: CopyTask, load: ledger.Load) -> None:
        self.task = task
        self.load = load

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        result = copy_partition(self.task, context.partitionId(), context.taskAttemptId(), iterator)
        return PartWritten(result.part, result.rows_read)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        from orchestrator.spark.loading.commit_load import commit_loads

        with open_pinned(self.task.dsn) as connection:
            with connection.transaction():
                commit_loads(connection, [(self.load, len(messages))])
            catalog_loads.drop_staging(connection, self.load.id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with open_pinned(self.task.dsn) as connection:
            catalog_loads.fail(connection, self.load.id)


def _writer(options: dict[str, str], schema: StructType, overwrite: bool) -> _Writer:
    # Imported here: Spark plans in other processes, and tasks run in further processes.
    from orchestrator.frontend.constraints import check_columns
    from orchestrator.frontend.statements import parse_name
    from orchestrator.spark.loading import ledger
    from orchestrator.spark.types import handling, pair

    for field in schema.fields:
        if field.dataType.typeName() == "variant":
            raise LoadError(f"Column {field.name} is a variant: cast it by to_json.")
    dsn = options["dsn"]
    if "table" not in options:
        raise LoadError(f"The data source {NAME} needs the name of a table: save('orders').")
    if overwrite and "key" in options:
        raise LoadError(
            "mode('overwrite') replaces all rows, and the option key updates rows: give one of them."
        )
    with open_pinned(dsn) as connection:
        catalog_loads.drop_orphans(connection)
        target = ledger.target_named(connection, parse_name(options["table"]))
        ledger.require(target, create=False)
        assert target.relation is not None
        wanted = [name.strip() for name in options.get("key", "").split(",") if name.strip()]
        key = ledger.key_columns(target, wanted)
        columns = pair(schema, target.relation, target.defaults)
        checks = check_columns(connection, target.relation.oid)
        load = ledger.begin(
            connection,
            target,
            mode="upsert" if wanted else "replace" if overwrite else "append",
            columns=columns,
            key=key,
            quarantine=False,
            command=secrets.token_hex(16),
            layout=catalog_loads.DATA_SOURCE,
        )
    names = tuple(column.name for column in columns)
    task = CopyTask(dsn, load.id, names, checks=checks, attended=False, **handling(columns))
    return _Writer(task, load)


def _options(options_given: Mapping[str, str], known: Sequence[str]) -> dict[str, str]:
    """Return the options of a read or a write in lower case; refuse options that have no effect."""
    options = {name.lower(): value for name, value in options_given.items()}
    if path := options.pop("path", ""):
        if "table" in options or "query" in options:
            raise LoadError(
                f"Name what to read or write once: {path}, or the option table or query."
            )
        options["table"] = path
    for name in options:
        if name not in known and name != "dsn":
            listed = ", ".join(sorted({"dsn", *known}))
            raise LoadError(
                f"The data source {NAME} has no option {name}; the options are {listed}."
            )
    if not options.get("dsn"):
        raise LoadError(f"The data source {NAME} needs the option dsn.")
    return options
