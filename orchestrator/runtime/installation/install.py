"""Create, replace and drop maintained views.

Creation takes two transactions (architecture, "Watermarks"). The first installs definition and capture, and
its commit waits for the open writers. The second takes a snapshot, computes the states in it and makes the
view readable. A session lock distinguishes a running creation from an interrupted one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
from psycopg import Connection, IsolationLevel
from psycopg.errors import (
    InvalidTableDefinition,
)
from psycopg.pq import TransactionStatus
from psycopg.sql import SQL, Composable, Identifier, Literal

from orchestrator import catalog
from orchestrator.catalog import DroppedView, ViewInfo
from orchestrator.catalog import costs as catalog_costs
from orchestrator.catalog import take_over as catalog_take_over
from orchestrator.catalog import unplanned as catalog_unplanned
from orchestrator.catalog.relations import schema_and_name
from orchestrator.catalog.search_path import path_of, taking_path, users_path
from orchestrator.catalog.streams import stream_tables
from orchestrator.catalog.unplanned import UnplannedView
from orchestrator.deltascript import emit, program
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import MaintenancePlan
from orchestrator.deltascript.recomputing import content_share, fill_content
from orchestrator.errors import (
    DatabaseError,
    NameTakenError,
    UnsupportedError,
    UsageError,
    is_interruption,
)
from orchestrator.frontend.options import parse_options
from orchestrator.frontend.statements import QualifiedName, parse_name
from orchestrator.planning import notices
from orchestrator.planning.view import plan_view
from orchestrator.runtime import progress
from orchestrator.runtime.errors import explained
from orchestrator.runtime.installation import common_joins, indexes, modes, sources
from orchestrator.runtime.installation.locks import held, held_apart
from orchestrator.runtime.installation.names import bound
from orchestrator.runtime.installation.new_view import Initialiser, NewView
from orchestrator.runtime.installation.publication import (
    ATTEMPTS,
    in_turns,
    make_indexes_of_users,
    publish_content,
)
from orchestrator.runtime.installation.recording import record_plan
from orchestrator.runtime.installation.replanning import warn
from orchestrator.runtime.stream_rows import rows_in_place, rows_read


def create_view(
    connection: Connection[Any], new: NewView, initialise: Initialiser | None = None
) -> ViewInfo:
    """Create a maintained view with its first content. If that fails, leave nothing behind."""
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise UsageError(
            f"CREATE VIEW {new.name} commits while it works; run it outside a transaction block."
        )
    progress.reach(connection, new.name.name, "analyze")
    relation = _placed(connection, new.name)
    if new.replace and new.waiting is None:
        new = replace(new, waiting=_waiting(connection, relation))
    replaced = _replaced(connection, new, relation)
    view_id = _next_id(connection)
    names = Names(view_id, new.name.name)
    readers = _readers_of(connection, replaced)
    replaced_ids = [replaced.id, *readers] if replaced else []
    schema, _ = schema_and_name(connection, relation)
    provided = common_joins.provide(connection, new, names, schema or "", define, create_view)
    with (
        common_joins.dropped_unless_read(connection, provided),
        held(connection, view_id),
        ExitStack() as stack,
    ):
        # Writers of a synchronous view would wait for its lock, while this session waits for the writers.
        for at_rest in sorted(replaced_ids):
            if not modes.is_synchronous(connection, at_rest):
                stack.enter_context(held_apart(connection, at_rest))
        with connection.transaction():
            plan = _install(connection, new, names, relation, replaced, provided)
            _refuse_circle(connection, names, readers)
        try:
            _fill(connection, plan, names, relation, replaced, readers, initialise, new)
        except BaseException:
            with suppress(psycopg.Error), connection.transaction():
                # After the commit of the publication, an interruption comes too late.
                connection.execute(
                    "SELECT idivm.uninstall(id) FROM idivm.views WHERE id = %s AND status = 'building'",
                    [view_id],
                )
            raise
    content_only = initialise is None and _waits_with_states(connection, new, plan)
    try:
        for statement in program.analyse_states(plan.program, names, content_only=content_only):
            connection.execute(statement)
    except psycopg.Error as error:
        if connection.closed or not is_interruption(error):
            raise
        # The view is there by now. Large tables may take longer than a statement_timeout allows.
        reason = error.diag.message_primary
        warn(connection, f"{names.view} was created, but its tables were not analyzed: {reason}.")
    if plan.program.content_stands_alone:
        expected = partial(catalog_costs.expected, connection)
        share = content_share(plan.program, bound(connection, names), expected)
        catalog_costs.note_content_share(connection, view_id, share)
    created = catalog.view_by_id(connection, view_id)
    if publications := catalog.publications_of_ours(connection):
        warn(
            connection,
            f"The tables behind {created.name} are published by {', '.join(publications)}. A subscriber that "
            "lacks these tables stops with an error, and in one that has idivm they would mix with its own: "
            "publish tables by name, or schemas that are not idivm's.",
        )
    return created


def drop_view(connection: Connection[Any], view: ViewInfo, cascade: bool = False) -> None:
    """Drop a maintained view and everything that only it used. With `cascade`, first drop its readers."""
    readers = catalog.readers_of(connection, view.id)
    if readers and not cascade:
        names = ", ".join(name for _, name in readers)
        raise UsageError(
            f"{view.name} is read by the maintained views {names}; drop them first or use CASCADE."
        )
    with connection.transaction():
        gone = [*(reader_id for reader_id, _ in readers), view.id]
        modes.hold(connection, *gone)
        sources.hold(connection, gone)
        for reader_id, _ in readers:
            connection.execute("SELECT idivm.uninstall(%s)", [reader_id])
        if cascade:
            relation = SQL(view.relation)
            kind = SQL("VIEW" if catalog.is_plain_view(connection, relation) else "TABLE")
            connection.execute(SQL("DROP {} {} CASCADE").format(kind, relation))
        connection.execute("SELECT idivm.uninstall(%s)", [view.id])
    if view.options.get("common_join") == "on":
        drop_orphans(connection)


def restore_view(
    connection: Connection[Any],
    dropped: DroppedView,
    initialiser: Callable[[NewView], Initialiser | None],
) -> ViewInfo:
    """Recreate a view that DROP ... CASCADE removed together with a relation that it read."""
    new = NewView(
        parse_name(dropped.name),
        dropped.query,
        tuple(dropped.columns),
        parse_options(dropped.options.items()),
    )
    with taking_path(connection, dropped.search_path or path_of(connection) or ""):
        created = create_view(connection, new, initialiser(new))
        catalog.grant(connection, new.name.identifier, dropped.grants)
    # Return the name as this session writes it.
    return catalog.view_by_id(connection, created.id)


def drop_orphans(connection: Connection[Any]) -> int:
    """Remove leftovers of views that plain SQL dropped or that were half created."""
    with connection.transaction():
        row = connection.execute("SELECT idivm.drop_orphans()").fetchone()
    assert row is not None
    return int(row[0])


def _placed(connection: Connection[Any], name: QualifiedName) -> Identifier:
    if name.schema:
        return _outside(name.schema, name)
    with users_path(connection):
        row = connection.execute("SELECT pg_catalog.current_schema()").fetchone()
    if row is None or row[0] is None:
        raise UsageError(
            f"No schema to create {name} in: the search_path names none that exists; write schema.name."
        )
    return _outside(row[0], name)


def _outside(schema: str, name: QualifiedName) -> Identifier:
    if schema in catalog.OWN_SCHEMAS:
        raise UsageError(
            f"The schema {schema} is idivm's own; name another one for {name.name}, as in"
            f" public.{name.name}, or put another one first in search_path."
        )
    return Identifier(schema, name.name)


def _replaced(connection: Connection[Any], new: NewView, relation: Identifier) -> ViewInfo | None:
    if new.adopted is not None:
        return None
    oid = catalog.relation_oid(connection, relation)
    if oid is None:
        return None
    view = catalog.view_by_oid(connection, oid)
    name = relation.as_string(connection)
    if view is None and new.waiting is not None:
        return None
    if not new.replace:
        raise NameTakenError(f"{name} exists already; choose another name or drop it first.")
    if view is None:
        raise NameTakenError(
            f"{name} exists and is not maintained by idivm; drop it first or choose another name."
        )
    return view


def _readers_of(connection: Connection[Any], replaced: ViewInfo | None) -> list[int]:
    """Return the IDs of the maintained views that read a view directly or indirectly, lower views first."""
    if replaced is None:
        return []
    readers = [reader_id for reader_id, _ in catalog.readers_of(connection, replaced.id)]
    return readers[::-1]


def _refuse_circle(connection: Connection[Any], names: Names, readers: Sequence[int]) -> None:
    """Refuse a new query of a view that reads one of the maintained views that read the view."""
    below = catalog.refresh_order(connection, [names.id])
    if circle := [reader for reader in readers if reader in below]:
        reader = catalog.view_by_id(connection, circle[-1]).name
        raise UsageError(
            f"{names.view} cannot read {reader}, which reads {names.view}; drop {reader} first."
        )


def _waiting(connection: Connection[Any], relation: Identifier) -> UnplannedView | None:
    """Return the view of this name that SQL created and that waits for planning."""
    oid = catalog.relation_oid(connection, relation)
    views = catalog_unplanned.views_with(connection, [oid]) if oid is not None else []
    return views[0] if views else None


def _next_id(connection: Connection[Any]) -> int:
    row = connection.execute(
        "SELECT nextval(pg_get_serial_sequence('idivm.views', 'id'))"
    ).fetchone()
    assert row is not None
    return int(row[0])


def _install(
    connection: Connection[Any],
    new: NewView,
    names: Names,
    relation: Identifier,
    replaced: ViewInfo | None,
    provided: int | None,
) -> MaintenancePlan:
    define(connection, new, names)
    if provided is not None:
        common_joins.read(connection, names, provided)
    with users_path(connection):
        (search_path,) = connection.execute(
            "SELECT pg_catalog.current_setting('search_path')"
        ).fetchone() or (None,)
    progress.reach(connection, new.name.name, "capture")
    before = replaced if replaced and replaced.query == new.query else None
    plan = plan_view(connection, names, new.options, notify=True, before=before)
    connection.execute(
        "INSERT INTO idivm.views"
        " (id, name, definition, strategy, maintain, query, options, search_path)"
        " VALUES (%s, %s, %s::regclass, %s, %s, %s, %s, %s)",
        [
            names.id,
            relation.as_string(connection),
            names.definition.as_string(connection),
            plan.strategy,
            plan.maintain,
            new.query,
            json.dumps(new.options.to_json()),
            search_path,
        ],
    )
    record_plan(connection, names.id, plan, new.options)
    if recomputed := notices.recompute_notice(new.name.name, plan, new.options):
        notices.say(connection, Literal(recomputed))
    for notice in indexes.notices(connection, new.name.name, plan):
        notices.say(connection, Literal(notice))
    catalog.refuse_forbidden(connection, names.id, str(new.name))
    if (given := new.waiting or new.adopted) is not None:
        catalog_unplanned.refuse_capture(
            connection,
            given.oid,
            [source.oid for source in plan.program.sources],
            new.options.create_indexes == "on",
        )
    modes.refuse_time_dependent(connection, names.id, plan.maintain)
    connection.execute("SELECT idivm.check_gate(%s)", [names.id])
    modes.refuse_synchronous_cut(connection)
    return plan


def define(connection: Connection[Any], new: NewView, names: Names) -> None:
    """Create the definition view, so that PostgreSQL analyzes the query."""
    listing: Composable = SQL("")
    if new.columns is not None:
        listing = SQL(" ({})").format(SQL(", ").join(map(Identifier, new.columns)))
    # The query is the user's own text. PostgreSQL parses it only here.
    statement = SQL("CREATE VIEW {}{} AS {}").format(names.definition, listing, SQL(new.query))
    ahead = len(statement.as_string(connection)) - len(new.query)
    try:
        with (
            explained(f"Creating {new.name}", new.query, ahead, leaving=InvalidTableDefinition),
            users_path(connection),
        ):
            connection.execute(statement)
    except InvalidTableDefinition as error:
        if "temporary" not in (error.diag.message_primary or ""):
            raise
        raise UnsupportedError(
            f"{new.name} reads a temporary table, which no other session can see;"
            " make the table a permanent one."
        ) from error


def _waits_with_states(connection: Connection[Any], new: NewView, plan: MaintenancePlan) -> bool:
    """Return whether a take-over computes the content alone.

    The first refresh with changes computes the other states, and until then the view costs what it cost before.
    """
    return (
        new.adopted is not None
        and not _streams_of(connection, plan)
        and plan.maintain == modes.DEFERRED
        and plan.program.content_stands_alone
    )


def _streams_of(connection: Connection[Any], plan: MaintenancePlan) -> list[int]:
    """Return the sources of a plan, by oid, whose rows stay in files."""
    return sorted(stream_tables(connection, [source.oid for source in plan.program.sources]))


def _fill(
    connection: Connection[Any],
    plan: MaintenancePlan,
    names: Names,
    relation: Identifier,
    replaced: ViewInfo | None,
    readers: Sequence[int],
    initialise: Initialiser | None,
    new: NewView,
) -> None:
    names = bound(connection, names)
    # Publish while there are no writers if writers maintain the view, or maintained the replaced view. The
    # same holds if other views read it, because these are planned again with it.
    kept = plan.maintain != modes.DEFERRED and not plan.merges
    kept_before = (
        replaced is not None and replaced.maintain != modes.DEFERRED and replaced.read_from is None
    )
    by_writers = kept or kept_before or bool(readers)
    attempts = ATTEMPTS if new.waiting or new.adopted else 1
    content_only = initialise is None and _waits_with_states(connection, new, plan)
    progress.reach(connection, names.view, "compute")
    prepared = initialise(connection, plan, names) if initialise else None
    snapshot = prepared.snapshot if prepared else None
    streams = [] if snapshot else _streams_of(connection, plan)
    level = connection.isolation_level
    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    try:
        with (
            rows_read(connection, streams),
            connection.transaction(),
            rows_in_place(connection),
        ):
            catalog.refuse_forbidden(connection, names.id, names.view)
            if prepared and snapshot:
                prepared.finish()
            else:
                catalog.take_settings(connection, dict(plan.program.settings))
                for statement in emit.create_states(plan.program, names):
                    connection.execute(statement)
                block = program.program_block(plan.program, names)
                for statement in program.create_program(plan.program, names, block):
                    connection.execute(statement)
                if content_only:
                    connection.execute("SET LOCAL row_security = off")
                    for statement in fill_content(plan.program, names):
                        connection.execute(statement)
                    connection.execute("SET LOCAL row_security TO DEFAULT")
                else:
                    settings, filling = program.fill_states(plan.program, names, block)
                    with catalog.with_settings(connection, settings):
                        connection.execute(filling)
            progress.reach(connection, names.view, "index")
            for statement in emit.index_states(plan.program, names):
                connection.execute(statement)
            progress.reach(connection, names.view, "publish")
            connection.execute(
                "INSERT INTO idivm.watermarks (view, mark, cluster, refreshed_at, content_only)"
                " VALUES (%s, ROW(coalesce(%s::pg_snapshot, pg_current_snapshot()), NULL, NULL, NULL)::idivm.watermark,"
                " idivm.cluster(), now(), %s)",
                [names.id, snapshot, content_only],
            )
            if snapshot is None:
                connection.execute("SELECT idivm.discard_foreign_log(%s)", [names.id])
            if prepared:
                catalog.note_initialised(connection, names.id, prepared.initialised)
            if new.adopted is not None:
                catalog_take_over.note_indexes(connection, new.adopted)
            if new.options.relation != "table":
                make_indexes_of_users(connection, plan, names, relation)
            if not by_writers:
                publish = partial(publish_content, connection, plan, names, relation, replaced, new)
                in_turns(connection, publish, attempts)
        if by_writers:

            def publish_with_readers() -> None:
                # Dropping the triggers also blocks readers until the transaction ends.
                concerned = [names.id, *([replaced.id, *readers] if replaced else [])]
                connection.execute(
                    "SELECT idivm.hold_writers(%s, %s)", [concerned, replaced is not None]
                )
                if readers != _readers_of(connection, replaced):
                    raise DatabaseError(
                        f"Other maintained views read {names.view} by now; replace it again."
                    )
                publish_content(connection, plan, names, relation, replaced, new, readers)
                modes.start(connection, names.id, *readers)

            connection.isolation_level = IsolationLevel.READ_COMMITTED
            in_turns(connection, publish_with_readers, attempts)
    finally:
        if not connection.closed:
            connection.isolation_level = level
