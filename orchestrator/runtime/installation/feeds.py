"""Change feeds: begin, continue and end them as views change (sql/functions/57_feeds.sql)."""

from __future__ import annotations

from typing import Any

from psycopg import Connection


def bring_in_line(connection: Connection[Any], view_id: int) -> None:
    """Begin, continue or end the feed of a view, as its options and its content ask for."""
    connection.execute("SELECT idivm.set_feed(%s)", [view_id])


def hand_on(connection: Connection[Any], replaced: int, view_id: int) -> None:
    """Let a view continue the feed of the view that it replaces."""
    connection.execute("UPDATE idivm_feed.feeds SET view = %s WHERE view = %s", [view_id, replaced])


def has_feed(connection: Connection[Any], view_id: int) -> bool:
    """Return whether a view appends to a feed."""
    row = connection.execute(
        "SELECT EXISTS (SELECT FROM idivm_feed.feeds WHERE view = %s)", [view_id]
    ).fetchone()
    return row == (True,)
