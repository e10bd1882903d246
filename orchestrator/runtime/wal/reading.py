"""Read changes from the WAL into the logs that the capture triggers fill.

A transaction becomes visible to snapshots after its commit record is in the WAL, and transactions become visible
in another order than that of these records. So the logs may hold transactions that a snapshot does not see, and a
refresh leaves their rows aside (`upto` of the watermark). But they hold all that it sees: a refresh first takes its
snapshot, and then reads the WAL up to its end in the same transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.errors import SerializationFailure

from orchestrator.catalog import wal, with_settings
from orchestrator.catalog.wal import Member, Reading
from orchestrator.runtime.sessions import IdivmSession
from orchestrator.runtime.wal.pgoutput import (
    Begin,
    Change,
    Relation,
    Truncate,
    Values,
    changed_table,
    decode,
)
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
            stack.enter_context(with_settings(decoder, settings))
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
    places: dict[int, tuple[int, ...] | None] = {}
    logs_by_oid = {oid: logs[member.source] for oid, member in members.items()}
    xid = 0
    commit = 0
    is_new = changed = False
    with connection.cursor(name="idivm_wal", binary=True) as cursor:
        cursor.itersize = FETCHED
        cursor.execute(wal.messages(state.slot))
        while rows := cursor.fetchmany(FETCHED):
            for (data,) in rows:
                full = logs_by_oid.get(changed_table(data))
                if full is not None and full.is_full:
                    if is_new and commit >= full.member.since:
                        full.cut(xid)
                    continue
                message = decode(data)
                if isinstance(message, Change):
                    member = members.get(message.oid)
                    if is_new and member is not None and commit >= member.since:
                        logs[member.source].add(xid, message, places.get(message.oid))
                        changed = True
                elif isinstance(message, Begin):
                    commit = message.position
                    is_new = state.position <= commit < state.inserted
                    xid = _full_xid(message.xid, state.next_xid)
                elif isinstance(message, Relation):
                    if (member := members.get(message.oid)) is not None:
                        places[message.oid] = _places(member, message)
                elif isinstance(message, Truncate) and is_new:
                    for member in filter(None, map(members.get, message.oids)):
                        if commit >= member.since:
                            logs[member.source].cut(xid)
                            changed = True
            for log in logs.values():
                log.flush()
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

    @property
    def is_full(self) -> bool:
        """Whether it takes no more changes: they are only noted."""
        return self.total >= MOST

    def _statement(self) -> tuple[int, int]:
        """Return the numbers of this transaction and of the statement, which is as large as any before."""
        if self.statement is None:
            self.statement = wal.next_statement(self.connection, self.member.source)
        return self.statement

    def add(self, xid: int, change: Change, places: tuple[int, ...] | None) -> None:
        """Log a change as the triggers do: an update of a row that keeps its key is one row of the log."""
        self.total += 1
        if self.total == MOST:
            self.cut(self._statement()[0])
        lacks_old = change.kind != "I" and change.old is None
        if places is None or lacks_old or self.total >= MOST or change.is_incomplete:
            self.cut(xid)
            return
        old = None if change.old is None else [change.old[place] for place in places]
        new = None if change.new is None else [change.new[place] for place in places]
        if old is None or new is None:
            self._write(xid, change.kind, old, new)
        elif old != new:
            keys = self.member.keys
            if self.member.keyed and all(old[key] == new[key] for key in keys):
                self._write(xid, "U", old, new)
            else:
                self._write(xid, "D", old, None)
                self._write(xid, "I", None, new)

    def cut(self, xid: int) -> None:
        """Log that after a transaction, the table may have any rows."""
        if xid not in self.cuts:
            self.cuts.add(xid)
            self._write(xid, "T", None, None)

    def _write(
        self,
        xid: int,
        operation: str,
        old: Sequence[bytes | None] | None,
        new: Sequence[bytes | None] | None,
    ) -> None:
        head = f"{self._statement()[1]}\t{xid}\t{operation}".encode()
        self.lines.append(head + self._side(old) + self._side(new) + b"\n")

    def _side(self, values: Sequence[bytes | None] | None) -> bytes:
        if values is None:
            return self.nothing
        return b"".join(b"\t\\N" if value is None else b"\t" + _escaped(value) for value in values)

    def flush(self) -> None:
        """Write the rows that were added."""
        if not self.lines:
            return
        source, attnums = self.member.source, self.member.attnums
        statement = wal.copy_into_log(source, self._statement()[1], attnums)
        with self.connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(b"".join(self.lines))
        self.lines = []


def _escaped(value: Values | bytes) -> bytes:
    assert isinstance(value, bytes)
    if b"\\" in value or b"\n" in value or b"\r" in value or b"\t" in value:
        value = value.replace(b"\\", b"\\\\").replace(b"\n", b"\\n")
        return value.replace(b"\r", b"\\r").replace(b"\t", b"\\t")
    return value


def _server_encoding(connection: Connection[Any]) -> str:
    """Return the encoding in which texts go from the server to this program and back unchanged."""
    return connection.info.parameter_status("server_encoding") or "UTF8"
