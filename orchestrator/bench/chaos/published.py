"""The replicated part of a chaos run: a publisher, and views in the database of its subscriber."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.sql import SQL, Literal

from orchestrator.bench.chaos.shared import Shared
from orchestrator.runtime.sessions import open_session

PUBLISHER = "chaos_published"
"""The database of the publisher."""

SETTINGS = {
    "wal_level": "logical",
    "max_prepared_transactions": "40",
    "wal_retrieve_retry_interval": "200ms",
    "max_worker_processes": "20",
}

TABLES = """
    CREATE TABLE items (id int PRIMARY KEY, kind text, price numeric);
    CREATE TABLE places (item int, place text);
    ALTER TABLE places REPLICA IDENTITY FULL
"""

VIEWS: dict[str, tuple[str, Any]] = {
    "prices": ("SELECT kind, sum(price) AS s, count(*) AS n FROM items GROUP BY kind", "deferred"),
    "found": ("SELECT i.id, kind, place FROM items i JOIN places ON item = i.id", "on_commit"),
    "kinds": ("SELECT kind, max(price) AS dearest FROM items GROUP BY kind", "eager"),
}

PATIENCE = 120.0
"""Seconds without a change after which a subscriber counts as stuck.

If another role than the subscription's owns the tables, the subscriber maintains synchronous views
for each row. Therefore the publisher writes little.
"""


LAG = 16 << 20
"""Bytes of WAL by which a subscriber may lag before the publisher waits for it."""


def publish(shared: Shared, subscriber: str) -> None:
    """Create the publisher's tables and the subscription, with two-phase commit."""
    with psycopg.connect(shared.dsn(PUBLISHER), autocommit=True) as connection:
        connection.execute(SQL(TABLES))
    with psycopg.connect(shared.admin(PUBLISHER), autocommit=True) as connection:
        connection.execute("CREATE PUBLICATION chaos FOR ALL TABLES")
        connection.execute(
            "SELECT pg_create_logical_replication_slot('chaos', 'pgoutput', false, true)"
        )
    with psycopg.connect(shared.admin(subscriber), autocommit=True) as connection:
        connection.execute(
            SQL(
                "CREATE SUBSCRIPTION chaos CONNECTION {} PUBLICATION chaos"
                " WITH (create_slot = off, two_phase = on, streaming = on, synchronous_commit = local)"
            ).format(Literal(shared.admin(PUBLISHER)))
        )


def write(shared: Shared) -> None:
    """Write the publisher's tables until the run ends."""
    chance = random.Random(shared.seed * 500)

    def work() -> None:
        with open_session(shared.dsn(PUBLISHER)) as connection:
            while not shared.stop.wait(0.2):
                if _is_followed(connection):
                    _transaction(connection, chance)
                    shared.count("transactions of the publisher")

    shared.repeat(work, "publisher")


def _is_followed(connection: Connection[Any]) -> bool:
    """Return whether the subscriber lags by less than LAG, so that it can catch up in the end."""
    row = connection.execute(
        "SELECT pg_current_wal_lsn() - confirmed_flush_lsn < %s FROM pg_replication_slots WHERE slot_name = 'chaos'",
        [LAG],
    ).fetchone()
    return row == (True,)


def _transaction(connection: Connection[Any], chance: random.Random) -> None:
    prepared = chance.random() < 0.2
    connection.execute("BEGIN")
    try:
        for _ in range(chance.choice((1, 1, 2, 3))):
            _change(connection, chance)
        if not prepared:
            connection.execute("COMMIT")
            return
        name = Literal(f"chaos published {chance.getrandbits(48)}")
        connection.execute(SQL("PREPARE TRANSACTION {}").format(name))
    except psycopg.Error:
        with suppress(psycopg.Error):
            connection.execute("ROLLBACK")
        raise
    end = SQL(chance.choice(("COMMIT", "COMMIT", "ROLLBACK")))
    connection.execute(SQL("{} PREPARED {}").format(end, name))


def _change(connection: Connection[Any], chance: random.Random) -> None:
    kind, number = chance.random(), chance.randrange(100)
    if kind < 0.4:
        connection.execute(
            "INSERT INTO items SELECT i, 'ké' || i %% 7, i FROM generate_series(%s::int, %s) AS i"
            " ON CONFLICT (id) DO UPDATE SET price = items.price + 1",
            [number, number + chance.choice((0, 0, 5, 40))],
        )
    elif kind < 0.6:
        connection.execute(
            "INSERT INTO places SELECT i, 'p' || i %% 3 FROM generate_series(%s::int, %s) AS i",
            [number, number + 3],
        )
    elif kind < 0.8:
        connection.execute(
            "UPDATE items SET kind = 'k' || %s, price = price + 1 WHERE id %% 20 = %s",
            [chance.randrange(7), chance.randrange(20)],
        )
    elif kind < 0.97:
        connection.execute("DELETE FROM items WHERE id %% 20 = %s", [chance.randrange(20)])
        connection.execute("DELETE FROM places WHERE item %% 10 = %s", [chance.randrange(10)])
    else:
        connection.execute(SQL(chance.choice(("TRUNCATE places", "TRUNCATE items"))))


def pause_and_go_on(connection: Connection[Any]) -> None:
    """Disable the subscription for a moment and refresh it."""
    connection.execute("ALTER SUBSCRIPTION chaos DISABLE")
    connection.execute("ALTER SUBSCRIPTION chaos ENABLE")
    connection.execute("ALTER SUBSCRIPTION chaos REFRESH PUBLICATION WITH (copy_data = false)")


def caught_up(shared: Shared, subscriber: str) -> bool:
    """Wait until the subscriber has all rows of the publisher; return False if it gets stuck."""
    last: object = None
    with psycopg.connect(shared.admin(subscriber), autocommit=True) as connection:
        connection.execute("ALTER SUBSCRIPTION chaos ENABLE")
    late = time.monotonic() + PATIENCE
    while time.monotonic() < late:
        rows = _rows(shared.dsn(subscriber))
        if rows == _rows(shared.dsn(PUBLISHER)):
            return True
        if rows != last:
            last, late = rows, time.monotonic() + PATIENCE
        time.sleep(0.5)
    return False


def _rows(dsn: str) -> tuple[list[Any], list[Any]]:
    with psycopg.connect(dsn, client_encoding="UTF8") as connection:
        return (
            connection.execute("SELECT id, kind, price FROM items ORDER BY id").fetchall(),
            connection.execute("SELECT item, place FROM places ORDER BY item, place").fetchall(),
        )
