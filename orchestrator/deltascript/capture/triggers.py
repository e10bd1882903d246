"""SQL that captures the changes of a table: triggers and the functions that they call.

Statement triggers log ordinary writes. They do not fire for writes of the apply worker of logical
replication, so a row trigger logs the writes of sessions whose `session_replication_role` is
`replica`. PostgreSQL fires either the statement triggers or the row trigger.

Only the source view names columns of the user's table. PostgreSQL stores it as a parse tree, so
that a renamed column needs no repair. Triggers find columns by position while the columns are
unchanged; otherwise they get the names from the source view. If the conversion of a table row to a
row of the source view were also stored as a parse tree, PostgreSQL would refuse to rewrite the
table.
"""

from __future__ import annotations

from collections.abc import Iterator

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from orchestrator.deltascript.capture.bodies import ROWS, bodies
from orchestrator.deltascript.capture.table import (
    Captured,
    Layout,
    function_body,
)


def capture_member(source: Captured, layout: Layout, number: int) -> Iterator[Composed]:
    """Yield the functions that log the changes of one table: the source, a partition or a child.

    If MERGE moves a row to another partition, transition tables contain only a part of the change,
    or nothing. A partition that is not captured yet may be dropped with its rows before it is
    noticed. In both cases the log requests a recomputation, as after TRUNCATE.
    """
    for operation, body in bodies(source, layout, number).items():
        yield SQL(
            "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER\n"
            "SET search_path = pg_catalog, pg_temp AS {}"
        ).format(source.log(f"_{operation}_{number}"), function_body(body))


OPERATIONS = ("insert", "update", "delete", "truncate")


def detach_triggers(source: Captured, member: Composable) -> Iterator[Composed]:
    """Yield the statements that remove the triggers from a table."""
    for operation in (*OPERATIONS, ROWS):
        yield SQL("DROP TRIGGER IF EXISTS {} ON {}").format(
            Identifier(f"idivm_{source.id}_{operation}"), member
        )


def drop_member(source: Captured, number: int) -> Iterator[Composed]:
    """Yield the statements that drop the capture functions of a table."""
    for operation in (*OPERATIONS, ROWS):
        yield SQL("DROP FUNCTION IF EXISTS {}").format(source.log(f"_{operation}_{number}"))


def attach_triggers(
    source: Captured, member: Composable, number: int, in_c: bool, partitioned: bool
) -> Iterator[Composed]:
    """Yield the statements that create or replace the triggers of a table.

    Statement triggers fire in ordinary sessions, the row trigger in replica sessions. TRUNCATE has
    no rows, so its statement trigger fires in both. A partitioned table holds no rows itself.

    The C form calls the functions of the table for cases that it does not handle.
    """
    transitions = {
        "insert": SQL("REFERENCING NEW TABLE AS new_rows"),
        "update": SQL("REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows"),
        "delete": SQL("REFERENCING OLD TABLE AS old_rows"),
        "truncate": SQL(""),
    }
    arguments = SQL(", ").join(map(Literal, source.arguments(number)))

    def attach(name: str, event: SQL, each: Composable, enable: SQL) -> Iterator[Composed]:
        trigger = Identifier(f"idivm_{source.id}_{name}")
        call = (
            SQL("idivm.capture_rows({})").format(arguments)
            if in_c and name != "truncate"
            else SQL("{}()").format(source.log(f"_{name}_{number}"))
        )
        yield SQL("CREATE OR REPLACE TRIGGER {} AFTER {} ON {} {} EXECUTE FUNCTION {}").format(
            trigger, event, member, each, call
        )
        yield SQL("ALTER TABLE {} {} TRIGGER {}").format(member, enable, trigger)

    for operation, transition in transitions.items():
        each = SQL("{} FOR EACH STATEMENT").format(transition)
        enable = SQL("ENABLE ALWAYS" if operation == "truncate" else "ENABLE")
        yield from attach(operation, SQL(operation.upper()), each, enable)
    if not partitioned:
        event = SQL("INSERT OR UPDATE OR DELETE")
        yield from attach(ROWS, event, SQL("FOR EACH ROW"), SQL("ENABLE REPLICA"))


def attach_routing(source: Captured, member: Composable, number: int) -> Iterator[Composed]:
    """Yield the trigger that makes PostgreSQL pass correct rows to capture after a MERGE.

    After MERGE has routed a row to its partition, PostgreSQL passes that row as the new image of
    every row that the MERGE updates later, unless the partition has a trigger like this one. The
    trigger never fires; partitions inherit it.
    """
    yield SQL(
        "CREATE TRIGGER {} BEFORE INSERT ON {} FOR EACH ROW WHEN (false) EXECUTE FUNCTION {}()"
    ).format(Identifier(f"idivm_{source.id}_routing"), member, source.log(f"_truncate_{number}"))


def detach_routing(source: Captured, member: Composable) -> Iterator[Composed]:
    """Yield the statement that removes the trigger that `attach_routing` creates."""
    yield SQL("DROP TRIGGER IF EXISTS {} ON {}").format(
        Identifier(f"idivm_{source.id}_routing"), member
    )
