"""The relation that users read, which shows the content of a view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from psycopg import Connection
from psycopg.errors import InvalidTableDefinition, WrongObjectType
from psycopg.sql import SQL, Composable, Composed

from orchestrator import catalog
from orchestrator.catalog import ViewInfo
from orchestrator.catalog import objects as catalog_objects
from orchestrator.catalog import take_over as catalog_take_over
from orchestrator.deltascript import emit
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import MaintenancePlan
from orchestrator.runtime.installation import tables
from orchestrator.runtime.installation.names import bound, names_of


def show_content(connection: Connection[Any], view: ViewInfo) -> None:
    """Make the relation of a view show the maintained content again, whatever it shows now."""
    assert view.definition is not None and view.state is not None
    names, relation = bound(connection, names_of(view)), SQL(view.relation)
    if view.options.get("relation") == "table":
        tables.shape(connection, names, relation)
        tables.bring_in_line(connection, view.id)
        return
    columns = [name for name, _ in catalog_objects.columns(connection, names.definition)]
    called = present_names(connection, relation, columns)
    content = SQL(view.read_from or view.state)
    show(connection, names, relation, columns, content, replacing=True, called=called)
    connection.execute(
        "UPDATE idivm.views SET relation = %s::regclass WHERE id = %s", [view.relation, view.id]
    )


def statements(
    connection: Connection[Any], plan: MaintenancePlan, names: Names, relation: Composable
) -> Iterator[Composed]:
    """Yield the statements that replace the relation of a view so that it shows what its plan says.

    The options of the relation and the names of its columns stay.
    """
    yield from emit.create_relation(
        plan.program,
        names,
        relation,
        replacing=True,
        options=catalog_take_over.options_of(connection, relation),
        merging=plan.merges,
        called=present_names(connection, relation, plan.program.column_names),
    )


def present_names(
    connection: Connection[Any], relation: Composable, columns: Sequence[str]
) -> tuple[str, ...]:
    """Return the names of a relation's columns, which its owner may have renamed; nothing if it has fewer columns."""
    if not catalog.is_plain_view(connection, relation):
        return ()
    names = [name for name, _ in catalog_objects.columns(connection, relation)]
    return tuple(names[: len(columns)]) if len(names) >= len(columns) else ()


def show(
    connection: Connection[Any],
    names: Names,
    relation: Composable,
    columns: Sequence[str],
    content: Composable,
    *,
    replacing: bool,
    called: Sequence[str] = (),
) -> None:
    """Create or replace the relation of a view so that it shows the rows of a table or view.

    `called` are the names of its columns if they differ.
    """
    was_table = replacing and not catalog.is_plain_view(connection, relation)
    options = (
        catalog_take_over.options_of(connection, relation)
        if replacing and not was_table
        else SQL("")
    )
    shape = partial(emit.show, names, relation, columns, content, options=options, called=called)
    try:
        with connection.transaction():
            for statement in shape(replacing=replacing):
                connection.execute(statement)
    except (InvalidTableDefinition, WrongObjectType):
        # The columns differ, or it is a table. Only a relation without readers can be dropped and created again.
        if not replacing:
            raise
        with catalog_take_over.kept_properties(connection, relation):
            if was_table:
                tables.keep_indexes(connection, relation)
            connection.execute(
                SQL("DROP {} {}").format(SQL("TABLE" if was_table else "VIEW"), relation)
            )
            for statement in shape(replacing=False):
                connection.execute(statement)
