"""Plan views again: after DDL in plain SQL, with other indexes, when a view below was replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.sql import SQL, Identifier, Literal

from orchestrator import catalog
from orchestrator.catalog import ViewInfo, ascii_json
from orchestrator.catalog import objects as catalog_objects
from orchestrator.catalog import take_over as catalog_take_over
from orchestrator.catalog import unplanned as catalog_unplanned
from orchestrator.catalog.streams import streams_below
from orchestrator.deltascript import emit, program, reads
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import ON_READ, Evidence, MaintenancePlan
from orchestrator.errors import (
    IdivmError,
    UnsupportedError,
    UsageError,
    is_interruption,
)
from orchestrator.frontend.options import ParsedOptions, parse_options
from orchestrator.planning.view import plan_view
from orchestrator.runtime.enumeration import relations
from orchestrator.runtime.errors import explain
from orchestrator.runtime.installation import feeds, indexes, modes, shown, sources, tables
from orchestrator.runtime.installation.locks import held_apart
from orchestrator.runtime.installation.names import bound, names_of
from orchestrator.runtime.installation.recording import record_plan
from orchestrator.sqltext import fitted_name


def follow(connection: Connection[Any], view_ids: Sequence[int]) -> dict[int, str]:
    """Follow changes by plain SQL to the tables and plain views that views read directly or indirectly.

    Return the views that could not be planned again, each with the reason.
    """
    connection.execute("SELECT idivm.note_grants()")
    concerned = catalog.refresh_order(connection, view_ids)
    unplanned = {}
    for source_id in catalog.sources_without_capture(
        connection, catalog.sources_of(connection, concerned)
    ):
        if not catalog.sources_without_capture(connection, [source_id]):
            # Another table of the same view was captured again, and this one with it.
            continue
        if reason := _reason_against(connection, partial(renew_capture, connection, source_id)):
            _, readers = _broken_with(connection, source_id)
            unplanned.update(dict.fromkeys(readers, reason))
    whole = catalog.sources_of(connection, [item for item in concerned if item not in unplanned])
    sources.sync_members(connection, whole)
    for view in catalog.views_to_replan(connection, concerned):
        if view.id in unplanned:
            continue
        if reason := _reason_against(connection, partial(replan, connection, view), view):
            unplanned[view.id] = reason
    for view_id in indexes.views_to_reconsider(connection, concerned):
        reconsider = partial(_reconsider, connection, catalog.view_by_id(connection, view_id))
        if view_id not in unplanned and (reason := _reason_against(connection, reconsider)):
            unplanned[view_id] = reason
    return unplanned


def _reconsider(connection: Connection[Any], view: ViewInfo) -> None:
    """Plan a view again after an index of its tables was created or dropped.

    If only the recorded facts about indexes change, keep the content.
    """
    known = indexes.as_indexed(connection, view.plan)
    options = parse_options(view.options.items())
    try:
        plan = current_plan(connection, view, options, known)
    except (UnsupportedError, UsageError):
        # The index was that of a key, which a table has lost since.
        replan(connection, view)
        return
    before, after = view.plan.program, plan.program
    if (before.strategy, before.states, before.script) != (
        after.strategy,
        after.states,
        after.script,
    ):
        replan(connection, view)
        return
    connection.execute(
        "UPDATE idivm.views SET plan = %s WHERE id = %s", [ascii_json.dump(plan.stored()), view.id]
    )


def _reason_against(
    connection: Connection[Any], plan: Callable[[], None], view: ViewInfo | None = None
) -> str | None:
    """Plan views again. Return the reason if that fails."""
    try:
        plan()
    except (IdivmError, psycopg.Error) as error:
        if connection.closed or is_interruption(error):
            raise
        if view is not None and isinstance(error, UnsupportedError):
            warn(
                connection,
                f"{view.name} could not be planned again, so that each refresh recomputes it: {error}",
            )
        reason = explain(error, "planning it again") if isinstance(error, psycopg.Error) else error
        return f"it could not be planned again: {str(reason).rstrip('.')}"
    return None


def warn(connection: Connection[Any], sentence: str) -> None:
    """Send a warning to the notice listeners of a connection."""
    message = Literal(sentence).as_string(connection)
    text = Literal(f"BEGIN RAISE WARNING USING MESSAGE = {message}; END")
    connection.execute(SQL("DO {}").format(text))


def renew_capture(connection: Connection[Any], source_id: int) -> None:
    """Capture a table again whose log or definition view lacks a part, and plan its readers again.

    Also capture the other tables of these readers again that are in this state, because the readers cannot be
    planned before.
    """
    with connection.transaction():
        broken, readers = _broken_with(connection, source_id)
        modes.hold(connection, *readers)
        sources.hold(connection, readers)
        for source in broken:
            catalog_objects.uninstall_source(connection, source)
        for reader in readers:
            replan(connection, catalog.view_by_id(connection, reader))
        modes.sync(connection)


def _broken_with(connection: Connection[Any], source_id: int) -> tuple[list[int], list[int]]:
    """Return the sources without capture that have readers in common with this source, and all their readers."""
    broken = {source_id}
    while True:
        readers = {
            reader
            for source in broken
            for reader in catalog_objects.readers_of_source(connection, source)
        }
        tower = {above for reader in readers for above, _ in catalog.readers_of(connection, reader)}
        reads = catalog.sources_of(connection, sorted(readers | tower))
        more = set(catalog.sources_without_capture(connection, reads)) - broken
        if not more:
            return sorted(broken), sorted(readers)
        broken |= more


def replan(connection: Connection[Any], view: ViewInfo, *, afresh: bool = False) -> None:
    """Plan a view again, for example after a plain view was replaced or a table lost a key.

    If its content gets another layout, or `afresh` another table because its own is damaged, also plan the
    views that read it. The next refresh rebuilds the content of all these views.
    """
    readers = [reader_id for reader_id, _ in catalog.readers_of(connection, view.id)]
    # Lower views first. Read each now, because an earlier view's planning may have changed it.
    tower = [catalog.view_by_id(connection, view_id) for view_id in (view.id, *reversed(readers))]
    at_rest = sorted(item.id for item in tower if not modes.is_synchronous(connection, item.id))
    with ExitStack() as stack:
        for view_id in at_rest:
            stack.enter_context(held_apart(connection, view_id))
        stack.enter_context(connection.transaction())
        modes.hold(connection, *(item.id for item in tower))
        try:
            left = _replan_one(connection, tower[0], afresh)
        except UnsupportedError as error:
            if view.maintain != ON_READ:
                raise
            _show_query(connection, view, error)
            return
        if left is None:
            return
        # Capture uses the old content until the readers use the new content.
        _drop_contents(
            connection, [left, *(_replan_one(connection, reader) for reader in tower[1:])]
        )


def _replan_one(
    connection: Connection[Any], view: ViewInfo, afresh: bool = False
) -> Identifier | None:
    """Plan a view again. Return the new name of the table with the old content if another table replaced it."""
    names = names_of(view)
    plan, options = _possible_plan(connection, view)
    before = catalog.sources_of(connection, [view.id])
    record_plan(connection, view.id, plan, options)
    names = bound(connection, names)
    old = _restate(connection, view, plan, names, afresh)
    for statement in program.create_program(plan.program, names):
        connection.execute(statement)
    connection.execute("SELECT idivm.hand_over(%s)", [view.id])
    tables.bring_in_line(connection, view.id, fill=False)
    if old is not None or not plan.program.is_stored:
        _fill(connection, view.id, names, afresh)
    if feeds.has_feed(connection, view.id):
        feeds.bring_in_line(connection, view.id)
    lost = before - catalog.sources_of(connection, [view.id])
    connection.execute("SELECT idivm.hold_logs(%s)", [list(lost)])
    for source_id in lost:
        connection.execute("SELECT idivm.uninstall_unused_source(%s)", [source_id])
    connection.execute("UPDATE idivm.views SET status = 'invalid' WHERE id = %s", [view.id])
    catalog.describe(connection, view.id)
    return old


def _fill(connection: Connection[Any], view_id: int, names: Names, afresh: bool) -> None:
    """Fill new states and contents at once: readers would find them empty until the next refresh has computed them.

    The function runs as the view's owner. A content that replaces a damaged one stays empty if its query fails.
    Spark fills those of views over streams.
    """
    if streams_below(connection, [view_id]):
        return
    with suppress(psycopg.DataError) if afresh else nullcontext(), connection.transaction():
        connection.execute(SQL("SELECT {}(NULL, true)").format(names.refresh))


def _possible_plan(
    connection: Connection[Any], view: ViewInfo
) -> tuple[MaintenancePlan, ParsedOptions]:
    """Return the plan that a view would get today, and its options.

    If its strategy or representation lacks something that it needs (a key, a property of a plain view below, or the
    name of an input that its owner renamed), choose another one.
    """
    given = parse_options(view.options.items())
    auto = replace(given, strategy="auto")
    for options in dict.fromkeys(
        (given, auto, replace(auto, representation="listing", inputs=None, ranked=None))
    ):
        try:
            return current_plan(connection, view, options), options
        except (UnsupportedError, UsageError) as error:
            reason = error
    raise reason


def _show_query(connection: Connection[Any], view: ViewInfo, reason: UnsupportedError) -> None:
    """Let a view, and the views above it, compute their queries at every read until they can be planned."""
    warn(
        connection,
        f"{view.name} computes its query at every read, as it could not be planned again: {reason}",
    )
    connection.execute(
        "SELECT idivm.unplan(v.relation, q.columns, q.query, v.options, v.settings, 'pg_catalog, pg_temp')"
        " FROM idivm.views v CROSS JOIN LATERAL idivm.query_of(v) AS q WHERE v.id = %s",
        [view.id],
    )


def current_plan(
    connection: Connection[Any],
    view: ViewInfo,
    options: ParsedOptions,
    known: Evidence | None = None,
) -> MaintenancePlan:
    """Return the plan that a view would get today, with the settings of its creator.

    It uses the facts about tables and costs in `known`, or today's facts of the database.
    """
    was_shown = catalog_objects.is_shown(connection, view.id)
    plan = plan_view(connection, names_of(view), options, known=known, before=view)
    if was_shown and not catalog_objects.is_shown(connection, view.id):
        # Planning has completed an order, and the relation does not depend on the original query yet.
        shown.show_content(connection, view)
    # A view below may have been replaced by a view that depends on more settings.
    settings = tuple({**dict(plan.program.settings), **view.settings}.items())
    return replace(plan, program=replace(plan.program, settings=settings))


def _restate(
    connection: Connection[Any],
    view: ViewInfo,
    plan: MaintenancePlan,
    names: Names,
    afresh: bool,
) -> Identifier | None:
    """Create the state tables again. Create the content's table again only if its layout changes.

    In that case, return the name of the relation with the old content, which may not exist any more.
    """
    kept = view.is_planned and plan.program.layout == view.plan.program.layout and not afresh
    turned = plan.merges != (view.read_from is not None)
    old = fitted_name(names.view, f"_before_{names.id}")
    if turned and not plan.merges:
        # From now on, each of them writes the content.
        connection.execute("SELECT idivm.hold_writers(%s)", [[view.id]])
    if not kept and view.base is not None:
        connection.execute(
            SQL("ALTER TABLE {} RENAME TO {}").format(
                names.state(plan.program.content), Identifier(old)
            )
        )
    connection.execute("SELECT idivm.drop_states(%s, %s)", [view.id, True])
    for statement in emit.create_states(plan.program, names, content=not kept):
        connection.execute(statement)
    # A read of pending changes needs columns that the old rows do not have.
    if not (kept or afresh or plan.merges) and view.base is not None and plan.program.is_stored:
        new = names.state(plan.program.content).as_string(connection)
        before = Identifier("idivm_state", old).as_string(connection)
        connection.execute(
            "SELECT idivm.reshape_content(%s, %s, %s)",
            [before, new, list(plan.program.column_names)],
        )
    for statement in emit.index_states(plan.program, names, content=not kept):
        connection.execute(statement)
    if plan.merges:
        for statement in reads.create_read_views(plan.program, names):
            connection.execute(statement)
    relations.create(connection, names, plan)
    if kept and not turned:
        return None
    if view.options.get("relation") != "table":
        if not kept:
            catalog_take_over.make_indexes(
                connection, view.oid, view.id, names.state(plan.program.content)
            )
        for statement in shown.statements(connection, plan, names, SQL(view.relation)):
            connection.execute(statement)
    read_from = names.state(reads.ON_READ).as_string(connection) if plan.merges else None
    connection.execute(
        "UPDATE idivm.views SET relation = %s::regclass, state = %s::regclass, read_from = %s::regclass WHERE id = %s",
        [
            view.relation,
            names.state(plan.program.content).as_string(connection),
            read_from,
            view.id,
        ],
    )
    if turned:
        if not plan.merges:
            connection.execute("SELECT idivm.drop_read_views(%s)", [view.id])
        modes.sync(connection)
    return None if kept else Identifier("idivm_state", old)


def replan_readers(connection: Connection[Any], readers: Sequence[int]) -> None:
    """Plan the views above a replaced view again, lower views first. Their contents are recomputed later.

    A view that waits for planning shows its query, so only its former plan is removed.
    """
    views = [catalog.view_by_id(connection, reader) for reader in readers]
    unplanned = catalog_unplanned.views_with(
        connection, [view.oid for view in views if view.oid is not None]
    )
    without_plan = {view.oid for view in unplanned}
    for view in reversed(views):
        if view.oid in without_plan:
            connection.execute("SELECT idivm.uninstall(%s, true)", [view.id])
    planned = [view for view in views if view.oid not in without_plan]
    contents = []
    for view in planned:
        # Read the view now, because the view below it may have been planned again.
        contents.append(_replan_one(connection, catalog.view_by_id(connection, view.id)))
        modes.refuse_time_dependent(connection, view.id, view.maintain)
    _drop_contents(connection, contents)


def _drop_contents(connection: Connection[Any], contents: Iterable[Identifier | None]) -> None:
    """Drop the relations that held the contents of views before they were planned again."""
    for content in filter(None, contents):
        kind = SQL("VIEW" if catalog.is_plain_view(connection, content) else "TABLE")
        connection.execute(SQL("DROP {} IF EXISTS {}").format(kind, content))
