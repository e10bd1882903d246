"""Views with `common_join = on` read the join of their tables from a maintained view that stores it once.

The first such view creates the maintained view, in its own schema, and others with the same join read it too. The last
one takes it along when it is dropped (`idivm.broken_off`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.sql import SQL, Identifier, Literal

from orchestrator import catalog
from orchestrator.catalog import relations as catalog_relations
from orchestrator.catalog.relations import JoinView
from orchestrator.deltascript.names import Names
from orchestrator.errors import DatabaseError, is_interruption
from orchestrator.frontend.analysis import Analysis, analyse
from orchestrator.frontend.options import ParsedOptions
from orchestrator.frontend.statements import QualifiedName
from orchestrator.planning import notices
from orchestrator.planning.common_joins import CommonJoin, StoredJoin, common_join, stored_query
from orchestrator.planning.facts import AS_WRITTEN
from orchestrator.runtime.installation.new_view import NewView
from orchestrator.sqltext import fitted_name

NARROW = 256
"""The bytes of a joined row up to which all columns of the tables are stored, so that later views find theirs."""


def provide(
    connection: Connection[Any],
    new: NewView,
    names: Names,
    schema: str,
    define: Callable[[Connection[Any], NewView, Names], None],
    create: Callable[[Connection[Any], NewView], catalog.ViewInfo],
) -> int | None:
    """Return the ID of the view that stores the join of a new view, which may be created for it."""
    if new.options.common_join != "on":
        return None
    with connection.transaction(force_rollback=True):
        define(connection, new, names)
        analysis = _analysed(connection, names)
        join = _joined(analysis, new)
        if isinstance(join, str):
            reason = join
        else:
            for stored in catalog_relations.join_views(connection, join.tables):
                content = _stored(connection, stored)
                if content is not None and content.answers(join):
                    return stored.id
            query = stored_query(join, _columns(connection, analysis, join))
            name = _free_name(connection, schema, join.scans[0].table.name)
    if isinstance(join, str):
        notices.say(
            connection, Literal(f"{new.name} does not share its join with other views: {reason}.")
        )
        return None
    created = create(connection, NewView(QualifiedName(name, schema), query, None, ParsedOptions()))
    notices.say(
        connection,
        Literal(
            f"{created.name} stores the join of {new.name} for all views with common_join = on."
        ),
    )
    return created.id


@contextmanager
def dropped_unless_read(connection: Connection[Any], view_id: int | None) -> Iterator[None]:
    """Drop a view that stores a join if a block fails, so that nobody reads it."""
    try:
        yield
    except BaseException:
        if view_id is not None:
            with suppress(psycopg.Error), connection.transaction():
                catalog_relations.keep_for_readers(connection, view_id)
                connection.execute("SELECT idivm.drop_orphans()")
        raise


def read(connection: Connection[Any], names: Names, view_id: int) -> None:
    """Have a definition read its join from a maintained view. The query as it was written stays beside it."""
    catalog_relations.keep_for_readers(connection, view_id)
    analysis = _analysed(connection, names)
    stored = catalog_relations.join_view(connection, view_id)
    content = _stored(connection, stored) if stored is not None else None
    join = common_join(analysis.plan) if analysis.plan is not None else None
    if content is None or join is None or analysis.plan is None or not content.answers(join):
        raise DatabaseError(
            f"The tables of {names.view}, or the view that stores their join, have changed meanwhile; try again."
        )
    query = content.read_in(analysis.plan, join)
    try:
        with connection.transaction():
            connection.execute(
                SQL("CREATE VIEW {} AS {}").format(names.written, SQL(analysis.text))
            )
            catalog.give_to_owner_of(connection, names.written, names.definition)
            connection.execute(
                SQL("CREATE OR REPLACE VIEW {} AS {}").format(names.definition, SQL(query))
            )
    except psycopg.Error as error:
        if is_interruption(error):
            raise
        notices.say(
            connection,
            Literal(
                f"{names.view} does not share its join with other views: {error.diag.message_primary}."
            ),
        )


def _analysed(connection: Connection[Any], names: Names) -> Analysis:
    oid = catalog.relation_oid(connection, names.definition)
    assert oid is not None
    catalog.take_settings(connection, AS_WRITTEN)
    return analyse(connection, oid)


def _joined(analysis: Analysis, new: NewView) -> CommonJoin | str:
    """Return the join that a view may share, or why there is none."""
    options = new.options
    named = [
        name
        for name in (
            "updatable",
            "static",
            "append_only",
            "factorizable",
            "variable_order",
            "inputs",
            "ranked",
        )
        if getattr(options, name)
    ]
    if named:
        return f"the option {named[0]} says how its own tables are read"
    if options.strategy in ("viewtree", "skew") or options.representation != "listing":
        return "its strategy stores the tables of the join in its own way"
    if options.initialise != "postgresql" or new.adopted is not None:
        return "its first content is computed elsewhere"
    if analysis.plan is None or analysis.volatile or analysis.temporary or analysis.uncaptured:
        return "its query is not maintained incrementally"
    if analysis.time_dependent:
        return "its query depends on the time"
    if analysis.inlined or any(c.expression for use in analysis.sources for c in use.generated):
        return "its query reads plain views or virtual columns"
    if any(use.whole_row for use in analysis.sources):
        return "its query reads a row as one value"
    join = common_join(analysis.plan)
    if join is None:
        return "its query does not begin with a join of different tables by equal columns"
    if any(use.relation.maintained is not None for use in analysis.sources):
        return "its query reads a maintained view"
    return join


def _stored(connection: Connection[Any], stored: JoinView) -> StoredJoin | None:
    plan = analyse(connection, stored.definition).plan
    return StoredJoin.of(stored.oid, stored.schema, stored.name, plan)


def _columns(
    connection: Connection[Any], analysis: Analysis, join: CommonJoin
) -> dict[int, tuple[Any, ...]]:
    """Return the further columns that a stored join holds for later views, by table."""
    widths = catalog_relations.column_widths(connection, join.tables)
    narrow = sum(widths.values()) <= NARROW
    return {
        use.relation.oid: tuple(
            column
            for column in use.relation.columns
            if narrow and (use.relation.oid, column.attnum) in widths
        )
        for use in analysis.sources
        if use.relation.oid in join.tables
    }


def _free_name(connection: Connection[Any], schema: str, table: str) -> str:
    name, number = fitted_name(table, "_join"), 2
    while catalog.relation_oid(connection, Identifier(schema, name)) is not None:
        name, number = fitted_name(table, f"_join_{number}"), number + 1
    return name
