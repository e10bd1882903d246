"""The names of the objects of an installed view."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from psycopg import Connection

from orchestrator import catalog
from orchestrator.catalog import ViewInfo
from orchestrator.deltascript.names import Names
from orchestrator.frontend.statements import parse_name


def names_of(view: ViewInfo) -> Names:
    """Return the names of the objects of a view. A view without content uses the requested name."""
    return Names(view.id, view.base or parse_name(view.name).name)


def bound(connection: Connection[Any], names: Names) -> Names:
    """Return names with the installed names of the sources, and the version of the connected server."""
    return replace(
        names,
        sources=catalog.source_names(connection, names.id),
        version=connection.info.server_version,
        completes_order=catalog.exists(connection, names.written),
    )
