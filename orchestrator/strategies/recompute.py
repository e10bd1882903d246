"""Recompute: the definition is recomputed and the difference applied.

It asks nothing of the query, the keys or the types, and so it is what every view can fall back to.
Its cost is that of the query, but rows that stay are not rewritten, and views above see net changes
only.
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
"""Columns of a table of PostgreSQL."""


def plan(request: PlanningRequest) -> MaintenancePlan:
    """The plan of one state table, replaced by difference at every refresh."""
    taken = {column.name for column in request.columns}
    identity = RowIdentity(
        row=fresh_name("idivm_row", taken),
        nth=fresh_name("idivm_nth", taken),
        distinct=request.distinct,
    )
    fits_log_row = len(request.columns) + 2 <= MOST_COLUMNS
    content = BagTable(CONTENT, request.columns, identity if fits_log_row else None)
    return request.maintained_by(Strategy.RECOMPUTE, [content], [ReplaceContent(CONTENT)])
