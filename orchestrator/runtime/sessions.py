"""Open idivm's own database sessions, and borrow the sessions of users' connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection, Transaction
from psycopg.errors import QueryCanceled
from psycopg.pq import TransactionStatus

from orchestrator.catalog.search_path import pin
from orchestrator.errors import CancelledError, ServerError, UsageError
from orchestrator.session_locks import give_back


class IdivmSession(Connection[Any]):
    """A connection on which a transaction block leaves no transaction open, whatever ends it."""

    decode_in: Callable[[], Connection[Any] | None] | None = None
    """Gives the session that decodes the WAL for this one, if there is room: decoding empties a session's caches."""
    is_cancelled = False
    """Whether the call that uses the session was cancelled: work that goes on after errors ends then."""

    @contextmanager
    def transaction(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> Iterator[Transaction]:
        """Start a transaction, or a savepoint inside a transaction."""
        is_outermost = _is_idle(self)
        try:
            with super().transaction(savepoint_name, force_rollback) as block:
                yield block
        finally:
            # A cancel that meets COMMIT or ROLLBACK leaves a failed transaction, in which nothing can be given back.
            while is_outermost and not (self.closed or _is_idle(self)):
                with suppress(QueryCanceled):
                    self.execute(b"ROLLBACK")


def _is_idle(connection: Connection[Any]) -> bool:
    return connection.info.transaction_status == TransactionStatus.IDLE


def cancel(session: Connection[Any], *, safely: bool = False) -> None:
    """Cancel the statement that runs in a session, and the work that would follow."""
    if isinstance(session, IdivmSession):
        session.is_cancelled = True
    if safely:
        session.cancel_safe()
    else:
        session.cancel()


def end_if_cancelled(session: Connection[Any], reason: Exception | None = None) -> None:
    """Raise an error if the call that uses a session was cancelled, also between two statements."""
    if isinstance(session, IdivmSession) and session.is_cancelled:
        raise CancelledError("The work was cancelled.") from reason


class OwnSession(IdivmSession):
    """A connection that idivm opened."""


def open_session(
    dsn: str, *, autocommit: bool = True, application_name: str = "idivm"
) -> Connection[Any]:
    """Connect in UTF-8, whatever the encoding of the database and of the user's clients.

    The server translates. A database in SQL_ASCII passes bytes through. They are read as UTF-8, because
    psycopg returns no text otherwise.
    """
    return OwnSession.connect(
        dsn, autocommit=autocommit, application_name=application_name, client_encoding="UTF8"
    )


def open_pinned(dsn: str) -> Connection[Any]:
    """Connect for queries of idivm alone: they do not depend on the search path of the role."""
    connection = open_session(dsn)
    pin(connection)
    return connection


def end_early(running: Iterable[Future[Any]], sessions: Iterable[Connection[Any]]) -> None:
    """Cancel what threads run in sessions, until they have ended. A cancel between two statements has no effect."""
    left = set(running)
    while left := wait(left, timeout=0).not_done:
        for session in sessions:
            with suppress(psycopg.Error):
                cancel(session)
        wait(left, timeout=1)


class BorrowedSession(IdivmSession):
    """A connection of idivm over the session of a user's connection.

    It has its own adapters, row factory, cursors and autocommit mode, and never ends a transaction that it
    did not begin. `borrowed` must surround its use.
    """

    def __init__(self, lender: Connection[Any] | AsyncConnection[Any]) -> None:
        """Use the session of `lender`, which must not be closed before this connection."""
        pgconn = lender.pgconn
        handlers = pgconn.notice_handler, pgconn.notify_handler
        super().__init__(pgconn)
        # The constructor replaces the handlers of the lender.
        self._own_handler = pgconn.notice_handler
        pgconn.notice_handler, pgconn.notify_handler = handlers
        # Names of prepared statements belong to the session, and the lender numbers its own.
        self.prepare_threshold = None
        self.lender = lender
        self._turn = threading.RLock()
        self._depth = 0

    def __del__(self, *_: Any) -> None:
        """Leave the session to its lender without a warning."""

    def close(self) -> None:
        """Leave the session to its lender."""

    @contextmanager
    def borrowed(self) -> Iterator[None]:
        """Use the session in a block, and restore its state afterwards."""
        with self._turn, ExitStack() as stack:
            self._depth += 1
            stack.callback(self._leave)
            if self._depth == 1:
                self._enter(stack)
            yield

    def _leave(self) -> None:
        self._depth -= 1

    def _enter(self, stack: ExitStack) -> None:
        pgconn = self.pgconn
        if self.closed:
            raise ServerError("The connection is closed. Open another one.")
        if isinstance(self.lender, Connection):
            stack.enter_context(self.lender.lock)
        theirs = pgconn.notice_handler
        pgconn.notice_handler = self._own_handler
        stack.callback(setattr, pgconn, "notice_handler", theirs)
        if _is_idle(self):
            self.autocommit = True
        encoding = self.info.parameter_status("client_encoding")
        if encoding != "UTF8" and self.info.transaction_status != TransactionStatus.INERROR:
            stack.callback(self._encode, (encoding or "UTF8").encode())
            self._encode(b"UTF8")

    def _encode(self, encoding: bytes) -> None:
        # A failed transaction accepts no settings, and its end restores the earlier ones.
        if self.info.transaction_status in (TransactionStatus.IDLE, TransactionStatus.INTRANS):
            give_back(self, b"SET client_encoding = '" + encoding + b"'")


def borrow(lender: Any) -> BorrowedSession:
    """Borrow the session of a connection of psycopg, SQLAlchemy or Django."""
    if hasattr(lender, "ensure_connection"):  # Django's wrapper
        lender.ensure_connection()
    # SQLAlchemy's Connection has a pooled connection, which has the connection of the driver.
    for attribute in ("connection", "driver_connection"):
        lender = getattr(lender, attribute, lender)
    if not isinstance(lender, Connection | AsyncConnection):
        raise UsageError(
            f"idivm cannot use a {type(lender).__module__}.{type(lender).__qualname__}: it needs a connection of"
            " psycopg 3. Pass the address of the database or a SQLAlchemy engine to idivm.connect instead."
        )
    return BorrowedSession(lender)


@contextmanager
def borrowed(connection: Connection[Any]) -> Iterator[None]:
    """Use a connection in a block. Restore the state of a borrowed session afterwards."""
    if isinstance(connection, BorrowedSession):
        with connection.borrowed():
            yield
    else:
        yield
