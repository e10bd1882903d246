"""Recompute: run the view's query again and apply the difference.

This strategy needs nothing from the query, the keys or the types, so every view can fall back to it. A
refresh costs as much as the query, but unchanged rows are not rewritten, and views above see only net
changes.
"""

from __future__ import annotations

from orchestrator.deltascript.plan import (
    CONTENT,
    BagTable,
    MaintenancePlan,
    ReplaceContent,
    RowIdentity,
    Strategy,
)
from orchestrator.sqltext import fresh_name
from orchestrator.strategies.request import PlanningRequest

MOST_COLUMNS = 1600
"""The maximum number of columns of a PostgreSQL table."""


def plan(request: PlanningRequest) -> MaintenancePlan:
    """Return the plan with a single state table, which every refresh replaces by difference."""
    taken = {column.name for column in request.columns}
    identity = RowIdentity(
        row=fresh_name("idivm_row", taken),
        nth=fresh_name("idivm_nth", taken),
        distinct=request.distinct,
    )
    fits_log_row = len(request.columns) + 2 <= MOST_COLUMNS
    content = BagTable(CONTENT, request.columns, identity if fits_log_row else None)
    return request.maintained_by(Strategy.RECOMPUTE, [content], [ReplaceContent(CONTENT)])
