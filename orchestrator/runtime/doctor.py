"""Diagnosis of an installation: what is in the database, and what is missing or left over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.errors import InsufficientPrivilege

from orchestrator.runtime import catalog, install, sources
from orchestrator.runtime.migrate import take_module


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
    findings.append(_form(connection))
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


def _form(connection: Connection[Any]) -> Finding:
    """Takes the module in C if it has come, leaves it if it is refused."""
    take_module(connection)
    try:
        switched = sources.switch_form(connection)
    except InsufficientPrivilege as error:
        sentence = f"this role may not change its form ({error.diag.message_primary})"
        return Finding("capture's form", True, f"{sentence}; run idivm doctor as the tables' owner")
    form = "C" if catalog.captures_in_c(connection) else "plpgsql"
    return Finding(
        "capture's form",
        True,
        f"{form}, from now on, for {switched} more tables" if switched else form,
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
