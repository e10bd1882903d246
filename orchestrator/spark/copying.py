"""A task's part of a load: its partition into the staging table, once, whatever happens to the task.

The rows and the partition's line in the ledger are one transaction. Of several attempts at a
partition one gets its line in; the others violate the ledger's key and leave nothing. A task needs
memory for one batch and its text, not for its partition.
"""

from __future__ import annotations

import csv
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import psycopg
from psycopg import Connection
from psycopg.errors import DataError, ForeignKeyViolation, IntegrityError, UniqueViolation
from psycopg.sql import SQL, Composed, Identifier, Literal

from orchestrator.runtime import catalog_loads
from orchestrator.runtime.catalog_loads import PART, POSITION, Rejected, staging_table
from orchestrator.runtime.search_path import PIN
from orchestrator.runtime.sessions import open_session
from orchestrator.spark.encode import Lines, encode
from orchestrator.spark.errors import LoadError
from orchestrator.spark.plain import Block, Range, TornError, blocks, place, read_again, rows

CORRUPT = "idivm_corrupt"
"""The column in which Spark hands over lines that it could not take apart."""

_CHUNK = 1 << 18
_FEW = 64
_SETTINGS = (
    b"SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET lock_timeout = 0; "
    + PIN
)


@dataclass(frozen=True)
class CopyTask:
    """What every task of a load is told."""

    dsn: str
    load: int
    columns: tuple[str, ...]
    quarantine: bool = False
    most_rejected: int = 10_000
    separator: str = ","
    width: int = 0
    """The number of fields that a line should have, where the source is text."""
    header: str | None = None
    """The first line of every file, where files of plain CSV are read."""
    as_json: tuple[str, ...] = ()
    """The columns whose arrays become JSON, by the names that the source has for them."""
    as_double: tuple[str, ...] = ()
    """The columns that hold numbers of double precision, by the same names."""
    places: Mapping[str, int] = field(default_factory=dict)
    """For columns of times that may be finer than their type, how many decimal places it has."""
    attended: bool = True
    """Whether the session of a driver holds the load."""


@dataclass(frozen=True)
class PartResult:
    """What became of a partition."""

    part: int
    rows_read: int
    rows_rejected: int


class BadRowError(LoadError):
    """A row that cannot be loaded, in a load that stops at it."""


def copy_partition(task: CopyTask, part: int, attempt: int, batches: Iterable[Any]) -> PartResult:
    """Writes a partition into the staging table and the ledger, unless another attempt has."""
    return _once(task, part, attempt, lambda writer: writer.write(batches))


def copy_ranges(task: CopyTask, part: int, attempt: int, ranges: Iterable[Range]) -> PartResult:
    """Does the same with lines of plain CSV, which PostgreSQL takes apart."""
    return _once(task, part, attempt, lambda writer: writer.write_lines(ranges))


def copy_slice(
    task: CopyTask, part: int, ranges: Iterable[Sequence[Range]]
) -> Iterator[PartResult]:
    """What a task of Spark does with its slice of the ranges."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    yield copy_ranges(task, part, context.taskAttemptId(), chain.from_iterable(ranges))


def _once(task: CopyTask, part: int, attempt: int, write: Callable[[_Writer], None]) -> PartResult:
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
            raise LoadError(f"Load {task.load} was given up meanwhile.") from error
        except _StoppedError as stop:
            connection.rollback()
            catalog_loads.keep_rejected(connection, task.load, part, [stop.row])
            connection.commit()
            raise BadRowError(
                f"Row {stop.row.position} of partition {part}: {stop.row.reason}"
            ) from stop.__cause__


def _done(connection: Connection[Any], load: int, part: int) -> PartResult | None:
    row = catalog_loads.part_done(connection, load, part)
    return PartResult(part, *row) if row else None


class _StoppedError(Exception):
    def __init__(self, row: Rejected) -> None:
        super().__init__(row.reason)
        self.row = row


class _Writer:
    """Streams one partition; counts what it reads and keeps what it leaves out."""

    def __init__(self, connection: Connection[Any], task: CopyTask, part: int) -> None:
        self.connection = connection
        self.task = task
        self.part = part
        self.read = 0
        self.bytes = 0
        self.rejected: list[Rejected] = []
        self.header = None if task.header is None else task.header.encode()
        self.sent: list[tuple[int, Block, int]] = []
        """Of each block of lines: how many rows are before it, where it begins, how long it is."""
        names = [*((PART, POSITION) if task.quarantine else ()), *task.columns]
        self.statement: Composed = SQL("COPY {} ({}) FROM STDIN").format(
            staging_table(task.load), SQL(", ").join(map(Identifier, names))
        )

    def write(self, batches: Iterable[Any]) -> None:
        """Writes batches of Arrow."""
        if self.task.quarantine:
            for lines in self._encoded(batches):
                self._copy_sound(lines)
            return
        encoded = self._encoded(batches)
        self._copy_all(lines.data(0, len(lines)) for lines, _ in encoded)

    def write_lines(self, ranges: Iterable[Range]) -> None:
        """Writes lines of CSV as they are."""
        self.statement += SQL(" (FORMAT csv, DELIMITER {})").format(Literal(self.task.separator))
        self._copy_all(self._blocks(ranges))

    def _blocks(self, ranges: Iterable[Range]) -> Iterator[bytes]:
        for one in ranges:
            for block in blocks(one):
                self.sent.append((self.read, replace(block, data=b""), len(block.data)))
                try:
                    data, number = rows(block, self.header)
                except TornError as torn:
                    row, line, text = place(block, torn.row, self.header)
                    position = self.read + torn.row + 1
                    raise _StoppedError(
                        Rejected(position, None, torn.reason, text, block.path, row, line)
                    ) from torn
                self.read += number
                yield data

    def _encoded(self, batches: Iterable[Any]) -> Iterator[tuple[Lines, Any]]:
        """Each batch as text, with the position in the partition of every row of it."""
        for batch in batches:
            first = self.read + 1
            positions = np.arange(first, first + batch.num_rows)
            self.read += batch.num_rows
            if CORRUPT in batch.schema.names:
                torn = batch.column(CORRUPT)
                batch = batch.drop_columns([CORRUPT])
                if torn.null_count < len(torn):
                    for place in np.flatnonzero(torn.is_valid().to_numpy(zero_copy_only=False)):
                        text = torn[int(place)].as_py()
                        reason = _malformed(text, self.task)
                        self._leave_out(Rejected(first + int(place), None, reason, text))
                    batch, positions = batch.filter(torn.is_null()), positions[_null_mask(torn)]
            if batch.num_rows:
                numbering = (self.part, positions) if self.task.quarantine else None
                yield (
                    encode(
                        batch, numbering, self.task.as_json, self.task.as_double, self.task.places
                    ),
                    positions,
                )

    def _copy_all(self, texts: Iterable[Any]) -> None:
        """One COPY for the whole partition, which ends at the first row that is no good."""
        try:
            with self.connection.cursor().copy(self.statement) as copy:
                for text in texts:
                    self._send(copy, memoryview(text))
        except (DataError, IntegrityError) as error:
            line = _line(error, self.task.load)
            if line is None:
                raise
            # Nothing was left out before it, so that lines are positions.
            row = _rejected(error, line, _quoted(error), self.task)
            raise _StoppedError(self._placed(row)) from error

    def _placed(self, rejected: Rejected) -> Rejected:
        """With the place in the file, of lines that were sent as they are."""
        if not self.sent:
            return rejected
        after = bisect_left(self.sent, rejected.position, key=lambda one: one[0])
        before, block, size = self.sent[after - 1]
        row, line, _ = place(read_again(block, size), rejected.position - before - 1, self.header)
        return replace(rejected, file=block.path, row=row, line=line)

    def _copy_sound(self, encoded: tuple[Lines, Any]) -> None:
        """The rows of a batch that PostgreSQL takes; those before the one it names are among them."""
        lines, positions = encoded
        start, step = 0, len(lines)
        while start < len(lines):
            end = min(len(lines), start + step)
            try:
                self._copy_range(lines, start, end)
                start, step = end, step * 4
            except (DataError, IntegrityError) as error:
                line = _line(error, self.task.load)
                if line is None:
                    raise
                bad = start + line - 1
                if bad > start:
                    self._copy_range(lines, start, bad)
                content = lines.text(bad).split("\t", 2)[2]
                self._leave_out(_rejected(error, int(positions[bad]), content, self.task))
                start, step = bad + 1, _FEW

    def _copy_range(self, lines: Lines, start: int, end: int) -> None:
        with self.connection.transaction(), self.connection.cursor().copy(self.statement) as copy:
            self._send(copy, lines.data(start, end))

    def _send(self, copy: Any, data: memoryview) -> None:
        for begin in range(0, len(data), _CHUNK):
            copy.write(data[begin : begin + _CHUNK])
        self.bytes += len(data)

    def _leave_out(self, row: Rejected) -> None:
        if not self.task.quarantine:
            raise _StoppedError(row)
        self.rejected.append(row)
        if len(self.rejected) > self.task.most_rejected:
            raise LoadError(
                f"More than {self.task.most_rejected:,} rows of one partition are bad, lastly: "
                f"{row.reason}. Check format and options, or allow more (--max-bad-rows)."
            )


def _null_mask(column: Any) -> Any:
    return column.is_null().to_numpy(zero_copy_only=False)


def _line(error: psycopg.Error, load: int) -> int | None:
    """The line that a COPY broke off at, in whatever language the server speaks."""
    # Where the value is JSON, lines about that come before.
    match = re.search(rf"^COPY l{load}\D+(\d+)", error.diag.context or "", re.MULTILINE)
    return int(match[1]) if match else None


def _rejected(error: psycopg.Error, position: int, content: str, task: CopyTask) -> Rejected:
    match = re.search(
        r"^COPY l\d+\D+\d+, \S+ (.+?)(?:: |$)", error.diag.context or "", re.MULTILINE
    )
    column = error.diag.column_name or (match[1] if match else None)
    reason = error.diag.message_primary or str(error)
    return Rejected(position, column if column in task.columns else None, reason, content)


def _quoted(error: psycopg.Error) -> str:
    """What the message shows of the row: the value, or the line."""
    match = re.search(r': "(.*)"$', error.diag.context or "", re.MULTILINE)
    return match[1] if match else ""


def _malformed(text: str, task: CopyTask) -> str:
    """Why a line of a text file could not be taken apart."""
    if not task.width:
        return "the line is malformed"
    try:
        fields = len(next(csv.reader([text], delimiter=task.separator), []))
    except (csv.Error, TypeError):
        return "the line is malformed"
    if fields == task.width:
        return "the line is malformed"
    return f"the line has {fields} fields instead of {task.width}"
