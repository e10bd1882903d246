"""Read changes from the WAL into the logs that the capture triggers fill.

A transaction becomes visible to snapshots after its commit record is in the WAL, and transactions become visible
in another order than that of these records. So the logs may hold transactions that a snapshot does not see, and a
refresh leaves their rows aside (`upto` of the watermark). But they hold all that it sees: a refresh first takes its
snapshot, and then reads the WAL up to its end in the same transaction.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import psycopg
from psycopg import Connection
from psycopg.errors import SerializationFailure

from orchestrator.catalog import take_settings, wal, with_settings
from orchestrator.catalog.wal import Member, Reading
from orchestrator.runtime.sessions import IdivmSession
from orchestrator.runtime.wal import pgoutput
from orchestrator.runtime.wal.pgoutput import Relation, Values
from orchestrator.session_locks import session_lock

FETCHED = 5000
"""How many messages are read at once."""

MOST = 200_000
"""With more changes of a table, a reading logs that the table may have any rows, and its views are recomputed."""

STEP = 1 << 20
"""After so many bytes of WAL without changes of captured tables, the slot is advanced too."""

PATIENCE = 1.0
"""Seconds to wait until the server writes out the WAL by itself."""

FAR = 1 << 21
"""The bytes of WAL before the slot's position that each reading may decode again."""

_SPECIAL = re.compile(rb"[\\\n\r\t]").search

_SETTINGS = {
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "xmloption": "content",
}


@contextmanager
def locked(connection: Connection[Any]) -> Iterator[None]:
    """Exclude whoever reads the WAL or changes from where changes are captured. The transaction begins inside."""
    with session_lock(connection, wal.LOCK):
        yield


def prepare(connection: Connection[Any]) -> None:
    """Do what a reading needs before its snapshot is taken.

    Decoding begins where the server last listed the running transactions in the WAL, which it does every 15 seconds.
    On a busy server, each reading would decode those seconds of the WAL again. So have the server list them more often.
    """
    if wal.decoded_again(connection) >= FAR:
        wal.list_transactions(_decoder(connection))
    # No transaction can have the WAL written out that is before its own snapshot.
    if connection.info.server_version < 170000 and not wal.is_flushed(connection):
        wal.flush_by_commit(connection)


def read(connection: Connection[Any]) -> tuple[str, int] | None:
    """Read the WAL into the logs, up to what the snapshot of the open transaction sees.

    Return the slot, and the position to which it may be advanced after the commit. Return None where this role may not
    read the WAL: the views are recomputed then.
    """
    state = wal.reading(connection)
    if state is None:
        return None
    if not _is_flushed(connection, state):
        raise SerializationFailure("the server has not written out the WAL yet")
    try:
        with connection.transaction():
            position = _read(connection, state)
            wal.note_read(connection, state.snapshot)
    except psycopg.Error as error:
        state_class = (error.sqlstate or "")[:2]
        is_lost = isinstance(error, psycopg.OperationalError) and not error.sqlstate
        if connection.closed or is_lost or state_class in ("40", "57") or error.sqlstate == "55P03":
            # A conflict, a cancel, a timeout or a lost connection ends the refresh.
            raise
        return None
    return state.slot, position


def advance(connection: Connection[Any], end: tuple[str, int] | None) -> None:
    """Let the server remove the WAL that was read. The next reading does it if this one cannot."""
    if end is None:
        return
    try:
        wal.advance(_decoder(connection), *end)
    except psycopg.Error:
        if connection.closed:
            raise


def _is_flushed(connection: Connection[Any], state: Reading) -> bool:
    """Have the WAL up to the snapshot written out: decoding stops there."""
    if state.flushed >= state.inserted:
        return True
    if connection.info.server_version >= 170000:
        wal.flush(connection)
        return True
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if wal.flushed(connection) >= state.inserted:
            return True
        time.sleep(0.01)
    return False


def _read(connection: Connection[Any], state: Reading) -> int:
    """Log all transactions from the last position to the end. Return the position from then on."""
    members = wal.members(connection)
    # If one of the partitions of a table is new, the log says that the table may have any rows.
    ordered = sorted(members.values(), key=lambda member: member.is_altered)
    logs = {member.source: _Log(connection, member) for member in ordered}
    settings = {**_SETTINGS, "client_encoding": _server_encoding(connection)}
    with with_settings(connection, settings), ExitStack() as stack:
        decoder = _decoder(connection)
        if decoder is not connection:
            stack.enter_context(decoder.transaction())
            take_settings(decoder, settings)
        changed = _decode(decoder, state, members, logs)
    for log in logs.values():
        log.flush()
    if altered := [member.source for member in members.values() if member.is_altered]:
        wal.note_columns(connection, altered)
    if changed or altered or state.inserted - state.position >= STEP:
        wal.note_position(connection, state.slot, state.inserted)
        return state.inserted
    return state.position


def _decoder(connection: Connection[Any]) -> Connection[Any]:
    """Return the session that decodes the WAL. Only one does at a time, because the lock of the WAL is held."""
    if isinstance(connection, IdivmSession) and connection.decode_in is not None:
        return connection.decode_in() or connection
    return connection


def _decode(
    connection: Connection[Any],
    state: Reading,
    members: dict[int, Member],
    logs: dict[int, _Log],
) -> bool:
    """Log what the slot holds. Return whether it holds changes that no earlier reading has logged."""
    places: dict[int, tuple[int, ...] | None] = {}
    logs_by_oid = {oid: logs[member.source] for oid, member in members.items()}
    xid = 0
    commit = 0
    is_new = changed = False
    changes = {pgoutput.INSERT, pgoutput.UPDATE, pgoutput.DELETE}
    with connection.cursor(name="idivm_wal", binary=True) as cursor:
        cursor.execute(wal.messages(state.slot))
        is_last = False
        while not is_last:
            rows = cursor.fetchmany(FETCHED)
            is_last = len(rows) < FETCHED
            for (data,) in rows:
                kind = data[0]
                if kind in changes:
                    if is_new:
                        oid = pgoutput.table(data)
                        log = logs_by_oid.get(oid)
                        if log is not None and commit >= log.member.since:
                            log.add(xid, data, places.get(oid))
                            changed = True
                elif kind == pgoutput.BEGIN:
                    commit, short = pgoutput.begin(data)
                    is_new = state.position <= commit < state.inserted
                    xid = _full_xid(short, state.next_xid)
                elif kind == pgoutput.RELATION:
                    relation = pgoutput.relation(data)
                    if (member := members.get(relation.oid)) is not None:
                        places[relation.oid] = _places(member, relation)
                elif kind == pgoutput.TRUNCATE and is_new:
                    for oid in pgoutput.truncated(data):
                        log = logs_by_oid.get(oid)
                        if log is not None and commit >= log.member.since:
                            log.cut(xid)
                            changed = True
            for filled in logs.values():
                filled.flush()
    return changed


def _places(member: Member, relation: Relation) -> tuple[int, ...] | None:
    """Return where the columns of a log are in rows of a table as it was; None if some are not there.

    Whether a column with the same name and type is the same column, `is_altered` says.
    """
    known = {column: place for place, column in enumerate(relation.columns)}
    places = tuple(known.get(column, -1) for column in member.columns)
    return None if -1 in places or member.is_altered else places


def _full_xid(xid: int, following: int) -> int:
    """Return a transaction number with its epoch, from its lower 32 bits and a number of about the same time.

    >>> _full_xid(5, (1 << 32) + 3) == (1 << 32) + 5, _full_xid(0xFFFFFFF0, (1 << 32) + 3) == 0xFFFFFFF0
    (True, True)
    """
    ahead = (xid - following) & 0xFFFFFFFF
    return following + (ahead - (1 << 32) if ahead >= 1 << 31 else ahead)


class _Log:
    """The rows that a reading adds to the log of a source."""

    def __init__(self, connection: Connection[Any], member: Member) -> None:
        self.connection = connection
        self.member = member
        self.statement: tuple[int, int] | None = None
        self.lines: list[bytes] = []
        self.total = 0
        self.cuts: set[int] = set()
        nothing = b"\t".join([b"\\N"] * len(member.columns))
        self.nothing = b"\t" + nothing if nothing else b""
        if member.is_altered:
            # Rows that were logged when the columns were looked up before may have had other columns.
            self.cut(self._statement()[0])

    def _statement(self) -> tuple[int, int]:
        """Return the numbers of this transaction and of the statement, which is as large as any before."""
        if self.statement is None:
            self.statement = wal.next_statement(self.connection, self.member.source)
        return self.statement

    def add(self, xid: int, data: bytes, places: tuple[int, ...] | None) -> None:
        """Log a change as the triggers do: an update of a row that keeps its key is one row of the log."""
        self.total += 1
        if self.total == MOST:
            self.cut(self._statement()[0])
        rows = pgoutput.change(data) if places is not None and self.total < MOST else None
        if rows is None or places is None:
            self.cut(xid)
            return
        old, new = rows
        old = old and [old[place] for place in places]
        new = new and [new[place] for place in places]
        if old is None or new is None:
            self._write(xid, b"D" if new is None else b"I", old, new)
        elif old != new:
            keys = self.member.keys
            if self.member.keyed and [old[key] for key in keys] == [new[key] for key in keys]:
                self._write(xid, b"U", old, new)
            else:
                self._write(xid, b"D", old, None)
                self._write(xid, b"I", None, new)

    def cut(self, xid: int) -> None:
        """Log that after a transaction, the table may have any rows."""
        if xid not in self.cuts:
            self.cuts.add(xid)
            self._write(xid, b"T", None, None)

    def _write(self, xid: int, operation: bytes, old: Values | None, new: Values | None) -> None:
        number = (self.statement or self._statement())[1]
        sides = self._side(old), self._side(new)
        self.lines.append(b"%d\t%d\t%b%b%b\n" % (number, xid, operation, *sides))

    def _side(self, values: Values | None) -> bytes:
        if values is None:
            return self.nothing
        texts = cast("list[bytes]", values)
        if None in values or _SPECIAL(b"".join(texts)):
            texts = [b"\\N" if value is None else _escaped(value) for value in values]
        return b"\t".join([b"", *texts])

    def flush(self) -> None:
        """Write the rows that were added."""
        if not self.lines:
            return
        source, attnums = self.member.source, self.member.attnums
        statement = wal.copy_into_log(source, self._statement()[1], attnums)
        with self.connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(b"".join(self.lines))
        self.lines = []


def _escaped(value: bytes) -> bytes:
    """Return a value as COPY reads it."""
    value = value.replace(b"\\", b"\\\\").replace(b"\n", b"\\n")
    return value.replace(b"\r", b"\\r").replace(b"\t", b"\\t")


def _server_encoding(connection: Connection[Any]) -> str:
    """Return the encoding in which texts go from the server to this program and back unchanged."""
    return connection.info.parameter_status("server_encoding") or "UTF8"
