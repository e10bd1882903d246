"""The relation through which SQL enumerates a view, and who may read it."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg.sql import SQL, Composed, Identifier, Literal

from orchestrator.deltascript.capture.table import function_body
from orchestrator.deltascript.names import Names
from orchestrator.sqltext import SEARCH_PATH


def relation_of(names: Names) -> Identifier:
    """Return the name of the relation through which SQL enumerates a view."""
    return Identifier("idivm_feed", f"r{names.id}")


def allowed(names: Names) -> Composed:
    """Return the condition that the current role may read all rows of a view.

    States are read with the rights of the view's owner, so relations over them have this condition.
    """
    return SQL(
        "(SELECT has_table_privilege(v.relation, 'SELECT') AND NOT row_security_active(v.relation)"
        " FROM idivm.views AS v WHERE v.id = {})"
    ).format(Literal(names.id))


def opening_function(names: Names, off: Sequence[str]) -> Composed:
    """Return the statement that creates the function that opens a cursor over the relation, and keeps its plan.

    `off` are the settings of the planner that it turns off.
    """
    body = SQL("BEGIN\n    OPEN portal FOR SELECT * FROM {};\n    RETURN portal;\nEND")
    return SQL(
        "CREATE OR REPLACE FUNCTION {}(portal refcursor) RETURNS refcursor LANGUAGE plpgsql"
        " SET search_path = {} {} AS {}"
    ).format(
        Identifier("idivm_feed", f"open_{names.id}"),
        SQL(SEARCH_PATH),
        SQL(" ").join(SQL("SET {} = off").format(Identifier(name)) for name in off),
        function_body(body.format(relation_of(names))),
    )
