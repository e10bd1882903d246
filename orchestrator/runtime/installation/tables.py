"""Views that users read as a table (sql/functions/58_tables.sql)."""

from __future__ import annotations

from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Composable

from orchestrator.catalog import relations
from orchestrator.catalog import take_over as catalog_take_over
from orchestrator.deltascript.names import Names


def shape(connection: Connection[Any], names: Names, relation: Composable) -> None:
    """Create the table that users read, or give it the columns of the query. It takes the place of a view."""
    statement = SQL("SELECT idivm.shape_table(%s, %s::regclass)")
    given = [relation.as_string(connection), names.definition.as_string(connection)]
    if not relations.is_plain_view(connection, relation):
        connection.execute(statement, given)
        return
    with catalog_take_over.kept_properties(connection, relation, "TABLE"):
        connection.execute(SQL("DROP VIEW {}").format(relation))
        connection.execute(statement, given)


def bring_in_line(connection: Connection[Any], view_id: int, *, fill: bool = True) -> None:
    """Let the table that users read, if there is one, follow the content of a view.

    Without `fill`, the next refresh computes the content and shows it; until then the table keeps its rows.
    """
    connection.execute("SELECT idivm.set_table(%s, %s)", [view_id, fill])


def keep_indexes(connection: Connection[Any], relation: Composable) -> None:
    """Store the definitions of the indexes of a table that becomes a view, and say what it loses."""
    connection.execute("SELECT idivm.keep_indexes(%s::regclass)", [relation.as_string(connection)])
