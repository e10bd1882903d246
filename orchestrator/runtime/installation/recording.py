"""Record a plan in the catalog: what it captures, what it reads, and the indexes that it needs."""

from __future__ import annotations

import json
from typing import Any

from psycopg import Connection

from orchestrator import catalog
from orchestrator.catalog import ascii_json
from orchestrator.deltascript.plan import MaintenancePlan, Strategy
from orchestrator.frontend.options import ParsedOptions
from orchestrator.runtime.installation import indexes, sources


def record_plan(
    connection: Connection[Any], view_id: int, plan: MaintenancePlan, options: ParsedOptions
) -> None:
    """Record a view's plan, capture what it reads, and create indexes if its options ask for them."""
    connection.execute(
        "UPDATE idivm.views SET strategy = %s, time_dependent = %s, settings = %s, plan = %s,"
        " has_clock = to_regclass('idivm_def.c' || id) IS NOT NULL WHERE id = %s",
        [
            plan.strategy,
            bool(plan.program.time_dependent),
            json.dumps(dict(plan.program.settings)),
            ascii_json.dump(plan.stored()),
            view_id,
        ],
    )
    connection.execute("DELETE FROM idivm.inlined_views WHERE view = %s", [view_id])
    connection.execute(
        "INSERT INTO idivm.inlined_views SELECT %s, r, idivm.signature(r) FROM unnest(%s::oid[]) AS r",
        [view_id, list(plan.definition.inlined)],
    )
    read = plan.program.sources
    changed = [source for source in read if not sources.is_captured(connection, source)]
    sources.hold(connection, [view_id], changed=changed, kept=read)
    connection.execute("DELETE FROM idivm.view_sources WHERE view = %s", [view_id])
    # The same order everywhere keeps two creations from waiting for each other.
    for source in sorted(plan.program.sources, key=lambda source: source.oid):
        source_id = sources.ensure_source(connection, source)
        connection.execute(
            "INSERT INTO idivm.view_sources VALUES (%s, %s, %s, %s)",
            [view_id, source_id, list(source.not_null), json.dumps(source.keys)],
        )
    connection.execute("DELETE FROM idivm.view_expressions WHERE view = %s", [view_id])
    for source in plan.program.sources:
        # A view with the strategy `recompute` runs its definition and has no expressions in its program.
        planned = plan.strategy != Strategy.RECOMPUTE
        for in_plan, attnums in ((False, source.stored), (planned, source.virtual)):
            connection.execute(
                "INSERT INTO idivm.view_expressions SELECT %(view)s, %(table)s::oid::regclass, n,"
                " %(in_plan)s, idivm.expression_digest(%(table)s::oid::regclass, n)"
                " FROM unnest(%(attnums)s::smallint[]) AS n",
                {
                    "view": view_id,
                    "table": source.oid,
                    "in_plan": in_plan,
                    "attnums": list(attnums),
                },
            )
    connection.execute("SELECT idivm.note_expressions(%s)", [view_id])
    connection.execute("SELECT idivm.note_code(idivm.code_now(%s))", [view_id])
    catalog.note_reads(connection, view_id, plan.definition.types, plan.definition.reads)
    connection.execute("DELETE FROM idivm.made_indexes WHERE view = %s", [view_id])
    if options.create_indexes == "on":
        indexes.ensure(connection, view_id, plan.program.probes)
