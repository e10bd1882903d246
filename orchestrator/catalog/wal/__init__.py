"""Queries on the slot through which changes are read from the WAL, and on the tables that are captured so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.catalog import visible_names

PUBLICATION = "idivm_capture"

LOCK = "idivm.lock_class(), idivm.wal_lock()"
"""The arguments of the advisory lock that is held while the WAL is read and while capture changes its way."""


@dataclass(frozen=True)
class Reading:
    """How far the WAL is read, and what the snapshot of the open transaction sees. Positions are bytes of WAL."""

    slot: str
    position: int
    snapshot: str
    next_xid: int
    inserted: int
    """The end of the WAL after the snapshot was taken: commits that the snapshot sees are before it."""
    flushed: int


@dataclass(frozen=True)
class Member:
    """A table whose changes are read, or a partition of one, and its columns that the log has."""

    source: int
    keyed: bool
    since: int
    """Changes that were committed before this position were logged by triggers."""
    columns: tuple[tuple[str, int], ...]
    """Their names and the OIDs of their types, as messages have them."""
    attnums: tuple[int, ...]
    keys: tuple[int, ...]
    """The positions of the columns of the key among them."""
    is_altered: bool
    """Whether columns were renamed, added or dropped since the WAL was last read."""


@dataclass(frozen=True)
class WalStatus:
    """The slot through which changes are read: its state, and the bytes of WAL that are unread and that it keeps."""

    slot: str
    state: str
    lag: int | None
    kept: int | None
    most: int | None
    read_at: datetime | None

    @property
    def is_fine(self) -> bool:
        """Whether changes can be read through it."""
        return self.state not in ("missing", "lost", "read by others")


@dataclass(frozen=True)
class CapturedTable:
    """A table whose changes are captured, by triggers or from the WAL."""

    table: str
    capture: str


_READING = """
    SELECT w.slot, (w.position - '0/0')::bigint, pg_current_snapshot()::text,
           pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
           (pg_current_wal_insert_lsn() - '0/0')::bigint, (pg_current_wal_flush_lsn() - '0/0')::bigint
    FROM idivm.wal_slots w WHERE w.position IS NOT NULL
"""

_MEMBERS = """
    SELECT m.member::oid, s.id, s.keyed, (s.wal_since - '0/0')::bigint, used.names, used.types, used.attnums, used.keys,
           idivm.wal_columns(s.id) IS DISTINCT FROM m.wal_columns
    FROM idivm.sources s
    JOIN idivm.source_members m ON m.source = s.id
    JOIN pg_class c ON c.oid = m.member AND c.relkind = 'r'
    CROSS JOIN LATERAL (
        SELECT coalesce(array_agg(a.attname::text ORDER BY k.attnum), '{}') AS names,
               coalesce(array_agg(a.atttypid::bigint ORDER BY k.attnum), '{}') AS types,
               coalesce(array_agg(k.attnum ORDER BY k.attnum), '{}') AS attnums,
               coalesce(array_agg(k.in_key ORDER BY k.attnum), '{}') AS keys
        FROM idivm.source_columns k
        JOIN pg_attribute a ON a.attrelid = s.relation AND a.attnum = k.attnum AND NOT a.attisdropped
        WHERE k.source = s.id
    ) AS used
    WHERE s.wal_since IS NOT NULL AND NOT idivm.capture_is_broken(s.id)
"""

_MESSAGES = """
    SELECT data FROM pg_logical_slot_peek_binary_changes({}, NULL, NULL, 'proto_version', '1', 'publication_names', {})
"""

_IDENTITY = """
    SELECT m.member::text, c.relkind = 'r',
           CASE c.relreplident WHEN 'd' THEN 'DEFAULT' WHEN 'n' THEN 'NOTHING' WHEN 'f' THEN 'FULL' ELSE
        coalesce((SELECT format('USING INDEX %%I', x.relname) FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
                  WHERE i.indrelid = c.oid AND i.indisreplident), 'DEFAULT') END
    FROM idivm.source_members m JOIN pg_class c ON c.oid = m.member WHERE m.source = %s ORDER BY m.number
"""

# Images of a view's own content are not captured for users.
_TABLES = """
    SELECT s.relation::text, CASE WHEN s.wal_since IS NULL THEN 'triggers' ELSE 'wal' END
    FROM idivm.sources s JOIN pg_class c ON c.oid = s.relation
    WHERE c.relnamespace NOT IN ('idivm_state'::regnamespace, 'idivm_def'::regnamespace)
      AND NOT EXISTS (SELECT FROM idivm.views v WHERE v.state = s.relation)
    ORDER BY s.relation::text COLLATE "C"
"""


def reading(connection: Connection[Any]) -> Reading | None:
    """Return how far the WAL is read, or None without a slot."""
    row = connection.execute(_READING).fetchone()
    return None if row is None else Reading(*row)


def flush(connection: Connection[Any]) -> None:
    """Write out the WAL within the open transaction, from PostgreSQL 17 on."""
    connection.execute("SELECT pg_logical_emit_message(false, 'idivm', '', true)")


def flush_by_commit(connection: Connection[Any]) -> None:
    """Write out the WAL by a commit that waits for it."""
    with connection.transaction():
        connection.execute(
            "SELECT set_config('synchronous_commit', 'local', true), pg_logical_emit_message(true, 'idivm', '')"
        )


def decoded_again(connection: Connection[Any]) -> int:
    """Return how many bytes of WAL before its end the slot begins to decode."""
    row = connection.execute(
        "SELECT (pg_current_wal_insert_lsn() - r.restart_lsn)::bigint FROM idivm.wal_slots w"
        " JOIN pg_replication_slots r ON r.slot_name = w.slot AND r.restart_lsn IS NOT NULL"
    ).fetchone()
    return 0 if row is None else int(row[0])


def list_transactions(connection: Connection[Any]) -> None:
    """Have the WAL list the running transactions, so that decoding can begin there.

    Superusers may ask for it from PostgreSQL 16 on. For others, the creation of a temporary slot begins so.
    """
    row = connection.execute(
        "SELECT has_function_privilege(to_regprocedure('pg_catalog.pg_log_standby_snapshot()'), 'EXECUTE')"
    ).fetchone()
    if row == (True,):
        connection.execute("SELECT pg_log_standby_snapshot()")
        return
    with suppress(psycopg.Error), connection.transaction():
        # The creation then waits for the transactions, which nobody needs.
        connection.execute("SELECT set_config('lock_timeout', '10ms', true)")
        connection.execute(
            "SELECT pg_drop_replication_slot(s.slot_name) FROM idivm.wal_slots w,"
            " pg_create_logical_replication_slot(w.slot || '_start', 'pgoutput', true) AS s"
        )


def is_flushed(connection: Connection[Any]) -> bool:
    """Return whether the whole WAL is written out."""
    row = connection.execute(
        "SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()"
    ).fetchone()
    return row == (True,)


def flushed(connection: Connection[Any]) -> int:
    """Return the position up to which the WAL is written out."""
    row = connection.execute("SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint").fetchone()
    assert row is not None
    return int(row[0])


def members(connection: Connection[Any]) -> dict[int, Member]:
    """Return the tables and partitions whose changes are read, by OID."""
    return {
        oid: Member(
            source,
            keyed,
            since,
            tuple(zip(names, types, strict=True)),
            tuple(attnums),
            tuple(place for place, in_key in enumerate(keys) if in_key),
            is_altered,
        )
        for oid, source, keyed, since, names, types, attnums, keys, is_altered in connection.execute(
            _MEMBERS
        )
    }


def note_columns(connection: Connection[Any], source_ids: Iterable[int]) -> None:
    """Record the columns that messages about some sources have from now on."""
    connection.execute(
        "UPDATE idivm.source_members SET wal_columns = idivm.wal_columns(source) WHERE source = ANY (%s)",
        [list(source_ids)],
    )


def messages(slot: str) -> Composed:
    """Return the query of all messages that the slot holds."""
    return SQL(_MESSAGES).format(Literal(slot), Literal(PUBLICATION))


def next_statement(connection: Connection[Any], source_id: int) -> tuple[int, int]:
    """Return the number of this transaction, and then a number of a statement in the log of a source."""
    numbers = Identifier("idivm_log", f"s{source_id}_seq")
    query = SQL("SELECT pg_current_xact_id()::text::bigint, nextval({})")
    row = connection.execute(query.format(Literal(numbers.as_string(connection)))).fetchone()
    assert row is not None
    return row[0], row[1]


def copy_into_log(source_id: int, number: int, attnums: Sequence[int]) -> Composed:
    """Return the statement that copies rows into the segment of a log in which a statement is written."""
    segment = "b" if number >> 32 & 1 else "a"
    columns = [*("seq", "xid", "op"), *(f"{side}_{attnum}" for side in "on" for attnum in attnums)]
    return SQL("COPY {} ({}) FROM STDIN").format(
        Identifier("idivm_log", f"s{source_id}_{segment}"),
        SQL(", ").join(map(Identifier, columns)),
    )


def note_position(connection: Connection[Any], slot: str, position: int) -> None:
    """Record how far the WAL is read, in the transaction that logs what it holds."""
    connection.execute(
        "UPDATE idivm.wal_slots SET position = '0/0'::pg_lsn + %s::bigint::numeric,"
        " read_at = clock_timestamp() WHERE slot = %s",
        [position, slot],
    )


def note_read(connection: Connection[Any], snapshot: str) -> None:
    """Record in the open transaction that the logs have all that its snapshot sees."""
    connection.execute("SELECT set_config('idivm.read_wal', %s, true)", [snapshot])


def advance(connection: Connection[Any], slot: str, position: int) -> None:
    """Let the server remove WAL that was read, after the logs with its changes are committed."""
    connection.execute(
        "SELECT pg_replication_slot_advance(%s, '0/0'::pg_lsn + %s::bigint::numeric)",
        [slot, position],
    )


def any_reads(connection: Connection[Any], view_ids: Sequence[int]) -> bool:
    """Return whether changes for some views, or for views that they read, come from the WAL."""
    row = connection.execute(
        "SELECT EXISTS (SELECT FROM idivm.sources WHERE wal_since IS NOT NULL) AND EXISTS ("
        "SELECT FROM idivm.refresh_order(%s) AS id WHERE idivm.reads_wal(id))",
        [list(view_ids)],
    ).fetchone()
    return row == (True,)


def sources_in_wal(connection: Connection[Any]) -> list[int]:
    """Return the sources whose changes are read from the WAL."""
    rows = connection.execute(
        "SELECT id FROM idivm.sources WHERE wal_since IS NOT NULL ORDER BY id"
    )
    return [row[0] for row in rows.fetchall()]


def altered_sources(connection: Connection[Any]) -> list[int]:
    """Return the sources in the WAL whose tables can no longer be captured from it, as somebody altered them."""
    rows = connection.execute(
        "SELECT s.id FROM idivm.sources s WHERE s.wal_since IS NOT NULL"
        " AND (EXISTS (SELECT FROM idivm.source_members m WHERE m.source = s.id"
        " AND NOT coalesce(idivm.is_in_wal(s.id, m.member), false)) OR idivm.members_differ(s.id)"
        " OR idivm.why_not_from_wal(s.id) IS NOT NULL) AND EXISTS (SELECT FROM pg_class c WHERE c.oid = s.relation)"
        " ORDER BY s.id"
    )
    return [row[0] for row in rows.fetchall()]


def wal_status(connection: Connection[Any]) -> WalStatus | None:
    """Return what the slot keeps of the WAL, if there is a slot."""
    with connection.cursor(binary=True) as cursor:
        row = cursor.execute(
            "SELECT slot, state, lag, kept, most, read_at FROM idivm.wal_status()"
        ).fetchone()
    return None if row is None else WalStatus(*row)


def captured_tables(connection: Connection[Any]) -> list[CapturedTable]:
    """Return the tables whose changes are captured."""
    rows = connection.execute(_TABLES).fetchall()
    names = visible_names(connection, [name for name, _ in rows])
    return [CapturedTable(name, way) for name, (_, way) in zip(names, rows, strict=True)]


def source_of(connection: Connection[Any], table: int | None) -> tuple[int, bool] | None:
    """Return the source of a table, and whether its changes are read from the WAL."""
    row = connection.execute(
        "SELECT id, wal_since IS NOT NULL FROM idivm.sources WHERE relation = %s::oid", [table]
    ).fetchone()
    return None if row is None else (row[0], row[1])


def why_not_from_wal(connection: Connection[Any], source_id: int) -> str | None:
    """Return why the changes of a table cannot be read from the WAL."""
    row = connection.execute("SELECT idivm.why_not_from_wal(%s)", [source_id]).fetchone()
    return None if row is None else row[0]


def settings(connection: Connection[Any]) -> tuple[str, str, bool]:
    """Return wal_level and max_slot_wal_keep_size, and whether the publication exists."""
    row = connection.execute(
        "SELECT current_setting('wal_level'), current_setting('max_slot_wal_keep_size'),"
        " EXISTS (SELECT FROM pg_publication WHERE pubname = %s)",
        [PUBLICATION],
    ).fetchone()
    assert row is not None
    return row[0], row[1], row[2]


def publish(connection: Connection[Any], source_id: int, table: Composable) -> None:
    """Have the WAL hold whole old rows of a table and its partitions, and publish it."""
    for member, has_rows, identity in connection.execute(_IDENTITY, [source_id]).fetchall():
        connection.execute(
            "UPDATE idivm.source_members SET identity = coalesce(identity, %s)"
            " WHERE source = %s AND member = %s::regclass",
            [identity, source_id, member],
        )
        if has_rows and identity != "FULL":
            connection.execute(SQL("ALTER TABLE ONLY {} REPLICA IDENTITY FULL").format(SQL(member)))
    row = connection.execute(
        "SELECT EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid"
        " JOIN idivm.sources s ON s.relation = r.prrelid WHERE p.pubname = %s AND s.id = %s)",
        [PUBLICATION, source_id],
    ).fetchone()
    if row == (False,):
        connection.execute(
            SQL("ALTER PUBLICATION {} ADD TABLE ONLY {}").format(Identifier(PUBLICATION), table)
        )


def give_identity_back(connection: Connection[Any], source_id: int, number: int) -> None:
    """Give a partition that its table has lost the replica identity back that it had before."""
    row = connection.execute(
        "SELECT m.member::text, m.identity FROM idivm.source_members m JOIN pg_class c ON c.oid = m.member"
        " WHERE m.source = %s AND m.number = %s AND c.relkind = 'r' AND c.relreplident = 'f'"
        " AND m.identity <> 'FULL' AND idivm.owns(m.member)",
        [source_id, number],
    ).fetchone()
    if row is not None:
        connection.execute(
            SQL("ALTER TABLE ONLY {} REPLICA IDENTITY {}").format(SQL(row[0]), SQL(row[1]))
        )


def slot_of(connection: Connection[Any]) -> str:
    """Return the name of this database's slot, which its catalog may not have yet."""
    row = connection.execute(
        "SELECT 'idivm_' || oid FROM pg_database WHERE datname = current_database()"
    ).fetchone()
    assert row is not None
    return str(row[0])


def create_slot(connection: Connection[Any], slot: str) -> None:
    """Create the slot of this database, and record from where it holds changes. The name belongs to idivm."""
    connection.execute("DELETE FROM idivm.wal_slots")
    connection.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
        [slot],
    )
    # If this is interrupted, the row says that the slot may be dropped.
    connection.execute("INSERT INTO idivm.wal_slots (slot) VALUES (%s)", [slot])
    # A standby that takes over has the slot too.
    options = ", failover => true" if connection.info.server_version >= 170000 else ""
    row = connection.execute(
        SQL(
            "SELECT (lsn - '0/0')::bigint FROM pg_create_logical_replication_slot({}, 'pgoutput'{})"
        ).format(Literal(slot), SQL(options))
    ).fetchone()
    assert row is not None
    note_position(connection, slot, row[0])


def read_from_here(connection: Connection[Any], source_id: int) -> None:
    """Have the changes of a table read from the WAL from now on. The caller has locked out its writers."""
    connection.execute(
        "UPDATE idivm.sources SET wal_since = pg_current_wal_insert_lsn() WHERE id = %s",
        [source_id],
    )
    note_columns(connection, [source_id])


def empty_log(connection: Connection[Any], source_id: int) -> None:
    """Delete all rows of a log, whose views are rebuilt."""
    for segment in ("a", "b"):
        connection.execute(
            SQL("DELETE FROM {}").format(Identifier("idivm_log", f"s{source_id}_{segment}"))
        )
