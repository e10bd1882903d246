"""Refreshing and checking: thin callers of the refresh loop that lives in the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from psycopg import Connection, IsolationLevel
from psycopg.errors import SerializationFailure
from psycopg.pq import TransactionStatus

from orchestrator.errors import DatabaseError, UsageError
from orchestrator.runtime import catalog

ATTEMPTS = 20

Result = TypeVar("Result")


@dataclass(frozen=True)
class RefreshReport:
    """What a refresh did to one view."""

    view: str
    changed: int
    seconds: float


def refresh(connection: Connection[Any], view_ids: Sequence[int]) -> list[RefreshReport]:
    """Brings views up to date in one snapshot, with the maintained views that they read."""
    reports = in_one_cut(connection, view_ids, lambda: refresh_here(connection, view_ids))
    if collect(connection, view_ids) and (late := catalog.overdue(connection, view_ids)):
        # Their logs are full, and this is what they asked for.
        reports += in_one_cut(connection, late, lambda: refresh_here(connection, late))
        collect(connection, late)
    return reports


def refresh_here(connection: Connection[Any], view_ids: Sequence[int]) -> list[RefreshReport]:
    """Brings views up to date within the transaction that is open."""
    rows = connection.execute(
        "SELECT coalesce(v.relation::text, v.name), r.changed, r.seconds"
        " FROM idivm.refresh_views(%s) WITH ORDINALITY AS r (id, changed, seconds, place)"
        " JOIN idivm.views v ON v.id = r.id ORDER BY r.place",
        [list(view_ids)],
    )
    return [RefreshReport(*row) for row in rows.fetchall()]


def pin_tables(connection: Connection[Any], view_ids: Sequence[int]) -> None:
    """Makes sure that the tables of views are as the open transaction's snapshot has them."""
    connection.execute(
        "SELECT idivm.pin_tables(id) FROM unnest(%s::integer[]) AS id", [list(view_ids)]
    )


def collect(connection: Connection[Any], view_ids: Sequence[int]) -> bool:
    """Frees the log segments of these views' sources that no view needs any more.

    It says whether any was looked at: mostly they have just been freed, and are short.
    """
    sources = connection.execute("SELECT idivm.collectable(%s)", [list(view_ids)]).fetchall()
    for (source,) in sources:
        connection.execute("SELECT idivm.collect_source(%s)", [source])
    return bool(sources)


def in_one_cut(
    connection: Connection[Any], view_ids: Sequence[int], action: Callable[[], Result]
) -> Result:
    """Runs `action` in one REPEATABLE READ transaction, again when another refresh came between."""
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise UsageError(
            "A refresh needs a transaction of its own; inside one, use SELECT idivm.refresh('name')."
        )
    connection.execute("SELECT idivm.sync_modes()")
    level = connection.isolation_level
    for _ in range(ATTEMPTS):
        connection.execute("SELECT idivm.lock_views(%s)", [list(view_ids)])
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        try:
            with connection.transaction():
                return action()
        except SerializationFailure:
            continue
        finally:
            if not connection.closed:
                connection.isolation_level = level
    raise DatabaseError(
        f"Other sessions refreshed the same views {ATTEMPTS} times in between; try again later."
    )
