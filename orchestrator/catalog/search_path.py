"""The search path of a connection: PostgreSQL's schema for idivm's statements, the user's path for theirs.

Anybody who may create objects in a schema of the search path can add an operator or function there that fits
better than PostgreSQL's own, such as `=(oid[], oid[])`. It would run with the rights of whoever runs idivm.
So the path is pinned while idivm works, and restored for the user's own text. All statements here are safe
under any path: utility commands, and calls with schemas.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

from psycopg import Connection
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from orchestrator.session_locks import give_back
from orchestrator.sqltext import SEARCH_PATH

PIN: Final = b"SET search_path = " + SEARCH_PATH.encode()
"""The statement that pins the path of a connection permanently."""

_SET = "SELECT pg_catalog.set_config('search_path', %s, false)"

_users: WeakKeyDictionary[Connection[Any], str] = WeakKeyDictionary()
"""The users' own paths of pinned connections."""


@contextmanager
def pinned(connection: Connection[Any]) -> Iterator[None]:
    """Pin the search path for a block, and restore the user's path afterwards."""
    if connection in _users:
        yield
        return
    path = _current_path(connection)
    try:
        _pin(connection, path)
        yield
    finally:
        _users.pop(connection, None)
        _set(connection, path)


def pin(connection: Connection[Any]) -> None:
    """Pin the search path of a connection that idivm opened, and remember the user's path."""
    _pin(connection, _current_path(connection))


def _current_path(connection: Connection[Any]) -> str:
    with connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(b"SHOW search_path").fetchone()
    assert row is not None
    return str(row[0])


def _pin(connection: Connection[Any], path: str) -> None:
    connection.execute(PIN)
    _users[connection] = path


@contextmanager
def users_path(connection: Connection[Any]) -> Iterator[None]:
    """Restore the user's path for a block: for the user's own text, and for statements that fire the user's
    triggers.
    """
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
    """Replace the user's path for a block on a pinned connection."""
    before, _users[connection] = _users[connection], path
    try:
        yield
    finally:
        _users[connection] = before


def leave_path_to_triggers(connection: Connection[Any]) -> None:
    """Restore the user's path until the commit, which fires the deferred triggers of the user's tables."""
    if (path := _users.get(connection)) is not None:
        connection.execute("SELECT pg_catalog.set_config('search_path', %s, true)", [path])


def path_of(connection: Connection[Any]) -> str | None:
    """Return the user's search path if the connection is pinned."""
    return _users.get(connection)


def _set(connection: Connection[Any], path: str) -> None:
    # A failed transaction accepts no settings, and its end restores the earlier ones.
    if connection.info.transaction_status != TransactionStatus.INERROR:
        give_back(connection, _SET, [path])
