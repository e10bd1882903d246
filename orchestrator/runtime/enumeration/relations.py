"""Create the relations through which SQL enumerates views that no table holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from psycopg import Connection
from psycopg.sql import Composed

from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import MaintenancePlan
from orchestrator.runtime.enumeration import merged, ranked


def create(connection: Connection[Any], names: Names, plan: MaintenancePlan) -> None:
    """Create the relation through which SQL enumerates a view, if its rows are merged or ranked."""
    for statement in statements(connection, names, plan):
        connection.execute(statement)


def statements(
    connection: Connection[Any], names: Names, plan: MaintenancePlan
) -> Iterator[Composed]:
    """Yield the statements that create the relation through which SQL enumerates a view."""
    yield from merged.relation_statements(connection, names, plan)
    yield from ranked.relation_statements(names, plan)
