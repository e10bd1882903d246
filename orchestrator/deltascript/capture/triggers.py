"""The SQL that captures the changes of one table: triggers and the functions that they call.

Statement triggers log ordinary writes. They do not fire for what the apply worker of logical replication
writes, so a row trigger logs the writes of sessions whose `session_replication_role` is `replica`.
PostgreSQL fires either the one or the other.

No text here names a column of the user's table but the source view, which PostgreSQL stores as a
parse tree, so that a rename in the table needs no repair. Triggers count the columns instead, as
long as they are those that were counted, and else ask the source view for their names. To store the
turning of a row of the table into one of the source view as a parse tree as well would keep the
table from being rewritten.
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
    """The functions that log the changes of one table: the source itself, a partition or a child.

    Of a row that a MERGE moves from one partition to another, transition tables hold a part or
    nothing; and a partition that carries no capture yet may be gone, with its rows, before anybody
    sees it. The log then says of the table what it says after a TRUNCATE: compute it again.
    """
    for operation, body in bodies(source, layout, number).items():
        yield SQL(
            "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER\n"
            "SET search_path = pg_catalog, pg_temp AS {}"
        ).format(source.log(f"_{operation}_{number}"), function_body(body))


OPERATIONS = ("insert", "update", "delete", "truncate")


def detach_triggers(source: Captured, member: Composable) -> Iterator[Composed]:
    """The statements that take capture off a table."""
    for operation in (*OPERATIONS, ROWS):
        yield SQL("DROP TRIGGER IF EXISTS {} ON {}").format(
            Identifier(f"idivm_{source.id}_{operation}"), member
        )


def drop_member(source: Captured, number: int) -> Iterator[Composed]:
    """The statements that drop a table's capture functions."""
    for operation in (*OPERATIONS, ROWS):
        yield SQL("DROP FUNCTION IF EXISTS {}").format(source.log(f"_{operation}_{number}"))


def attach_triggers(
    source: Captured, member: Composable, number: int, in_c: bool, partitioned: bool
) -> Iterator[Composed]:
    """The triggers on one table, new or in their other form.

    Statement triggers fire in ordinary sessions and the row trigger in replica sessions. TRUNCATE has
    no rows, and fires its statement trigger in both. A partitioned table holds no rows itself.

    The C form calls the functions of the table for what it does not do by itself.
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
    """What makes PostgreSQL hand a partitioned table's capture the right rows after a MERGE.

    Having routed a row to its partition, a MERGE takes that row for the new image of every row that
    it updates afterwards, unless the partition has a trigger like this one. It never fires; the
    table's partitions inherit it.
    """
    yield SQL(
        "CREATE TRIGGER {} BEFORE INSERT ON {} FOR EACH ROW WHEN (false) EXECUTE FUNCTION {}()"
    ).format(Identifier(f"idivm_{source.id}_routing"), member, source.log(f"_truncate_{number}"))
