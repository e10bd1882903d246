"""Take session-level locks, and give back what a session holds even when a cancel arrives.

A cancel reaches the statement that runs when it arrives. That may be a later one than the one it was meant for, even
the one that gives a lock back: the session would keep the lock, and all others would wait until it ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from psycopg import Connection
from psycopg.errors import QueryCanceled
from psycopg.pq import TransactionStatus
from psycopg.sql import SQL, Composed

if TYPE_CHECKING:
    from typing_extensions import LiteralString

TRIES = 20
"""So often is a statement tried. A statement_timeout may be shorter than any statement takes."""


def give_back(
    connection: Connection[Any],
    statement: bytes | LiteralString | Composed,
    params: Sequence[Any] = (),
) -> None:
    """Run a statement that gives back what the session holds, again after each cancel that it meets."""
    for left in reversed(range(TRIES)):
        if connection.closed:
            return
        try:
            connection.execute(statement, params)
            return
        except QueryCanceled:
            if not left or connection.info.transaction_status != TransactionStatus.IDLE:
                raise
        except KeyboardInterrupt:
            give_back(connection, statement, params)
            raise


@contextmanager
def session_lock(
    connection: Connection[Any],
    key: LiteralString,
    params: Sequence[Any] = (),
    *,
    wait: bool = True,
    patience: str | None = None,
) -> Iterator[bool]:
    """Hold a lock of this session for a block outside of transactions. `key` is the lock's two numbers in SQL.

    Yield whether it is held: without `wait`, another session may hold it. Wait at most `patience` if that is given.
    """
    take = "SELECT pg_advisory_lock({})" if wait else "SELECT pg_try_advisory_lock({})"
    # A cancel may arrive just after the server took the lock.
    release = _RELEASE_IF_HELD
    try:
        if patience is None:
            row = connection.execute(SQL(take).format(SQL(key)), params).fetchone()
        else:
            with connection.transaction():
                connection.execute("SELECT set_config('lock_timeout', %s, true)", [patience])
                row = connection.execute(SQL(take).format(SQL(key)), params).fetchone()
        is_held = wait or row == (True,)
        release = "SELECT pg_advisory_unlock({})" if is_held else ""
        yield is_held
    finally:
        if release:
            give_back(connection, SQL(release).format(SQL(key)), params)


_RELEASE_IF_HELD = """
    SELECT pg_advisory_unlock(k.class, k.number) FROM (SELECT {}) AS k (class, number)
    WHERE EXISTS (SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.pid = pg_backend_pid() AND l.granted
                  AND l.classid = k.class::oid AND l.objid = k.number::oid AND l.objsubid = 2)
"""
