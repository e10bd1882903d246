"""Change from where the changes of a table are captured: by triggers, or from the WAL."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from psycopg import Connection
from psycopg.errors import InsufficientPrivilege
from psycopg.pq import TransactionStatus
from psycopg.sql import SQL, Composable, Identifier

from orchestrator import catalog
from orchestrator.catalog import wal
from orchestrator.errors import NotFoundError, UsageError
from orchestrator.frontend.statements import QualifiedName
from orchestrator.runtime.installation import sources
from orchestrator.runtime.wal import reading

WAYS = ("triggers", "wal")


def capture(connection: Connection[Any], name: QualifiedName, way: str) -> None:
    """Capture the changes of a table by triggers or from the WAL from now on. Its writers wait shortly."""
    if way not in WAYS:
        raise UsageError(f"Changes are captured from {' or '.join(WAYS)}, not from {way}.")
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise UsageError("Changing how a table is captured needs a transaction of its own.")
    known = wal.source_of(connection, catalog.relation_oid(connection, name.identifier))
    if known is None:
        raise NotFoundError(
            f"No maintained view reads the table {name}, so its changes are not captured: create a view first."
        )
    source_id, is_from_wal = known
    if (way == "wal") == is_from_wal:
        return
    with reading.locked(connection):
        if way == "triggers":
            _back(connection, source_id)
        else:
            _to_wal(connection, source_id)
    drop_unused_slot(connection)


def drop_unused_slot(connection: Connection[Any]) -> None:
    """Drop the slot, which keeps the WAL, if no table is captured from the WAL any more."""
    connection.execute("SELECT idivm.drop_unused_slot() FROM idivm.wal_slots")


def settle(connection: Connection[Any]) -> None:
    """Switch tables back to triggers if the WAL no longer holds all of their changes, and rebuild their views.

    The caller holds the lock of the WAL. A role that may not do it leaves it to others: its refreshes recompute.
    """
    state = wal.wal_status(connection)
    is_fine = state is not None and state.is_fine
    lost = wal.altered_sources(connection) if is_fine else wal.sources_in_wal(connection)
    if is_fine and lost:
        # New partitions are published with their table, but their old rows are not in the WAL yet.
        with suppress(InsufficientPrivilege):
            sources.sync_members(connection, catalog.sources_with_other_members(connection, lost))
        lost = wal.altered_sources(connection)
    for source_id in lost:
        try:
            with connection.transaction():
                _attach(connection, source_id)
                wal.empty_log(connection, source_id)
                catalog.invalidate_readers(connection, source_id)
        except InsufficientPrivilege:
            continue


def _to_wal(connection: Connection[Any], source_id: int) -> None:
    _refuse(connection, source_id)
    table = _table(connection, source_id)
    slot = wal.slot_of(connection)
    try:
        with connection.transaction():
            if not wal.settings(connection)[2]:
                connection.execute(SQL("CREATE PUBLICATION {}").format(Identifier(wal.PUBLICATION)))
            wal.publish(connection, source_id, table)
        if not wal.sources_in_wal(connection):
            # It waits for the open transactions, and cannot be created in one that writes.
            wal.create_slot(connection, slot)
        with connection.transaction():
            connection.execute("LOCK TABLE idivm.sources IN SHARE ROW EXCLUSIVE MODE")
            # The transactions that have written the table have ended, and its triggers have logged their changes.
            connection.execute(SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(table))
            _refuse(connection, source_id)
            sources.detach(connection, source_id)
            wal.read_from_here(connection, source_id)
            connection.execute("SELECT idivm.refuse_wal_modes()")
    except BaseException:
        # After the last commit, an interruption comes too late: nothing else captures the table then.
        if not connection.closed and source_id not in wal.sources_in_wal(connection):
            with connection.transaction():
                connection.execute("SELECT idivm.leave_wal(%s)", [source_id])
            drop_unused_slot(connection)
        raise


def _refuse(connection: Connection[Any], source_id: int) -> None:
    """Fail with a sentence if the changes of a table cannot be read from the WAL."""
    level, kept, _ = wal.settings(connection)
    if level != "logical":
        raise UsageError(
            f"The server has wal_level = {level}: set wal_level = logical and restart it, or keep the triggers."
        )
    if kept == "-1":
        raise UsageError(
            "The server has max_slot_wal_keep_size = -1, so that a slot that nobody reads would fill its disk: "
            "set a limit, for example 10GB. Beyond it, triggers capture the table again."
        )
    if reason := wal.why_not_from_wal(connection, source_id):
        raise UsageError(f"Changes cannot be read from the WAL: {reason}.")


def _table(connection: Connection[Any], source_id: int) -> Composable:
    return next(member.name for member in catalog.members(connection, source_id) if member.root)


def _back(connection: Connection[Any], source_id: int) -> None:
    """Read what the WAL has of the table while its writers wait, and attach the triggers."""
    settle(connection)
    if source_id not in wal.sources_in_wal(connection):
        return
    reading.prepare(connection)
    table = _table(connection, source_id)
    with connection.transaction():
        connection.execute("LOCK TABLE idivm.sources IN SHARE ROW EXCLUSIVE MODE")
        connection.execute(SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(table))
        end = reading.read(connection)
        is_read = end is not None
        _attach(connection, source_id)
        if not is_read:
            wal.empty_log(connection, source_id)
            catalog.invalidate_readers(connection, source_id)
    reading.advance(connection, end)


def _attach(connection: Connection[Any], source_id: int) -> None:
    connection.execute("LOCK TABLE idivm.sources IN SHARE ROW EXCLUSIVE MODE")
    connection.execute(
        SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(_table(connection, source_id))
    )
    connection.execute("SELECT idivm.leave_wal(%s)", [source_id])
    sources.attach_again(connection, source_id)
