"""The relation through which SQL enumerates a view, and who may read it.

The function behind a ranked view reads states with the rights of the view's owner, whoever calls it. Inside, PostgreSQL
does not tell who that is. So the relation, which knows the reader, passes a token to the function. It is a digest of a
secret that only the owner can read, and of the session and its transaction, in which alone it is good.
"""

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


def create_secret(names: Names) -> Composed:
    """Return the statement that creates the secret of a ranked view; it is dropped with the states."""
    return SQL("CREATE TABLE IF NOT EXISTS {} AS SELECT gen_random_uuid() AS secret").format(
        secret_of(names)
    )


def secret_of(names: Names) -> Identifier:
    """Return the name of the table with the secret of a ranked view."""
    return names.state("reading_secret")


TOKEN = SQL(
    "sha256(convert_to(concat_ws(' ', g.secret, pg_backend_pid(), extract(epoch FROM transaction_timestamp())),"
    " 'UTF8'))"
)
"""The token of the reader's transaction, from a row `g` with the secret."""


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
