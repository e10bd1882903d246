"""Follow the changes of a view: `subscribe`."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from psycopg import Connection

from orchestrator import catalog
from orchestrator.api.connecting import open_database
from orchestrator.api.statements import Statements
from orchestrator.catalog.search_path import pin
from orchestrator.frontend.statements import parse_name
from orchestrator.runtime import feeds
from orchestrator.runtime.feeds import Caught, Change


class Subscriptions(Statements):
    """Reads the feeds of views."""

    def subscribe(
        self,
        view: str,
        since: int | None = None,
        *,
        snapshot: bool = False,
        consumer: str | None = None,
        live: bool = True,
        stop: threading.Event | None = None,
    ) -> Iterator[Change]:
        """Yield each change of a view with feed = on once, in order, and wait for more until `stop` is set.

        Begin after the refresh `since`, or with the rows of the view (`snapshot`), or where the registered
        `consumer` is, or else with the next change. Without `live`, end with the changes that there are. Use a
        separate connection, and reopen it when it is lost. A consumer advances when the caller asks for the change
        that follows the last one.
        """
        for item in self.follow(
            view, since, snapshot=snapshot, consumer=consumer, live=live, stop=stop
        ):
            if isinstance(item, Change):
                yield item

    def follow(
        self,
        view: str,
        since: int | None = None,
        *,
        snapshot: bool = False,
        consumer: str | None = None,
        live: bool = True,
        stop: threading.Event | None = None,
    ) -> Iterator[Change | Caught]:
        """Yield what `subscribe` yields, and a `Caught` with the position whenever there are no more changes."""
        with self._ours(f"Reading the feed of {view}", writes=False):
            info = catalog.view_named(self.connection, parse_name(view).identifier)
        dsn = self._dsn()

        def connect() -> Connection[object]:
            connection = open_database(dsn)
            pin(connection)
            return connection

        return feeds.read(
            connect,
            info.relation,
            since,
            snapshot=snapshot,
            consumer=consumer,
            live=live,
            stop=stop,
        )
