"""Sessions that a test takes step by step, and sees waiting for each other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import Connection, IsolationLevel, sql

TRIES = 20_000
"""So often is a condition looked at, a millisecond apart, before it is taken for never."""


def until(condition: Callable[[], object]) -> None:
    """Waits until a condition holds."""
    tick = threading.Event()
    for _ in range(TRIES):
        if condition():
            return
        tick.wait(0.001)
    raise AssertionError("it never came to pass")


class Session:
    """A connection with a transaction of its own, whose statements may have to wait."""

    def __init__(self, connection: Connection[Any], level: IsolationLevel | None = None) -> None:
        self.connection = connection
        self.connection.autocommit = False
        self.connection.isolation_level = level
        self.thread: threading.Thread | None = None
        self.error: psycopg.Error | None = None

    def __call__(self, statement: str) -> list[tuple[Any, ...]]:
        """Runs a statement that does not have to wait."""
        cursor = self.connection.execute(sql.SQL(statement))
        return cursor.fetchall() if cursor.description else []

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def starts(self, statement: str, watcher: Connection[Any]) -> None:
        """Runs a statement until it waits for a lock."""
        self._begin(lambda: self(statement), watcher)

    def starts_commit(self, watcher: Connection[Any]) -> None:
        """Commits until that waits for a lock."""
        self._begin(self.commit, watcher)

    def _begin(self, action: Callable[[], object], watcher: Connection[Any]) -> None:
        def run() -> None:
            try:
                action()
            except psycopg.Error as error:
                self.error = error

        self.error = None
        self.thread = threading.Thread(target=run)
        self.thread.start()
        pid = self.connection.info.backend_pid
        waits = "SELECT cardinality(pg_blocking_pids(%s)) > 0 OR EXISTS (SELECT FROM pg_locks WHERE pid = %s AND NOT granted)"

        def waiting() -> bool:
            assert self.thread is not None and self.thread.is_alive(), f"did not wait: {self.error}"
            return watcher.execute(waits, [pid, pid]).fetchone() == (True,)

        until(waiting)

    def ends(self) -> psycopg.Error | None:
        """What the statement that waited has come to: nothing, or its error."""
        assert self.thread is not None
        self.thread.join(60)
        assert not self.thread.is_alive(), "it still waits"
        return self.error


def differences(connection: Connection[Any], view: str) -> list[tuple[Any, ...]]:
    """Rows that a view shows and its definition does not, and the other way round, here and now."""
    row = connection.execute(
        "SELECT definition::text FROM idivm.views WHERE relation = %s::regclass", [view]
    ).fetchone()
    assert row is not None
    relation, wanted = sql.SQL(view), sql.SQL(row[0])
    return connection.execute(
        sql.SQL(
            "(SELECT 'surplus', v::text FROM {0} v EXCEPT ALL SELECT 'surplus', d::text FROM {1} d)"
            " UNION ALL "
            "(SELECT 'missing', d::text FROM {1} d EXCEPT ALL SELECT 'missing', v::text FROM {0} v)"
        ).format(relation, wanted)
    ).fetchall()
