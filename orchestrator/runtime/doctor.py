"""Diagnosis of an installation: what is in the database, and what is missing or left over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import Connection

from orchestrator.runtime import catalog, install, sources


@dataclass(frozen=True)
class Finding:
    """One thing looked at, and whether it is as it should be."""

    subject: str
    fine: bool
    sentence: str


def examine(connection: Connection[Any]) -> list[Finding]:
    """Looks at server, catalog, capture and leftovers; removes leftovers and says so."""
    findings = [_server(connection)]
    swept = install.sweep(connection)
    findings.append(
        Finding(
            "leftovers",
            True,
            f"removed what was left of {swept} views" if swept else "none",
        )
    )
    orphans = catalog.orphans(connection)
    findings.append(
        Finding(
            "orphans",
            not orphans,
            f"{', '.join(orphans)} belong to no view; drop them" if orphans else "none",
        )
    )
    behind = catalog.sources_with_other_members(connection)
    sources.sync_members(connection)
    findings.append(
        Finding(
            "partitions",
            True,
            f"capture follows the partitions of {len(behind)} tables again"
            if behind
            else "every partition of a captured table carries capture",
        )
    )
    findings.extend(_triggers(connection))
    findings.extend(_views(connection))
    return findings


def _server(connection: Connection[Any]) -> Finding:
    version = connection.info.server_version
    return Finding(
        "server",
        version >= 150000,
        f"PostgreSQL {version // 10000}.{version % 10000}, database {connection.info.dbname}",
    )


def _triggers(connection: Connection[Any]) -> list[Finding]:
    broken = catalog.members_without_triggers(connection)
    if not broken:
        return [Finding("capture", True, "every captured table has its triggers, enabled")]
    return [
        Finding(
            "capture",
            False,
            f"triggers of {table} are missing or disabled, so changes are lost;"
            " run ALTER TABLE ... ENABLE ALWAYS TRIGGER for those that idivm made,"
            " or drop and create the views that read it",
        )
        for table in broken
    ]


def _views(connection: Connection[Any]) -> list[Finding]:
    return [
        Finding(
            f"view {view.name}",
            True,
            "will be rebuilt by its next refresh"
            if view.status == "invalid"
            else f"{view.pending:,} changes pending",
        )
        for view in catalog.all_views(connection)
    ]
