"""A task's part of a load: write a partition into the staging table exactly once, whatever happens to the task.

The rows and the partition's ledger entry are one transaction. Of several attempts at a partition, only one
can insert the entry. The others violate the ledger's key and leave nothing. A task needs memory for one
batch and its text, not for its partition.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, starmap
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
from psycopg import Connection
from psycopg.errors import DataError, ForeignKeyViolation, IntegrityError, UniqueViolation
from psycopg.sql import SQL, Composed, Identifier, Literal

from orchestrator.catalog import loads as catalog_loads
from orchestrator.catalog.loads import PLACE, PLACE_BITS, Rejected, staging_table
from orchestrator.catalog.search_path import PIN
from orchestrator.runtime.sessions import open_session
from orchestrator.spark.errors import LoadError
from orchestrator.spark.formats.arrow import mapped, pa
from orchestrator.spark.formats.blocks import (
    Block,
    Range,
    Reader,
    Torn,
    blocks,
    in_rows,
    places,
    reread,
)
from orchestrator.spark.formats.csv_rows import CsvReader
from orchestrator.spark.loading.encode import Lines, encode, numbered
from orchestrator.spark.refusals import line_of, null_character, quoted, rejected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORRUPT = "idivm: corrupt"
"""The column with the reason why a row could not be parsed; NULL for other rows."""

_CHUNK = 1 << 18
_FEW = 64
_SETTINGS = (
    b"SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET lock_timeout = 0; "
    + PIN
)


@dataclass(frozen=True)
class CopyTask:
    """The description of a load that each of its tasks gets."""

    dsn: str
    load: int
    columns: tuple[str, ...]
    quarantine: bool = False
    most_rejected: int = 10_000
    as_json: tuple[str, ...] = ()
    """The columns whose arrays become JSON, by their names in the source."""
    as_double: tuple[str, ...] = ()
    """The columns with numbers of double precision, by their names in the source."""
    places: Mapping[str, int] = field(default_factory=dict)
    """The decimal places of columns of times, if the values may have more places than the type."""
    table: str = ""
    """The table's name in messages."""
    checks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The columns of each CHECK constraint."""
    attended: bool = True
    """Whether a driver's session holds the load's lock."""


@dataclass(frozen=True)
class PartResult:
    """The result of a partition."""

    part: int
    rows_read: int
    rows_rejected: int


class BadRowError(LoadError):
    """A row cannot be loaded, and the load stops at such rows."""


def copy_partition(task: CopyTask, part: int, attempt: int, batches: Iterable[Any]) -> PartResult:
    """Write a partition into the staging table and the ledger, unless another attempt has done so."""
    return _write_once(task, part, attempt, lambda writer: writer.write(batches))


def copy_ranges(
    task: CopyTask, reader: Reader, part: int, attempt: int, ranges: Sequence[Range]
) -> PartResult:
    """Write a partition that consists of ranges of text files, like `copy_partition`."""
    return _write_once(task, part, attempt, lambda writer: writer.write_ranges(reader, ranges))


def copy_slice(
    task: CopyTask, reader: Reader, part: int, ranges: Iterable[Sequence[Range]]
) -> Iterator[PartResult]:
    """Copy a slice of the ranges in a Spark task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    listed = list(chain.from_iterable(ranges))
    yield copy_ranges(task, reader, part, context.taskAttemptId(), listed)


def start_worker(session: SparkSession) -> Thread:
    """Start a Python worker of Spark while this process opens the sources; workers serve one task after another."""
    from pyspark.sql.types import IntegerType, StructField, StructType

    def run() -> None:
        with suppress(Exception):
            mapped(session.range(0, 1, 1, 1), _pass_on, schema).collect()

    schema = StructType([StructField("id", IntegerType())])
    (thread := Thread(target=run, daemon=True)).start()
    return thread


def _pass_on(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        yield batch.cast(pa.schema([("id", pa.int32())]))


def copy_frame(task: CopyTask, rows: DataFrame) -> int:
    """Copy the partitions of a DataFrame by Spark's tasks; return the number of partitions.

    A data source would do the same, but Spark would start three more Python processes to plan and commit it.
    """
    from pyspark.sql.types import IntegerType, StructField, StructType

    names = rows.columns
    # Names may differ only in case.
    numbered_rows = rows.toDF(*(f"c{number}" for number, _ in enumerate(names)))
    schema = StructType([StructField("part", IntegerType())])
    return len(mapped(numbered_rows, partial(_copy_batches, task, names), schema).collect())


def _copy_batches(task: CopyTask, names: Sequence[str], batches: Iterable[Any]) -> Iterator[Any]:
    """Copy a partition in a Spark task; yield its number."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    named_batches = (pa.RecordBatch.from_arrays(batch.columns, names=names) for batch in batches)
    result = copy_partition(task, context.partitionId(), context.taskAttemptId(), named_batches)
    yield pa.record_batch({"part": pa.array([result.part], pa.int32())})


def _write_once(
    task: CopyTask, part: int, attempt: int, write: Callable[[_Writer], None]
) -> PartResult:
    with open_session(
        task.dsn, autocommit=False, application_name=f"idivm load {task.load}"
    ) as connection:
        connection.execute(_SETTINGS)
        if not task.attended:
            catalog_loads.attend(connection, task.load)
        if done := _done(connection, task.load, part):
            return done
        writer = _Writer(connection, task, part)
        try:
            write(writer)
            catalog_loads.note_part(
                *(connection, task.load, part, attempt),
                read=writer.read,
                size=writer.bytes,
                rejected=writer.rejected,
            )
            connection.commit()
            return PartResult(part, writer.read, len(writer.rejected))
        except UniqueViolation:
            connection.rollback()
            if done := _done(connection, task.load, part):
                return done
            raise
        except ForeignKeyViolation as error:
            raise LoadError(
                f"The load into {task.table} was given up meanwhile (load {task.load})."
            ) from error
        except _StoppedError as stop:
            connection.rollback()
            catalog_loads.keep_rejected(connection, task.load, part, [stop.row])
            connection.commit()
            row = stop.row
            place = f"{row.file}, line {row.line}" if row.file else f"Row {row.position}"
            raise BadRowError(f"{place}: {row.reason}") from stop.__cause__


def _done(connection: Connection[Any], load: int, part: int) -> PartResult | None:
    row = catalog_loads.part_done(connection, load, part)
    return PartResult(part, *row) if row else None


class _StoppedError(Exception):
    def __init__(self, row: Rejected) -> None:
        super().__init__(row.reason)
        self.row = row


class _Writer:
    """Streams one partition, counts the rows that it reads, and collects the rejected rows."""

    def __init__(self, connection: Connection[Any], task: CopyTask, part: int) -> None:
        self.connection = connection
        self.task = task
        self.part = part
        self.read = 0
        self.bytes = 0
        self.rejected: list[Rejected] = []
        self.reader: Reader | None = None
        self.raw = False
        self.sent: list[tuple[int, Block, int]] = []
        """For each copied block: the number of rows before it, the block without its data, and its size."""
        names = [*((PLACE,) if task.quarantine else ()), *task.columns]
        self.statement: Composed = SQL("COPY {} ({}) FROM STDIN").format(
            staging_table(task.load), SQL(", ").join(map(Identifier, names))
        )

    def write(self, batches: Iterable[Any]) -> None:
        """Write Arrow batches; a row's position is its number in the partition."""
        self._write(self._with_positions(batches))

    def write_ranges(self, reader: Reader, ranges: Iterable[Range]) -> None:
        """Write the rows of files; a row's position is its byte offset in the ranges."""
        self.reader = reader
        # PostgreSQL parses lines of CSV fastest.
        if not isinstance(reader, CsvReader) or reader.spans_lines:
            self._write(self._parsed(reader, ranges))
        elif not self.task.quarantine:
            self.raw = True
            self.statement += self._csv_options(reader)
            self._copy_all(self._lines(reader, ranges))
        elif not reader.takes_numbers:
            self._write(self._parsed(reader, ranges))
        else:
            self._copy_lines(reader, ranges)

    def _csv_options(self, reader: CsvReader) -> Composed:
        numbers = SQL(", FORCE_NOT_NULL ({})").format(Identifier(PLACE))
        return SQL(" (FORMAT csv, DELIMITER {}, QUOTE {}, NULL {}{})").format(
            *(Literal(item.decode()) for item in (reader.separator, reader.quote, reader.null)),
            numbers if self.task.quarantine else SQL(""),
        )

    def _copy_lines(self, reader: CsvReader, ranges: Iterable[Range]) -> None:
        """Copy lines unparsed; parse only those blocks in which PostgreSQL refuses a line."""
        statement = self.statement + self._csv_options(reader)
        before = 0
        for range_ in ranges:
            for block in blocks(range_):
                start = before + block.start - range_.start
                sound = self._copy_block(statement, reader, block, start)
                if sound is not None:
                    for batch, positions in self._rows(reader, block, start):
                        encoded = self._encoded(batch, self._places(positions))
                        self._copy_sound(encoded, positions, sound)
            before += range_.end - range_.start

    def _copy_block(
        self, statement: Composed, reader: CsvReader, block: Block, start: int
    ) -> int | None:
        """Copy the lines of a block; return the number of lines before the first bad line, if any."""
        lines = reader.lines(block)
        if isinstance(lines, Torn):
            return 0
        data, number = lines
        if number:
            positions = start + reader.line_starts(block)
            try:
                with (
                    self.connection.transaction(),
                    self.connection.cursor().copy(statement) as copy,
                ):
                    self._send(copy, numbered(data, self._places(positions), reader.separator))
            except (DataError, IntegrityError) as error:
                return (line_of(error, self.task.load) or 1) - 1
            self.read += number
        return None

    def _write(self, batches: Iterable[tuple[Any, Any]]) -> None:
        if not self.task.quarantine:
            self._copy_all(starmap(self._text, batches))
            return
        for batch, positions in batches:
            self._copy_sound(self._encoded(batch, self._places(positions)), positions)

    def _text(self, batch: Any, positions: Any) -> memoryview:
        """Return a batch as text; stop at a character 0, for which PostgreSQL would not name the column."""
        lines = self._encoded(batch)
        if self.reader is None and (row := lines.first_with(b"\0")) is not None:
            raise _StoppedError(null_character(self.task, int(positions[row]), lines.text(row)))
        return lines.data(0, len(lines))

    def _places(self, positions: Any) -> Any:
        return positions + (self.part << PLACE_BITS)

    def _encoded(self, batch: Any, row_places: Any = None) -> Lines:
        return encode(batch, row_places, self.task.as_json, self.task.as_double, self.task.places)

    def _lines(self, reader: CsvReader, ranges: Iterable[Range]) -> Iterator[bytes]:
        for block in chain.from_iterable(map(blocks, ranges)):
            self.sent.append((self.read, replace(block, data=b""), len(block.data)))
            lines = reader.lines(block)
            if isinstance(lines, Torn):
                raise _StoppedError(
                    self._located(Rejected(0, None, lines.reason, lines.content), block, lines.at)
                )
            data, number = lines
            self.read += number
            yield data

    def _parsed(self, reader: Reader, ranges: Iterable[Range]) -> Iterator[tuple[Any, Any]]:
        before = 0
        for range_ in ranges:
            for block in in_rows(blocks(range_), reader):
                if not self.task.quarantine:
                    self.sent.append((self.read, replace(block, data=b""), len(block.data)))
                yield from self._rows(reader, block, before + block.start - range_.start)
            before += range_.end - range_.start

    def _rows(self, reader: Reader, block: Block, start: int) -> Iterator[tuple[Any, Any]]:
        rows = reader.take_apart(block)
        for torn in rows.torn:
            row = Rejected(start + torn.at, None, torn.reason, torn.content)
            stops = torn.ends or not self.task.quarantine
            self._leave_out(self._located(row, block, torn.at) if stops else row, torn.ends)
        self.read += len(rows.starts) + len(rows.torn)
        if len(rows.starts):
            batch = pa.RecordBatch.from_arrays(list(rows.columns), self.task.columns)
            yield batch, start + np.asarray(rows.starts)

    def _located(self, row: Rejected, block: Block, start: int) -> Rejected:
        """Add the file, row number and line of a row that begins at this byte of a block."""
        assert self.reader is not None
        offset = block.start + start
        number, line = places(block.path, [offset], self.reader)[offset]
        return replace(row, file=block.path, row=number, line=line)

    def _with_positions(self, batches: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield each batch without malformed rows, and the position of each row in the partition."""
        for batch in batches:
            first = self.read + 1
            self.read += batch.num_rows
            positions = np.arange(first, first + batch.num_rows)
            if CORRUPT in batch.schema.names:
                torn = batch.column(CORRUPT)
                batch = batch.drop_columns([CORRUPT])
                if torn.null_count < len(torn):
                    sound = torn.is_null().to_numpy(zero_copy_only=False)
                    for index in np.flatnonzero(~sound).tolist():
                        ends, reason, content = torn[index].as_py().split("\n", 2)
                        row = Rejected(first + index, None, reason, content)
                        self._leave_out(row, bool(ends))
                    batch, positions = batch.filter(torn.is_null()), positions[sound]
            if batch.num_rows:
                yield batch, positions

    def _copy_all(self, texts: Iterable[Any]) -> None:
        """Copy the whole partition by one COPY, which ends at the first bad row."""
        try:
            with self.connection.cursor().copy(self.statement) as copy:
                for text in texts:
                    self._send(copy, memoryview(text))
        except (DataError, IntegrityError) as error:
            line = line_of(error, self.task.load)
            if line is None:
                raise
            # No row was left out before it, so lines are rows.
            raise _StoppedError(self._refused(error, line - 1)) from error

    def _refused(self, error: psycopg.Error, row: int) -> Rejected:
        """Return a refused row, with its place and values if this task has read the file."""
        content = quoted(error)
        if self.reader is None:
            return rejected(error, row + 1, content, self.task)
        after = bisect_left(self.sent, row + 1, key=lambda item: item[0])
        before, block, size = self.sent[after - 1]
        rows = self.reader.take_apart(reread(block, size))
        torn = {row_torn.at: row_torn.reason for row_torn in rows.torn} if self.raw else {}
        start = sorted([*map(int, rows.starts), *torn])[row - before]
        values: list[str | None] = []
        if start not in torn:
            index = bisect_left(rows.starts, start)
            values = [column[index].as_py() for column in rows.columns]
        refused = rejected(error, row + 1, content, self.task, values)
        reason = torn.get(start, refused.reason)
        return self._located(replace(refused, reason=reason), block, start)

    def _copy_sound(self, lines: Lines, positions: Any, sound: int | None = None) -> None:
        """Copy the rows of a batch that PostgreSQL accepts, and reject the others.

        `sound` is the number of rows at the beginning that are known to be accepted.
        """
        start, step = 0, len(lines) if sound is None else sound or _FEW
        after = 0
        while start < len(lines):
            end = min(len(lines), start + step)
            try:
                self._copy_range(lines, start, end)
                start, step = end, step * 4
            except (DataError, IntegrityError) as error:
                line = line_of(error, self.task.load)
                if line is None:
                    raise
                bad = start + line - 1
                if bad > start:
                    self._copy_range(lines, start, bad)
                content = lines.text(bad).split("\t", 1)[1]
                self._leave_out(rejected(error, int(positions[bad]), content, self.task))
                start, step, after = bad + 1, max(_FEW, bad - after), bad + 1

    def _copy_range(self, lines: Lines, start: int, end: int) -> None:
        with self.connection.transaction(), self.connection.cursor().copy(self.statement) as copy:
            self._send(copy, lines.data(start, end))

    def _send(self, copy: Any, data: memoryview) -> None:
        for begin in range(0, len(data), _CHUNK):
            copy.write(data[begin : begin + _CHUNK])
        self.bytes += len(data)

    def _leave_out(self, row: Rejected, ends: bool = False) -> None:
        if ends or not self.task.quarantine:
            raise _StoppedError(row)
        self.rejected.append(row)
        if len(self.rejected) > self.task.most_rejected:
            raise LoadError(
                f"More than {self.task.most_rejected:,} rows of one partition are bad, lastly: "
                f"{row.reason}. Check format and options, or allow more (--max-bad-rows)."
            )


def corrupt(torn: Torn) -> str:
    """Return the content of the column CORRUPT for a row that could not be parsed."""
    return f"{'ends' if torn.ends else ''}\n{torn.reason}\n{torn.content}"
