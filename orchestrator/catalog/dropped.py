"""Views that DROP ... CASCADE of a table or plain view removed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row
from psycopg.sql import SQL, Composable

from orchestrator.catalog.relations import Grant, schema_and_name


@dataclass(frozen=True)
class DroppedView:
    """A maintained view that DROP ... CASCADE removed together with a relation that it read."""

    name: str
    query: str
    columns: list[str]
    options: dict[str, str]
    search_path: str | None
    grants: list[Grant]
    cause: str
    at: datetime


_DROPPED = SQL(
    "SELECT name, query, columns, options, search_path, grants, cause, at FROM idivm.dropped_views"
    " WHERE {} ORDER BY view"
)


def dropped_views(connection: Connection[Any]) -> list[DroppedView]:
    """Return the views that DROP ... CASCADE removed, in the order of their creation."""
    with connection.cursor(row_factory=class_row(DroppedView), binary=True) as cursor:
        return cursor.execute(_DROPPED.format(SQL("true"))).fetchall()


def dropped_view(connection: Connection[Any], name: Composable) -> DroppedView | None:
    """Return the view of this name that DROP ... CASCADE removed, if there is one."""
    parts = schema_and_name(connection, name)
    with connection.cursor(row_factory=class_row(DroppedView), binary=True) as cursor:
        return cursor.execute(_DROPPED.format(SQL("parse_ident(name) = %s")), [parts]).fetchone()


def clear_dropped(connection: Connection[Any], name: Composable) -> bool:
    """Delete the record of a view that DROP ... CASCADE removed. Return whether there was one."""
    cleared = connection.execute(
        "DELETE FROM idivm.dropped_views WHERE parse_ident(name) = %s",
        [schema_and_name(connection, name)],
    )
    return cleared.rowcount > 0
