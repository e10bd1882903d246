"""Decode the messages of the plugin `pgoutput`, version 1 of its protocol.

A transaction is a begin, changes, and a commit. A `Relation` precedes the first change of each table and gives its
columns as they were then. Values are the texts of PostgreSQL's output functions. The functions are short because a busy
server calls them for each change.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple, TypeAlias

Values: TypeAlias = "list[bytes | None]"
"""The values of a row; None is NULL."""

BEGIN, INSERT, UPDATE, DELETE, RELATION, TRUNCATE = b"BIUDRT"
"""The first bytes of messages."""

_BEGIN = Struct(">QqI").unpack_from
_COUNT = Struct(">H").unpack_from
_NUMBER = Struct(">I").unpack_from
_COLUMN = Struct(">Ii").unpack_from


class Relation(NamedTuple):
    """The columns of a table, each with the OID of its type."""

    oid: int
    columns: tuple[tuple[str, int], ...]


def begin(data: bytes) -> tuple[int, int]:
    r"""Return where the commit record of a transaction begins, and the lower 32 bits of its number.

    >>> begin(b"B" + bytes(7) + b"\x05" + bytes(8) + b"\x00\x00\x00\x07")
    (5, 7)
    """
    position, _, xid = _BEGIN(data, 1)
    return position, xid


def table(data: bytes) -> int:
    r"""Return the OID of the table whose row a message inserts, updates or deletes.

    >>> table(b"I\x00\x00\x00\x09N")
    9
    """
    oid: int = _NUMBER(data, 1)[0]
    return oid


def change(data: bytes) -> tuple[Values | None, Values | None] | None:
    r"""Return the old and the new row of a change, or None if a value in them is unknown.

    The old row is in the message only with a replica identity of all columns.

    >>> change(b"I\x00\x00\x00\x09N\x00\x02t\x00\x00\x00\x02hin")
    (None, [b'hi', None])
    """
    if data[0] == INSERT:
        new, _ = _row(data, 6, None)
        return None if new is None else (None, new)
    if data[5] != 79:  # O, a whole old row
        return None
    old, at = _row(data, 6, None)
    if old is None:
        return None
    if data[0] == DELETE:
        return old, None
    # A large value that an update left as it was is only in the old row.
    return old, _row(data, at + 1, old)[0]


def truncated(data: bytes) -> tuple[int, ...]:
    """Return the OIDs of the tables that a message truncates."""
    return tuple(_NUMBER(data, 6 + 4 * number)[0] for number in range(_NUMBER(data, 1)[0]))


def _row(data: bytes, at: int, before: Values | None) -> tuple[Values | None, int]:
    """Return the values of a row, or None if one is unknown, and where the row ends."""
    values: Values = []
    add = values.append
    count = _COUNT(data, at)[0]
    at += 2
    for _ in range(count):
        kind = data[at]
        if kind == 116:  # t, a text
            start = at + 5
            at = start + _NUMBER(data, at + 1)[0]
            add(data[start:at])
            continue
        if kind == 117 and before is None:  # u, unchanged
            return None, at
        add(before[len(values)] if kind == 117 and before else None)
        at += 1
    return values, at


def relation(data: bytes) -> Relation:
    """Return the message of the columns of a table."""
    oid = _NUMBER(data, 1)[0]
    at = data.index(0, data.index(0, 5) + 1) + 2
    count = _COUNT(data, at)[0]
    at += 2
    columns = []
    for _ in range(count):
        end = data.index(0, at + 1)
        name = data[at + 1 : end].decode("utf-8", "surrogateescape")
        type_oid, _ = _COLUMN(data, end + 1)
        columns.append((name, type_oid))
        at = end + 9
    return Relation(oid, tuple(columns))
