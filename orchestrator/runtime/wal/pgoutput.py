"""Decode the messages of the plugin `pgoutput`, version 1 of its protocol.

A transaction is a `Begin`, changes, and a `Commit`. A `Relation` precedes the first change of each table and gives its
columns as they were then. Values are the texts of PostgreSQL's output functions.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple, TypeAlias

Values: TypeAlias = "tuple[bytes | None, ...]"
"""The values of a row; None is NULL."""

_BEGIN = Struct(">QqI")
_COMMIT = Struct(">BQQq")
_RELATION = Struct(">I")
_COLUMN = Struct(">Ii")
_COUNT = Struct(">H")
_LENGTH = Struct(">I")
_TRUNCATE = Struct(">IB")


class Begin(NamedTuple):
    """A transaction begins. Its commit record begins at `position`."""

    position: int
    xid: int
    """The lower 32 bits of its number."""


class Commit(NamedTuple):
    """The transaction ends. Its commit record ends at `end`."""

    end: int


class Relation(NamedTuple):
    """The columns of a table, each with the OID of its type."""

    oid: int
    columns: tuple[tuple[str, int], ...]


class Change(NamedTuple):
    """A row was inserted, updated or deleted.

    Without a replica identity of all columns, the old row of a change is unknown.
    """

    oid: int
    kind: str
    """I, U or D."""
    old: Values | None
    new: Values | None
    is_incomplete: bool = False
    """Whether a large value that an update left as it was is in neither row."""


class Truncate(NamedTuple):
    """Tables were truncated."""

    oids: tuple[int, ...]


Message: TypeAlias = "Begin | Commit | Relation | Change | Truncate"


def decode(data: bytes) -> Message | None:
    r"""Return a message, or None for a message about nothing that the logs hold.

    >>> decode(b"B" + bytes(7) + b"\x05" + bytes(8) + b"\x00\x00\x00\x07")
    Begin(position=5, xid=7)
    >>> decode(b"I\x00\x00\x00\x09N\x00\x02t\x00\x00\x00\x02hin")
    Change(oid=9, kind='I', old=None, new=(b'hi', None), is_incomplete=False)
    """
    kind = data[:1]
    if kind == b"I":
        row, _, is_incomplete = _row(data, 6, None)
        return Change(_LENGTH.unpack_from(data, 1)[0], "I", None, row, is_incomplete)
    if kind == b"U":
        return _update(data)
    if kind == b"D":
        row, _, is_incomplete = _row(data, 6, None)
        old = row if data[5:6] == b"O" else None
        return Change(_LENGTH.unpack_from(data, 1)[0], "D", old, None, is_incomplete)
    if kind == b"B":
        position, _, xid = _BEGIN.unpack_from(data, 1)
        return Begin(position, xid)
    if kind == b"C":
        return Commit(_COMMIT.unpack_from(data, 1)[2])
    if kind == b"R":
        return _relation(data)
    if kind == b"T":
        count, _ = _TRUNCATE.unpack_from(data, 1)
        return Truncate(tuple(_LENGTH.unpack_from(data, 6 + 4 * n)[0] for n in range(count)))
    return None


def changed_table(data: bytes) -> int:
    r"""Return the OID of the table whose row a message changes, or 0 for another message.

    >>> changed_table(b"I\x00\x00\x00\x09N")
    9
    """
    return _LENGTH.unpack_from(data, 1)[0] if data[:1] in (b"I", b"U", b"D") else 0


def _update(data: bytes) -> Change:
    oid = _LENGTH.unpack_from(data, 1)[0]
    old: Values | None = None
    at = 6
    if data[5:6] in (b"O", b"K"):
        row, at, _ = _row(data, 6, None)
        old = row if data[5:6] == b"O" else None
        at += 1
    # A large value that an update left as it was is only in the old row.
    new, _, is_incomplete = _row(data, at, old)
    return Change(oid, "U", old, new, is_incomplete)


def _row(data: bytes, at: int, before: Values | None) -> tuple[Values, int, bool]:
    """Return the values of a row, where it ends, and whether a value is unknown."""
    count = _COUNT.unpack_from(data, at)[0]
    at += 2
    values: list[bytes | None] = []
    is_incomplete = False
    for number in range(count):
        kind = data[at]
        at += 1
        if kind == 116:  # t, a text
            size = _LENGTH.unpack_from(data, at)[0]
            at += 4
            values.append(data[at : at + size])
            at += size
        elif kind == 117 and before is not None:  # u, unchanged
            values.append(before[number])
        else:  # n, NULL
            values.append(None)
            is_incomplete = is_incomplete or kind == 117
    return tuple(values), at, is_incomplete


def _relation(data: bytes) -> Relation:
    oid = _RELATION.unpack_from(data, 1)[0]
    at = data.index(0, data.index(0, 5) + 1) + 2
    count = _COUNT.unpack_from(data, at)[0]
    at += 2
    columns = []
    for _ in range(count):
        end = data.index(0, at + 1)
        name = data[at + 1 : end].decode("utf-8", "surrogateescape")
        type_oid, _ = _COLUMN.unpack_from(data, end + 1)
        columns.append((name, type_oid))
        at = end + 9
    return Relation(oid, tuple(columns))
