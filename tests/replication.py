"""Publishers and subscribers: two databases of one server, and waiting until one has what the other wrote."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from conftest import add_module
from harness import SURE, TestServer
from psycopg import Connection, sql
from stepping import until

LOGICAL = (
    f"{SURE} -c wal_level=logical -c max_wal_senders=10 -c max_replication_slots=10 "
    "-c max_worker_processes=20 -c max_logical_replication_workers=10 "
    "-c wal_retrieve_retry_interval=20ms -c logical_decoding_work_mem=64kB"
)


class Pair:
    """A publisher without idivm, and the connection string of a database that subscribes to it."""

    def __init__(self, server: TestServer, publisher: str, subscriber: str) -> None:
        self.server = server
        self.dsn = subscriber
        self.publisher: Connection[Any] = psycopg.connect(publisher, autocommit=True)
        self.subscriber: Connection[Any] = psycopg.connect(subscriber, autocommit=True)
        self.slot = f"slot_{self.subscriber.info.dbname}"
        self.subscribed = False

    def use_module(self, folder: Path) -> None:
        """Lets the subscriber capture in C; settings of a database hold from the next connection on."""
        add_module(self.dsn, folder)
        self.subscriber.close()
        self.subscriber = psycopg.connect(self.dsn, autocommit=True)

    def both(self, statements: str) -> None:
        """Runs statements in both databases."""
        self.publisher.execute(statements)
        self.subscriber.execute(statements)

    def subscribe(self, *options: str, publication: str = "FOR ALL TABLES") -> None:
        """Creates the publication and the subscription, and waits for the first copy of the tables."""
        two_phase = "two_phase = on" in options
        self.publisher.execute(
            sql.SQL("CREATE PUBLICATION p {}").format(sql.SQL(publication))  # type: ignore[arg-type]
        )
        self.publisher.execute(
            "SELECT pg_create_logical_replication_slot(%s, 'pgoutput', false, %s)",
            [self.slot, two_phase],
        )
        given = ", ".join(
            [
                "create_slot = off",
                f"slot_name = {self.slot}",
                "synchronous_commit = local",
                *options,
            ]
        )
        self.subscriber.execute(
            sql.SQL("CREATE SUBSCRIPTION {} CONNECTION {} PUBLICATION p WITH ({})").format(
                sql.Identifier(self.slot),
                sql.Literal(self.server.conninfo(self.publisher.info.dbname)),
                sql.SQL(given),  # type: ignore[arg-type]
            )
        )
        self.subscribed = True
        until(
            lambda: (
                self.subscriber.execute(
                    "SELECT bool_and(srsubstate IN ('r', 's')) FROM pg_subscription_rel"
                ).fetchone()
                == (True,)
            )
        )
        self.catch_up()

    def write(self, statements: str) -> None:
        """Runs statements on the publisher, and waits until the subscriber has what they changed."""
        self.publisher.execute(statements)
        self.catch_up()

    def catch_up(self) -> None:
        """Waits until everything committed on the publisher is committed on the subscriber."""
        position = self.publisher.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
        assert position is not None
        until(
            lambda: (
                self.publisher.execute(
                    "SELECT bool_and(replay_lsn >= %s::pg_lsn) FROM pg_stat_replication"
                    " WHERE application_name = %s",
                    [position[0], self.slot],
                ).fetchone()
                == (True,)
            )
        )

    def close(self) -> None:
        """Drops the subscription, whose slot would keep the databases."""
        if self.subscribed:
            self.subscriber.execute(
                sql.SQL("DROP SUBSCRIPTION {}").format(sql.Identifier(self.slot))
            )
        self.subscriber.close()
        self.publisher.close()


@contextmanager
def pair(server: TestServer) -> Iterator[Pair]:
    """A publisher and a subscriber with idivm's catalog."""
    with server.database(migrated=False) as publisher, server.database(migrated=True) as subscriber:
        databases = Pair(server, publisher, subscriber)
        try:
            yield databases
        finally:
            databases.close()
