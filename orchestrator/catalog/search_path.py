"""Which schemas a connection searches: our own statements search PostgreSQL's, the user's search theirs.

Whoever may create in a schema of the search path can add an operator or a function there that fits
better than PostgreSQL's own, such as `=(oid[], oid[])`, and have it run with the rights of whoever
runs idivm. So the path is pinned while idivm works, and given back for the user's own text. All
statements here are safe under any path: utility commands, and calls with schemas.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

from psycopg import Connection
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from orchestrator.deltascript.emit import SEARCH_PATH

PIN: Final = b"SET search_path = " + SEARCH_PATH.encode()
"""The statement that pins the path of a connection for good."""

_SET = "SELECT pg_catalog.set_config('search_path', %s, false)"

_users: WeakKeyDictionary[Connection[Any], str] = WeakKeyDictionary()
"""The paths of users whose connections are pinned."""


@contextmanager
def pinned(connection: Connection[Any]) -> Iterator[None]:
    """Pins the search path for a block, and gives the user's back afterwards."""
    if connection in _users:
        yield
        return
    pin(connection)
    try:
        yield
    finally:
        _set(connection, _users.pop(connection))


def pin(connection: Connection[Any]) -> None:
    """Pins the search path of a connection of our own, and remembers what names mean on it."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(b"SHOW search_path; " + PIN).fetchone()
    assert row is not None
    _users[connection] = row[0]


@contextmanager
def users_path(connection: Connection[Any]) -> Iterator[None]:
    """Gives the user's path back for a block: for their own text, and for what fires their triggers."""
    path = _users.get(connection)
    if path is None:
        yield
        return
    _set(connection, path)
    try:
        yield
    finally:
        _set(connection, SEARCH_PATH)


@contextmanager
def taking_path(connection: Connection[Any], path: str) -> Iterator[None]:
    """Take another path for the user's within a block of a pinned connection."""
    before, _users[connection] = _users[connection], path
    try:
        yield
    finally:
        _users[connection] = before


def leave_path_to_triggers(connection: Connection[Any]) -> None:
    """Gives the user's path back until the commit, which fires the deferred triggers of their tables."""
    if (path := _users.get(connection)) is not None:
        connection.execute("SELECT pg_catalog.set_config('search_path', %s, true)", [path])


def path_of(connection: Connection[Any]) -> str | None:
    """The user's search path if the connection is pinned."""
    return _users.get(connection)


def _set(connection: Connection[Any], path: str) -> None:
    # In a failed transaction nothing can be set, and its end brings back what was set before it.
    if not connection.closed and connection.info.transaction_status != TransactionStatus.INERROR:
        connection.execute(_SET, [path])
