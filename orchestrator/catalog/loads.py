"""Queries of bulk loads on idivm's catalog: the ledger, the staging tables and the rejected rows.

Each Spark task imports this module in its own process, so it imports as little as possible.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection
from psycopg.errors import LockNotAvailable
from psycopg.sql import SQL, Composed, Identifier, Literal

from orchestrator.session_locks import give_back

STAGING_SCHEMA = "idivm_load"
PLACE = "idivm: place"
"""The extra column of the staging table of a load with a quarantine: partition and position of the row."""

PLACE_BITS = 40
"""The bits of a place that hold the position; the higher bits hold the partition."""

STATE = "initial state"
DATA_SOURCE = "data source"
"""Take the place of the layout in loads that cannot be resumed: the first content of a view, and writes of a
program through the data source. A load without a layout cannot be resumed either.
"""

LOCK_CLASS = 1_768_187_767
"""The class of the advisory locks of running loads; an arbitrary number that others do not use."""

_SILENT = "1 day"
"""How long a write through the data source may be silent before it counts as dead. Only its tasks have
sessions here, and they may wait for other tasks.
"""


@dataclass(frozen=True)
class Progress:
    """The progress of the tasks of a load."""

    parts: int
    rows: int


@dataclass(frozen=True)
class BrokenOff:
    """A load that no session runs and that can be resumed."""

    id: int
    name: str
    started: str
    size: str


@dataclass(frozen=True)
class Rejected:
    """A rejected row, with its place in the file if the task knows it."""

    position: int
    column: str | None
    reason: str
    content: str
    file: str | None = None
    row: int | None = None
    line: int | None = None


def staging_table(load: int) -> Identifier:
    """Return the staging table of a load."""
    return Identifier(STAGING_SCHEMA, f"l{load}")


def finished(connection: Connection[Any], command: str, table: int) -> int | None:
    """Return a finished load of the same command into the same table, if there is one."""
    row = connection.execute(
        "SELECT max(id) FROM idivm.loads"
        " WHERE command = %s AND status = 'done' AND relation = %s::oid::regclass",
        [command, table],
    ).fetchone()
    return row[0] if row else None


def unfinished(connection: Connection[Any], command: str) -> tuple[int, str | None, bool] | None:
    """Return the unfinished load of the same command: its ID, its layout, and whether this session now holds
    its lock.
    """
    return connection.execute(
        "SELECT id, layout, pg_try_advisory_lock(%s, id) FROM idivm.loads"
        " WHERE command = %s AND status = 'loading'",
        [LOCK_CLASS, command],
    ).fetchone()


def insert(
    connection: Connection[Any],
    name: str,
    table: int | None,
    *,
    mode: str,
    command: str,
    sources: Sequence[Any],
    layout: str | None,
) -> int:
    """Record a load and lock it for this session. Raise a unique violation if it is already running."""
    row = connection.execute(
        "INSERT INTO idivm.loads (name, relation, mode, command, sources, layout)"
        " VALUES (%s, %s::oid::regclass, %s, %s, %s, %s) RETURNING id, pg_advisory_lock(%s, id)",
        [name, table, mode, command, json.dumps(list(sources)), layout, LOCK_CLASS],
    ).fetchone()
    assert row is not None
    return int(row[0])


def progress(connection: Connection[Any], load: int) -> Progress:
    """Return the partitions and rows in the staging table, including the rows of running copies."""
    row = connection.execute(
        "SELECT count(*), coalesce(sum(rows_read), 0)::bigint,"
        " (SELECT coalesce(sum(tuples_processed), 0)::bigint FROM pg_stat_progress_copy"
        "  WHERE relid = to_regclass(%s))"
        " FROM idivm.load_parts WHERE load = %s",
        [staging_table(load).as_string(connection), load],
    ).fetchone()
    assert row is not None
    return Progress(row[0], row[1] + row[2])


def staged_pages(connection: Connection[Any], load: int) -> int:
    """Return the number of pages of a staging table."""
    row = connection.execute(
        "SELECT pg_relation_size(to_regclass(%s)) / current_setting('block_size')::bigint",
        [staging_table(load).as_string(connection)],
    ).fetchone()
    assert row is not None
    return int(row[0] or 0)


def attend(connection: Connection[Any], load: int) -> None:
    """Mark a load as alive through the session of a task, if no other session locks the load."""
    connection.execute("SELECT pg_try_advisory_lock_shared(%s, %s)", [LOCK_CLASS, load])


def part_done(connection: Connection[Any], load: int, part: int) -> tuple[int, int] | None:
    """Return the rows read and rejected of a partition, if it is in the ledger."""
    return connection.execute(
        "SELECT rows_read, rows_rejected FROM idivm.load_parts WHERE load = %s AND part = %s",
        [load, part],
    ).fetchone()


def note_part(
    connection: Connection[Any],
    load: int,
    part: int,
    attempt: int,
    *,
    read: int,
    size: int,
    rejected: Sequence[Rejected],
) -> None:
    """Enter a partition into the ledger. Raise a unique violation if another attempt has entered it."""
    # An earlier attempt may have left rejected rows before a crash of the server.
    connection.execute(
        "DELETE FROM idivm.rejected_rows WHERE load = %s AND part = %s", [load, part]
    )
    keep_rejected(connection, load, part, rejected)
    connection.execute(
        "INSERT INTO idivm.load_parts (load, part, attempt, rows_read, rows_rejected, bytes)"
        " VALUES (%s, %s, %s, %s, %s, %s)",
        [load, part, attempt, read, len(rejected), size],
    )


def keep_rejected(
    connection: Connection[Any], load: int, part: int, rows: Iterable[Rejected]
) -> None:
    """Store rejected rows of a partition."""
    connection.cursor().executemany(
        "INSERT INTO idivm.rejected_rows (load, part, position, column_name, reason, content, file,"
        " row_number, line) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)"
        " ON CONFLICT (load, part, position) DO NOTHING",
        [
            (
                *(load, part, row.position, row.column, row.reason),
                *(row.content.replace("\0", "\\0"), row.file, row.row, row.line),
            )
            for row in rows
        ],
    )


def reject(
    connection: Connection[Any],
    load: int,
    rows: Composed,
    column: str | None,
    reason: Composed,
    composed: Composed,
) -> None:
    """Move rows of the staging table, given by ctid, to the rejected rows."""
    connection.execute(
        SQL(
            "WITH gone AS (DELETE FROM {} WHERE ctid = ANY (ARRAY({})) RETURNING *)"
            " INSERT INTO idivm.rejected_rows (load, part, position, column_name, reason, content)"
            " SELECT {load}, {place} >> {bits}, {place} & {low}, {}, {}, {} FROM gone"
        ).format(
            *(staging_table(load), rows, column, reason, composed),
            load=load,
            place=Identifier(PLACE),
            bits=PLACE_BITS,
            low=(1 << PLACE_BITS) - 1,
        )
    )


def rejected_rows(connection: Connection[Any], load: int, most: int) -> list[tuple[Any, ...]]:
    """Return the first rejected rows of a load: file, row, line, column, reason, content."""
    return connection.execute(
        "SELECT file, row_number, line, column_name, reason, content FROM idivm.rejected_rows"
        " WHERE load = %s ORDER BY file, row_number, part, position LIMIT %s",
        [load, most],
    ).fetchall()


def not_located(connection: Connection[Any], load: int, most: int) -> list[tuple[int, int]]:
    """Return part and position of rejected rows whose places in the files are not known yet."""
    return connection.execute(
        "SELECT part, position FROM idivm.rejected_rows WHERE load = %s AND file IS NULL"
        " ORDER BY part, position LIMIT %s",
        [load, most],
    ).fetchall()


def note_place(
    connection: Connection[Any],
    load: int,
    part: int,
    position: int,
    *,
    file: str,
    row: int,
    line: int | None,
) -> None:
    """Record where in the files a rejected row stands."""
    connection.execute(
        "UPDATE idivm.rejected_rows SET file = %s, row_number = %s, line = %s"
        " WHERE load = %s AND part = %s AND position = %s",
        [file, row, line, load, part, position],
    )


def parts_in_place(connection: Connection[Any], load: int) -> int | None:
    """Lock a load and return how many partitions are in its ledger. Return None if the load was given up."""
    row = connection.execute(
        "SELECT status FROM idivm.loads WHERE id = %s FOR UPDATE", [load]
    ).fetchone()
    if row is None or row[0] != "loading":
        return None
    count = connection.execute(
        "SELECT count(*) FROM idivm.load_parts WHERE load = %s", [load]
    ).fetchone()
    assert count is not None
    return int(count[0])


def note_done(connection: Connection[Any], load: int, table: str, loaded: int) -> tuple[int, int]:
    """Mark a load as done. Return how many rows it read and rejected."""
    row = connection.execute(
        "UPDATE idivm.loads SET status = 'done', ended_at = clock_timestamp(), parts = p.parts,"
        " relation = to_regclass(%s), rows_read = p.read, rows_loaded = %s, rows_rejected ="
        " (SELECT count(*) FROM idivm.rejected_rows r WHERE r.load = id)"
        " FROM (SELECT count(*) AS parts, coalesce(sum(rows_read), 0) AS read"
        "       FROM idivm.load_parts WHERE load = %s) AS p"
        " WHERE id = %s RETURNING rows_read, rows_rejected",
        [table, loaded, load, load],
    ).fetchone()
    assert row is not None
    connection.execute("DELETE FROM idivm.load_parts WHERE load = %s", [load])
    return row[0], row[1]


def fail(connection: Connection[Any], load: int) -> None:
    """Mark a load as failed unless it has ended, and keep its rejected rows."""
    connection.execute(
        "UPDATE idivm.loads SET status = 'failed', ended_at = now()"
        " WHERE id = %s AND status = 'loading'",
        [load],
    )
    connection.execute("DELETE FROM idivm.load_parts WHERE load = %s", [load])
    drop_staging(connection, load)


def end(connection: Connection[Any], load: int) -> None:
    """Delete a load and everything recorded about it."""
    connection.execute("DELETE FROM idivm.loads WHERE id = %s", [load])
    connection.execute(SQL("DROP TABLE IF EXISTS {}").format(staging_table(load)))


def drop_staging(connection: Connection[Any], load: int) -> None:
    """Drop a staging table. If a late task still locks it, leave it to `drop_orphans`."""
    try:
        with connection.transaction():
            connection.execute("SET LOCAL lock_timeout = '5s'")
            connection.execute(SQL("DROP TABLE IF EXISTS {}").format(staging_table(load)))
    except LockNotAvailable:
        return


def drop_orphans(connection: Connection[Any]) -> list[int]:
    """Give up loads that no session runs and that cannot be resumed, and drop useless staging tables.

    Return the IDs of the loads whose staging tables these were.
    """
    with locks_given_back(connection):
        dropped = _give_up(connection)
    rows = connection.execute(
        "SELECT substr(c.relname, 2)::integer FROM pg_class c"
        " WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'r'"
        " AND c.relname ~ '^l[0-9]{1,9}$' AND NOT EXISTS (SELECT FROM idivm.loads l"
        " WHERE l.status = 'loading' AND c.relname = 'l' || l.id)",
        [STAGING_SCHEMA],
    ).fetchall()
    for (load,) in rows:
        drop_staging(connection, load)
        dropped.append(load)
    return sorted(set(dropped))


def _give_up(connection: Connection[Any]) -> list[int]:
    """Give up loads that no session runs and that cannot be resumed. Their locks are held afterwards."""
    left = connection.execute(
        "SELECT id, layout = %(state)s FROM (SELECT id, layout FROM idivm.loads l"
        "  WHERE status = 'loading' AND (layout IS NULL OR layout = %(state)s OR layout = %(source)s"
        "   AND greatest(started_at, (SELECT max(p.ended_at) FROM idivm.load_parts p"
        "                             WHERE p.load = l.id)) < now() - %(silent)s::interval)"
        # A session can lock again what it holds already.
        "  AND NOT EXISTS (SELECT FROM pg_locks k WHERE k.pid = pg_backend_pid()"
        "    AND k.locktype = 'advisory' AND k.classid = %(class)s AND k.objid = l.id)"
        "  OFFSET 0) AS l WHERE pg_try_advisory_lock(%(class)s, id)",
        {"state": STATE, "source": DATA_SOURCE, "silent": _SILENT, "class": LOCK_CLASS},
    ).fetchall()
    for load, is_state in left:
        (end if is_state else fail)(connection, load)
    return [load for load, _ in left]


@contextmanager
def locks_given_back(connection: Connection[Any]) -> Iterator[None]:
    """Give back the locks of loads that a block has taken, wherever it ends."""
    before = [number for (number,) in connection.execute(_HELD).fetchall()]
    try:
        yield
    finally:
        give_back(connection, _RELEASE, [before])


# The locks of streams have negative numbers, which are large as OIDs, and those of tasks are shared.
_HELD: Final = SQL(
    "SELECT k.objid::bigint FROM pg_locks k WHERE k.pid = pg_backend_pid() AND k.locktype = 'advisory'"
    " AND k.classid = {} AND k.objsubid = 2 AND k.mode = 'ExclusiveLock' AND k.objid < '2147483648'"
).format(Literal(LOCK_CLASS))
_RELEASE: Final = SQL(
    "SELECT pg_advisory_unlock({}, l.number::integer) FROM ({}) AS l (number) WHERE l.number <> ALL (%s)"
).format(Literal(LOCK_CLASS), _HELD)


def broken_off(connection: Connection[Any]) -> list[BrokenOff]:
    """Return the loads that no session runs and whose staging tables are kept to resume them."""
    rows = connection.execute(
        "SELECT l.id, l.name, to_char(l.started_at, 'YYYY-MM-DD HH24:MI'),"
        "       pg_size_pretty(pg_total_relation_size(to_regclass(%s || l.id)))"
        " FROM idivm.loads l WHERE l.status = 'loading' AND l.layout <> ALL (%s)"
        " AND NOT EXISTS (SELECT FROM pg_locks k WHERE k.locktype = 'advisory' AND k.classid = %s"
        "   AND k.objid = l.id AND k.database ="
        "       (SELECT oid FROM pg_database WHERE datname = current_database()))"
        " AND to_regclass(%s || l.id) IS NOT NULL ORDER BY l.id",
        [f"{STAGING_SCHEMA}.l", [STATE, DATA_SOURCE], LOCK_CLASS, f"{STAGING_SCHEMA}.l"],
    ).fetchall()
    return [BrokenOff(*row) for row in rows]


def hand_over(load: int, item: Connection[Any], other: Connection[Any]) -> None:
    """Give a load's lock to another session as well, so that the first session may end."""
    shared = "SELECT pg_advisory_lock_shared(%s, %s)"
    item.execute(shared, [LOCK_CLASS, load])
    unlock(item, load)
    other.execute(shared, [LOCK_CLASS, load])


def unlock(connection: Connection[Any], load: int, *, shared: bool = False) -> None:
    """Release the lock of a load."""
    release = "pg_advisory_unlock_shared" if shared else "pg_advisory_unlock"
    give_back(connection, SQL("SELECT {}(%s, %s)").format(SQL(release)), [LOCK_CLASS, load])
