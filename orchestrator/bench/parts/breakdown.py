"""Break the work of a refresh down into its components, like the bars of figure 12 of papers/idivm.txt.

The paper divides the time. PostgreSQL only counts pages for each table. The pages of the base tables
are read to compute the view's diff; those of other states are the cache, which is read and updated;
those of the content are the update of the view.
"""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.api import Orchestrator
from orchestrator.bench.measure import Execution
from orchestrator.bench.workload import SCHEMA

Pages = dict[str, int]
"""The pages of each component: the log of changes, base tables, caches, and the view."""
COMPONENTS = ("log pages", "table pages", "cache pages", "view pages")

_COUNTERS = """
    SELECT CASE WHEN relid = %(content)s::regclass THEN 'view pages'
                WHEN schemaname = 'idivm_log' THEN 'log pages'
                WHEN schemaname = 'idivm_state' THEN 'cache pages' ELSE 'table pages' END,
           sum(heap_blks_read + coalesce(idx_blks_read, 0) + coalesce(toast_blks_read, 0))::bigint,
           sum(heap_blks_hit + coalesce(idx_blks_hit, 0) + coalesce(toast_blks_hit, 0))::bigint
    FROM pg_statio_all_tables WHERE schemaname IN ('idivm_log', 'idivm_state', %(schema)s)
    GROUP BY 1
"""


def pages(
    orchestrator: Orchestrator, view: str, refresh: Callable[[], Execution], *, cold: bool
) -> tuple[Execution, Pages]:
    """Refresh a view; return the measurement, and the pages that each component touched.

    With `cold`, only pages count that were not in PostgreSQL's memory.
    """
    before = _counters(orchestrator, view)
    measured = refresh()
    after = _counters(orchestrator, view)

    def counted(component: str) -> int:
        read, hit = (
            now - then
            for now, then in zip(
                after.get(component, (0, 0)), before.get(component, (0, 0)), strict=True
            )
        )
        return read if cold else read + hit

    return measured, {component: counted(component) for component in COMPONENTS}


def _counters(orchestrator: Orchestrator, view: str) -> dict[str, tuple[int, int]]:
    execute = orchestrator.connection.execute
    # Without this, PostgreSQL publishes the counters of a session once a second.
    execute("SELECT pg_stat_force_next_flush()")
    given = {"content": orchestrator.view(view).state, "schema": SCHEMA}
    return {name: (read, hit) for name, read, hit in execute(_COUNTERS, given).fetchall()}
