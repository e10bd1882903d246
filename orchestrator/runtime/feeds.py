"""Read the change feed of a view: each change once and in order, across lost connections.

A position is the number of a refresh. A reader knows the last refresh that it has read to the end, and how far it has
come in the next one. After a lost connection it reads that refresh again, and leaves out what it has already seen: the
order of the changes of a refresh never varies.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

import psycopg
from psycopg import Connection, ServerCursor

from orchestrator.errors import ServerError
from orchestrator.runtime.errors import explain

Connect: TypeAlias = Callable[[], "Connection[Any]"]
Kind: TypeAlias = Literal["snapshot", "insert", "update", "delete", "restart"]

POLL = 0.1
"""Seconds between two looks for changes that nobody announces, because writers keep the view up to date."""

LONGEST_PAUSE = 10.0
"""The maximum seconds between two attempts to connect again."""

ROWS = 1000
"""How many changes to fetch at a time."""

CHANNEL = "idivm_feed"
"""The channel on which refreshes announce changes."""


@dataclass(frozen=True)
class Change:
    """A change of a row of a view.

    After `restart`, the rows that follow are the whole content: the view has other columns, which `old` and `new` list,
    or the connection was lost within a snapshot.
    """

    refresh: int
    """The number of the refresh: the position of a reader who has read all its changes."""
    seq: int
    kind: Kind
    at: datetime
    old: Any
    new: Any


@dataclass(frozen=True)
class Caught:
    """All changes up to a position have been read."""

    position: int


def read(
    connect: Connect,
    view: str,
    since: int | None,
    *,
    snapshot: bool = False,
    consumer: str | None = None,
    live: bool = True,
    stop: threading.Event | None = None,
) -> Iterator[Change | Caught]:
    """Yield the changes of a view after a position, and a `Caught` whenever there are no more.

    Begin with the rows of the view if a `snapshot` is asked for. Without a position, begin where the consumer is, or
    with the next change. Reconnect until `stop` is set. Unless `live`, end after the first `Caught`.
    """
    reader = _Reader(connect, view, since, snapshot, consumer, stop or threading.Event())
    try:
        yield from reader.run(live)
    finally:
        reader.close()


class _Reader:
    """The position of a reader, and the connection over which it reads."""

    def __init__(
        self,
        connect: Connect,
        view: str,
        since: int | None,
        snapshot: bool,
        consumer: str | None,
        stop: threading.Event,
    ) -> None:
        self.connect, self.view, self.consumer, self.stop = connect, view, consumer, stop
        self.position = since
        self.wants_snapshot = snapshot
        self.has_begun = False
        """Whether rows of the snapshot were yielded."""
        self.seen = (0, 0)
        """The refresh and the number of the last change that was yielded."""
        self.advanced: int | None = None
        self.feed: int | None = None
        self.connection: Connection[Any] | None = None
        self.failures = 0

    def close(self) -> None:
        if self.connection is not None:
            with suppress(psycopg.Error):
                self.connection.close()
        self.connection = None

    def run(self, live: bool) -> Iterator[Change | Caught]:
        while not self.stop.is_set():
            try:
                connection = self._connected()
                yield from self._once(connection)
                self.failures = 0
                if not live:
                    return
                self._wait(connection)
            except psycopg.errors.SerializationFailure:
                # The content was replaced after the snapshot was taken.
                continue
            except (psycopg.Error, ServerError) as error:
                if (
                    isinstance(error, psycopg.Error)
                    and self.connection is not None
                    and not self.connection.closed
                ):
                    raise explain(error, f"Reading the feed of {self.view}") from error
                self.close()
                self.failures += 1
                self.stop.wait(min(LONGEST_PAUSE, 0.05 * 2.0 ** min(self.failures, 20)))

    def _connected(self) -> Connection[Any]:
        if self.connection is None:
            self.connection = self.connect()
            self.connection.autocommit = True
            self.connection.execute(f"LISTEN {CHANNEL}")
            if self.consumer is not None and self.position is None:
                row = self.connection.execute(
                    "SELECT idivm.advance(%s, %s::regclass)", [self.consumer, self.view]
                ).fetchone()
                assert row is not None
                self.position = row[0] if not self.wants_snapshot else None
        return self.connection

    def _once(self, connection: Connection[Any]) -> Iterator[Change | Caught]:
        """Yield the changes that there are now.

        The server keeps them for the cursor, so that no transaction stays open while the caller is at work.
        """
        cursor = connection.cursor(name="idivm_feed", withhold=True)
        with connection.transaction():
            # The position and the rows are of one snapshot.
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            row = connection.execute(
                "SELECT f.position, f.feed FROM idivm.feed_of(%s::regclass) AS f", [self.view]
            ).fetchone()
            assert row is not None
            head, self.feed = row
            if self.position is None and not self.wants_snapshot:
                self.position = head
            pending = self.wants_snapshot or self.position != head
            if pending:
                cursor.execute(
                    "SELECT * FROM idivm.changes(%s::regclass, %s, snapshot => %s)",
                    [
                        self.view,
                        None if self.wants_snapshot else self.position,
                        self.wants_snapshot,
                    ],
                )
        if pending:
            yield from self._fetch(cursor)
        self.wants_snapshot = False
        self.position = head
        if self.consumer is not None and self.advanced != head:
            # Only now has the caller had all changes up to here.
            connection.execute(
                "SELECT idivm.advance(%s, %s::regclass, %s)", [self.consumer, self.view, head]
            )
            self.advanced = head
        yield Caught(head)

    def _fetch(self, cursor: ServerCursor[Any]) -> Iterator[Change]:
        with cursor:
            cursor.itersize = ROWS
            for row in cursor:
                change = Change(*row)
                if change.kind == "snapshot":
                    if change.seq == 1 and self.has_begun:
                        # The connection was lost within the snapshot, which begins again.
                        yield Change(change.refresh, 0, "restart", change.at, None, None)
                    self.has_begun = True
                    yield change
                elif (change.refresh, change.seq) > self.seen:
                    self.seen = change.refresh, change.seq
                    yield change

    def _wait(self, connection: Connection[Any]) -> None:
        """Wait until a refresh announces changes of this feed, or for a moment.

        The announcement of any change of a feed is enough: all changes that are committed are read then.
        """
        with closing(connection.notifies(timeout=POLL)) as announcements:
            for announcement in announcements:
                if announcement.payload.partition(" ")[0] == str(self.feed):
                    return
