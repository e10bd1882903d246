"""Queries on the measured times of refreshes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row
from psycopg.sql import SQL

from orchestrator.catalog import ViewInfo
from orchestrator.deltascript.plan import Evidence, Price

OFTEN = 3
"""The minimum number of refreshes for a usable measurement of a view."""

SEVERAL = 3
"""The minimum number of other views for a usable measurement of a plan variant."""


def measured(connection: Connection[Any], view: ViewInfo) -> tuple[Price, int] | None:
    """Return the measured time per access in a view's own refreshes under its present plan, and how many
    refreshes there were.
    """
    row = connection.execute(
        "SELECT variant, price, refreshes FROM idivm.costs WHERE view = %s AND price > 0", [view.id]
    ).fetchone()
    if row is None or row[0] != view.plan.program.variant:
        return None
    variant, seconds, refreshes = row
    return Price(variant, seconds, 0, view.plan.program.costs), refreshes


def recompute_cost(connection: Connection[Any], view: ViewInfo) -> tuple[float, float | None, bool]:
    """Return the expected seconds of recomputing a view, the number of accesses from which a refresh lost
    against recomputing, and whether the seconds rest on measurements of this view.
    """
    row = connection.execute(
        "SELECT idivm.recompute_seconds(v.id, idivm.query_work(v.definition)), c.loses_from,"
        "  coalesce(c.row_seconds > 0, false)"
        " FROM idivm.views v LEFT JOIN idivm.costs c ON c.view = v.id WHERE v.id = %s",
        [view.id],
    ).fetchone()
    assert row is not None
    seconds, loses_from, measured = row
    return seconds, loses_from, measured


def expected(connection: Connection[Any], query: str) -> tuple[float, float]:
    """Return PostgreSQL's estimates of a query: its cost, and its rows."""
    row = connection.execute(SQL("EXPLAIN (FORMAT JSON) {}").format(SQL(query))).fetchone()
    assert row is not None
    plan = row[0][0]["Plan"]
    return plan["Total Cost"], plan["Plan Rows"]


def note_content_share(connection: Connection[Any], view_id: int, share: float) -> None:
    """Record the expected part of a recompute that computing the content alone takes."""
    connection.execute(
        "INSERT INTO idivm.costs (view, content_share) VALUES (%s, %s)"
        " ON CONFLICT (view) DO UPDATE SET content_share = excluded.content_share",
        [view_id, share],
    )


def prices(connection: Connection[Any], before: ViewInfo | None) -> tuple[Price, ...]:
    """Return the measured time per access by plan variant: of other views, and of the same view.

    For variants that maintained the view earlier, its stored plan keeps the measurements of that time.
    """
    with connection.cursor(row_factory=class_row(Price)) as cursor:
        rows = cursor.execute(
            "SELECT variant, percentile_cont(0.5) WITHIN GROUP (ORDER BY price) AS seconds, count(*) AS views"
            " FROM idivm.costs WHERE price > 0 AND refreshes >= %s AND view IS DISTINCT FROM %s"
            " GROUP BY variant HAVING count(*) >= %s ORDER BY variant",
            [OFTEN, before.id if before else None, SEVERAL],
        ).fetchall()
    own: dict[str, Price] = {}
    if before is not None and before.is_planned:
        own = {p.variant: p for p in earlier(before.plan.evidence) if not p.views}
        latest = measured(connection, before)
        if latest is not None and latest[1] >= OFTEN:
            own[latest[0].variant] = latest[0]
    return (*rows, *own.values())


def earlier(evidence: Evidence) -> tuple[Price, ...]:
    """Return the prices that were known when a plan was made."""
    return tuple(replace(price, costs=()) for price in evidence.prices)
