"""Create, alter and refresh views inside the transaction of a user's connection, by idivm's SQL functions.

A created view computes its query at every read until an orchestrator plans it (docs/reference/sql-entry.md).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from psycopg import Connection
from psycopg.errors import DuplicateTable
from psycopg.sql import SQL, Composable, Identifier, Literal

from orchestrator import catalog
from orchestrator.catalog import ViewInfo
from orchestrator.catalog import unplanned as catalog_unplanned
from orchestrator.catalog.search_path import users_path
from orchestrator.errors import NameTakenError
from orchestrator.frontend.options import ParsedOptions
from orchestrator.frontend.statements import QualifiedName
from orchestrator.runtime.installation.new_view import NewView
from orchestrator.runtime.refresh import RefreshError, RefreshReport


def create_view(connection: Connection[Any], new: NewView) -> ViewInfo:
    """Create a view that is correct at once and that the next orchestrator plans."""
    query: Composable = SQL(new.query)
    if new.columns is not None:
        listing = SQL(", ").join(map(Identifier, new.columns))
        query = SQL("SELECT * FROM (\n{}\n) AS named ({})").format(query, listing)
    exists = catalog.relation_oid(connection, new.name.identifier) is not None
    name = "replace_view" if new.replace and exists else "create_view"
    try:
        return _call(
            connection,
            name,
            new.name,
            SQL(", {}, options => {}").format(
                Literal(query.as_string(connection)), _options(new.options)
            ),
        )
    except DuplicateTable as error:
        raise NameTakenError(
            f"{new.name} exists already; choose another name or drop it first."
        ) from error


def alter_view(
    connection: Connection[Any], name: QualifiedName, options: Sequence[tuple[str, str]]
) -> ViewInfo:
    """Change the options of a view."""
    given = Literal(json.dumps(dict(options)))
    return _call(connection, "alter_view", name, SQL(", options => {}").format(given))


def refresh_views(
    connection: Connection[Any], names: Sequence[QualifiedName]
) -> list[RefreshReport]:
    """Refresh the named views, or all views, in the open transaction."""
    views = [name.identifier for name in names] or [
        Identifier(schema, name) for schema, name in connection.execute(_ALL).fetchall()
    ]
    if not views:
        return []
    with users_path(connection):
        rows = connection.execute(
            SQL("SELECT * FROM idivm.refresh({})").format(
                SQL(", ").join(Literal(view.as_string(connection)) for view in views)
            )
        ).fetchall()
    reports = [RefreshReport(*row) for row in rows]
    if any(report.error for report in reports):
        raise RefreshError(reports)
    return reports


_ALL = """
    SELECT n.nspname, c.relname
    FROM (SELECT relation FROM idivm.views v WHERE status <> 'building' AND NOT idivm.is_paused(v)
          UNION ALL SELECT relation FROM idivm.unplanned_views WHERE with_data AND NOT paused) AS v
    JOIN pg_class c ON c.oid = v.relation JOIN pg_namespace n ON n.oid = c.relnamespace
    ORDER BY c.oid
"""


def _options(options: ParsedOptions) -> Literal:
    return Literal(json.dumps(options.to_json()))


def _call(
    connection: Connection[Any], function: str, name: QualifiedName, arguments: Composable
) -> ViewInfo:
    """Call a function of idivm that returns a view. The user's search path resolves names."""
    call = SQL("SELECT {}({}{})::pg_catalog.oid").format(
        Identifier("idivm", function), Literal(str(name)), arguments
    )
    # The savepoint keeps the user's transaction usable after an error.
    with connection.transaction(), users_path(connection):
        row = connection.execute(call).fetchone()
    assert row is not None
    view = catalog.view_by_oid(connection, row[0])
    if view is not None:
        return view
    [unplanned] = catalog_unplanned.views_with(connection, row)
    return catalog_unplanned.as_view(connection, unplanned)
