"""Locks that keep two orchestrators from changing a view at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import Connection

from orchestrator import catalog
from orchestrator.errors import DatabaseError
from orchestrator.runtime.installation import modes
from orchestrator.session_locks import session_lock


@contextmanager
def held(connection: Connection[Any], view_id: int | None) -> Iterator[None]:
    """Keep refreshes and the removal of orphans away from a view for a block."""
    if view_id is None:
        yield
        return
    with session_lock(connection, "idivm.lock_class(), %s::integer", [view_id]):
        yield


@contextmanager
def held_apart(connection: Connection[Any], view_id: int | None) -> Iterator[None]:
    """Keep refreshes away from a view that is not synchronous. Raise an error if it is synchronous by now."""
    with held(connection, view_id):
        if view_id is not None and modes.is_synchronous(connection, view_id):
            name = catalog.view_by_id(connection, view_id).name
            raise DatabaseError(
                f"Another session has changed how {name} is maintained meanwhile; try again."
            )
        yield
