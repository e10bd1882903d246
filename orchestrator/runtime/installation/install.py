"""Creating, replacing and dropping maintained views.

Creation takes two transactions (architecture, "Watermarks"): the first installs definition and
capture, and its commit waits for the open writers; the second takes a snapshot, computes the
states in it and makes the view readable. A session lock tells a creation that goes on from one
that was cut short.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import psycopg
from psycopg import Connection, IsolationLevel
from psycopg.errors import (
    DependentObjectsStillExist,
    InvalidTableDefinition,
    LockNotAvailable,
)
from psycopg.pq import TransactionStatus
from psycopg.sql import SQL, Composable, Identifier, Literal

from orchestrator.deltascript import emit, program
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import Evidence, Initialised, MaintenancePlan
from orchestrator.errors import (
    DatabaseError,
    IdivmError,
    NameTakenError,
    UnsupportedError,
    UsageError,
)
from orchestrator.frontend.options import ViewOptions, parse_options
from orchestrator.frontend.statements import QualifiedName, parse_name
from orchestrator.runtime import catalog, progress
from orchestrator.runtime.catalog import DroppedView, ViewInfo, ascii_json
from orchestrator.runtime.catalog import objects as catalog_objects
from orchestrator.runtime.catalog import take_over as catalog_take_over
from orchestrator.runtime.catalog import unplanned as catalog_unplanned
from orchestrator.runtime.catalog.take_over import Adoptable
from orchestrator.runtime.catalog.unplanned import UnplannedView
from orchestrator.runtime.errors import explain, explained
from orchestrator.runtime.installation import indexes, modes, planning, sources
from orchestrator.runtime.search_path import path_of, taking_path, users_path
from orchestrator.sqltext import fitted_name
from orchestrator.strategies import recompute


@dataclass(frozen=True)
class NewView:
    """A view as it was asked for."""

    name: QualifiedName
    query: str
    columns: tuple[str, ...] | None
    options: ViewOptions
    replace: bool = False
    waiting: UnplannedView | None = None
    """The view that SQL created under this name, whose query the content replaces."""
    adopted: Adoptable | None = None
    """The materialized view in whose place this one comes."""


@dataclass(frozen=True)
class Prepared:
    """States that were computed beforehand, as of a snapshot."""

    snapshot: str | None
    """None if they were not, and are to be computed as usual."""
    initialised: tuple[Initialised, ...]
    finish: Callable[[], None]
    """Fills what is left to fill of the state tables, in the open transaction."""


ATTEMPTS, PAUSE = 100, 0.1
"""How often, and how many seconds apart, a view is published that others read meanwhile."""

ENDING = (psycopg.errors.OperatorIntervention, psycopg.errors.TransactionRollback)
"""Errors that are not the fault of a view: a cancelled query, a conflict with another transaction."""

Initialiser: TypeAlias = Callable[[Connection[Any], MaintenancePlan, Names], Prepared]
"""Makes the state tables and computes what they hold, by other means than the refresh function."""


def create_view(
    connection: Connection[Any], new: NewView, initialise: Initialiser | None = None
) -> ViewInfo:
    """Creates a maintained view, with its first content, or leaves nothing behind."""
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
    with held(connection, view_id), ExitStack() as stack:
        # The writers of a synchronous view wait for its lock, and this would wait for them.
        for at_rest in sorted(replaced_ids):
            if not modes.is_synchronous(connection, at_rest):
                stack.enter_context(held_apart(connection, at_rest))
        with connection.transaction():
            plan = _install(connection, new, names, relation, replaced)
            _refuse_circle(connection, names, readers)
        try:
            _fill(connection, plan, names, relation, replaced, readers, initialise, new)
        except BaseException:
            with suppress(psycopg.Error), connection.transaction():
                connection.execute("SELECT idivm.uninstall(%s)", [view_id])
            raise
    for statement in program.analyse_states(plan.program, names):
        connection.execute(statement)
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
    """Drops a maintained view and all that only it used; with `cascade` its readers first."""
    readers = catalog.readers_of(connection, view.id)
    if readers and not cascade:
        names = ", ".join(name for _, name in readers)
        raise UsageError(
            f"{view.name} is read by the maintained views {names}; drop them first or use CASCADE."
        )
    with connection.transaction():
        modes.hold(connection, *(reader_id for reader_id, _ in readers), view.id)
        for reader_id, _ in readers:
            connection.execute("SELECT idivm.uninstall(%s)", [reader_id])
        if cascade:
            connection.execute(SQL("DROP VIEW {} CASCADE").format(SQL(view.relation)))
        connection.execute("SELECT idivm.uninstall(%s)", [view.id])


def restore_view(
    connection: Connection[Any],
    dropped: DroppedView,
    initialiser: Callable[[NewView], Initialiser | None],
) -> ViewInfo:
    """Create a view again that DROP ... CASCADE took along with what it read."""
    new = NewView(
        parse_name(dropped.name),
        dropped.query,
        tuple(dropped.columns),
        parse_options(dropped.options.items()),
    )
    with taking_path(connection, dropped.search_path or path_of(connection) or ""):
        created = create_view(connection, new, initialiser(new))
        catalog.grant(connection, new.name.identifier, dropped.grants)
    # Its name as this session writes it.
    return catalog.view_by_id(connection, created.id)


def drop_orphans(connection: Connection[Any]) -> int:
    """Removes what is left of views that were dropped in plain SQL or created half."""
    with connection.transaction():
        row = connection.execute("SELECT idivm.drop_orphans()").fetchone()
    assert row is not None
    return int(row[0])


def follow(connection: Connection[Any], view_ids: Sequence[int]) -> dict[int, str]:
    """Follow what plain SQL did to the tables and plain views that views read, however indirectly.

    Return the views that could not be planned again, each with the reason.
    """
    connection.execute("SELECT idivm.note_grants()")
    concerned = catalog.refresh_order(connection, view_ids)
    unplanned = {}
    for source_id in catalog.sources_without_capture(
        connection, catalog.sources_of(connection, concerned)
    ):
        readers = catalog_objects.readers_of_source(connection, source_id)
        if reason := _reason_against(connection, partial(renew_capture, connection, source_id)):
            unplanned.update(dict.fromkeys(readers, reason))
    whole = catalog.sources_of(connection, [one for one in concerned if one not in unplanned])
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

    Where that changes nothing but what is known of indexes, the content stays.
    """
    known = indexes.as_indexed(connection, view.plan)
    options = parse_options(view.options.items())
    plan = plan_again(connection, view, options, known)
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
    """Plan views again; return why that is not possible."""
    try:
        plan()
    except (IdivmError, psycopg.Error) as error:
        if connection.closed or isinstance(error, ENDING):
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
    """Warn whoever listens to the notices of a connection."""
    message = Literal(sentence).as_string(connection)
    text = Literal(f"BEGIN RAISE WARNING USING MESSAGE = {message}; END")
    connection.execute(SQL("DO {}").format(text))


def renew_capture(connection: Connection[Any], source_id: int) -> None:
    """Captures a table again whose log or source view lacks a part, and plans its readers again."""
    with connection.transaction():
        readers = catalog_objects.readers_of_source(connection, source_id)
        modes.hold(connection, *readers)
        catalog_objects.uninstall_source(connection, source_id)
        for reader in readers:
            replan(connection, catalog.view_by_id(connection, reader))
        modes.sync(connection)


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
    oid = catalog.relation_oid(connection, relation)
    if oid is None:
        return None
    view = catalog.view_by_oid(connection, oid)
    shown = relation.as_string(connection)
    if view is None and (new.waiting is not None or new.adopted is not None):
        return None
    if not new.replace:
        raise NameTakenError(f"{shown} exists already; choose another name or drop it first.")
    if view is None:
        raise NameTakenError(
            f"{shown} exists and is not maintained by idivm; drop it first or choose another name."
        )
    return view


def _readers_of(connection: Connection[Any], replaced: ViewInfo | None) -> list[int]:
    """Return the IDs of the maintained views that read a view, however indirectly, lower views first."""
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
    """Return the view of this name that SQL created and that waits to be planned."""
    oid = catalog.relation_oid(connection, relation)
    views = catalog_unplanned.views_with(connection, [oid]) if oid is not None else []
    return views[0] if views else None


def _next_id(connection: Connection[Any]) -> int:
    row = connection.execute(
        "SELECT nextval(pg_get_serial_sequence('idivm.views', 'id'))"
    ).fetchone()
    assert row is not None
    return int(row[0])


@contextmanager
def held(connection: Connection[Any], view_id: int | None) -> Iterator[None]:
    """Keeps refreshes and sweeps away from a view."""
    if view_id is None:
        yield
        return
    connection.execute("SELECT pg_advisory_lock(idivm.lock_class(), %s)", [view_id])
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("SELECT pg_advisory_unlock(idivm.lock_class(), %s)", [view_id])


@contextmanager
def held_apart(connection: Connection[Any], view_id: int | None) -> Iterator[None]:
    """Keeps refreshes away from a view that writers do not keep, or says that they do by now."""
    with held(connection, view_id):
        if view_id is not None and modes.is_synchronous(connection, view_id):
            name = catalog.view_by_id(connection, view_id).name
            raise DatabaseError(
                f"Another session has changed how {name} is maintained meanwhile; try again."
            )
        yield


def _install(
    connection: Connection[Any],
    new: NewView,
    names: Names,
    relation: Identifier,
    replaced: ViewInfo | None,
) -> MaintenancePlan:
    define(connection, new, names)
    with users_path(connection):
        (search_path,) = connection.execute(
            "SELECT pg_catalog.current_setting('search_path')"
        ).fetchone() or (None,)
    progress.reach(connection, new.name.name, "capture")
    before = replaced if replaced and replaced.query == new.query else None
    plan = planning.plan_view(connection, names, new.options, notify=True, before=before)
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
    _use(connection, names.id, plan, new.options)
    if recomputed := planning.recompute_notice(new.name.name, plan, new.options):
        planning.say(connection, Literal(recomputed))
    for notice in indexes.notices(connection, new.name.name, plan):
        planning.say(connection, Literal(notice))
    catalog.refuse_forbidden(connection, names.id, str(new.name))
    if (given := new.waiting or new.adopted) is not None:
        catalog_unplanned.refuse_capture(
            connection,
            given.oid,
            [source.oid for source in plan.program.sources],
            new.options.create_indexes == "on",
        )
    modes.refuse_time_dependent(connection, names.id, plan.maintain)
    return plan


def define(connection: Connection[Any], new: NewView, names: Names) -> None:
    """Create the definition view, so that PostgreSQL analyzes the query."""
    listing: Composable = SQL("")
    if new.columns is not None:
        listing = SQL(" ({})").format(SQL(", ").join(map(Identifier, new.columns)))
    # The query is the user's own text: PostgreSQL parses it here and nowhere else.
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


def replan(connection: Connection[Any], view: ViewInfo, *, afresh: bool = False) -> None:
    """Plans a view again whose plain views were replaced, or of whose tables one lost what it promised.

    Where its content gets another layout, or `afresh` another table because its own is damaged, the
    views that read it are planned again as well. The next refresh rebuilds the content of all these.
    """
    readers = [reader_id for reader_id, _ in catalog.readers_of(connection, view.id)]
    # The lower ones first. As they are now: one may have been planned again with another.
    tower = [catalog.view_by_id(connection, view_id) for view_id in (view.id, *reversed(readers))]
    at_rest = sorted(one.id for one in tower if not modes.is_synchronous(connection, one.id))
    with ExitStack() as stack:
        for view_id in at_rest:
            stack.enter_context(held_apart(connection, view_id))
        stack.enter_context(connection.transaction())
        modes.hold(connection, *(one.id for one in tower))
        left = _replan_one(connection, tower[0], afresh)
        if left is None:
            return
        # Capture holds on to the old content until the readers have turned to the new one.
        _drop_contents(
            connection, [left, *(_replan_one(connection, reader) for reader in tower[1:])]
        )


def _replan_one(
    connection: Connection[Any], view: ViewInfo, afresh: bool = False
) -> Identifier | None:
    """Plans a view again; the name that the content's table has by then if another one took over."""
    names = names_of(view)
    options = parse_options(view.options.items())
    try:
        plan = plan_again(connection, view, options)
    except UnsupportedError:
        # What the strategy needs is gone: a key, or what a plain view below was.
        options = replace(options, strategy="auto")
        plan = plan_again(connection, view, options)
    before = catalog.sources_of(connection, [view.id])
    _use(connection, view.id, plan, options)
    names = bound(connection, names)
    old = _restate(connection, view, plan, names, afresh)
    for statement in program.create_program(plan.program, names):
        connection.execute(statement)
    connection.execute("SELECT idivm.hand_over(%s)", [view.id])
    lost = before - catalog.sources_of(connection, [view.id])
    connection.execute("SELECT idivm.hold_logs(%s)", [list(lost)])
    for source_id in lost:
        connection.execute("SELECT idivm.uninstall_unused_source(%s)", [source_id])
    connection.execute("UPDATE idivm.views SET status = 'invalid' WHERE id = %s", [view.id])
    catalog.describe(connection, view.id)
    return old


def names_of(view: ViewInfo) -> Names:
    """What the objects of a view are called; without a content, after the name that was asked for."""
    return Names(view.id, view.base or parse_name(view.name).name)


def bound(connection: Connection[Any], names: Names) -> Names:
    """Names with those of the sources as they are installed, for the server at hand."""
    return replace(
        names,
        sources=catalog.source_names(connection, names.id),
        version=connection.info.server_version,
        is_settled=catalog.exists(connection, names.written),
    )


def plan_again(
    connection: Connection[Any], view: ViewInfo, options: ViewOptions, known: Evidence | None = None
) -> MaintenancePlan:
    """The plan that a view would get today, with the settings that its creator had.

    What is known of tables and costs is what is `known`, or what the database says today.
    """
    plan = planning.plan_view(connection, names_of(view), options, known=known, before=view)
    # A view below it may have been replaced by one that depends on more of them.
    settings = tuple({**dict(plan.program.settings), **view.settings}.items())
    return replace(plan, program=replace(plan.program, settings=settings))


def _restate(
    connection: Connection[Any],
    view: ViewInfo,
    plan: MaintenancePlan,
    names: Names,
    afresh: bool,
) -> Identifier | None:
    """Makes the state tables again; that of the content only if its layout is another.

    Returns the name of what held the old content in this case; there may be none any more.
    """
    kept = view.is_planned and plan.program.layout == view.plan.program.layout and not afresh
    old = fitted_name(names.view, f"_before_{names.id}")
    if not kept and view.base is not None:
        connection.execute(
            SQL("ALTER TABLE {} RENAME TO {}").format(
                names.state(plan.program.content), Identifier(old)
            )
        )
    connection.execute("SELECT idivm.drop_states(%s, %s)", [view.id, True])
    for statement in emit.create_states(plan.program, names, content=not kept):
        connection.execute(statement)
    for statement in emit.index_states(plan.program, names, content=not kept):
        connection.execute(statement)
    if kept:
        return None
    catalog_take_over.make_indexes(connection, view.oid, view.id, names.state(plan.program.content))
    options = catalog_take_over.options_of(connection, SQL(view.relation))
    for statement in emit.create_relation(
        plan.program, names, SQL(view.relation), replacing=True, options=options
    ):
        connection.execute(statement)
    connection.execute(
        "UPDATE idivm.views SET relation = %s::regclass, state = %s::regclass WHERE id = %s",
        [view.relation, names.state(plan.program.content).as_string(connection), view.id],
    )
    return Identifier("idivm_state", old)


def _use(
    connection: Connection[Any], view_id: int, plan: MaintenancePlan, options: ViewOptions
) -> None:
    """Records a view's plan, captures what it reads, and makes indexes if it is to have them."""
    connection.execute(
        "UPDATE idivm.views SET strategy = %s, time_dependent = %s, settings = %s, plan = %s WHERE id = %s",
        [
            plan.strategy,
            bool(plan.program.time_dependent),
            json.dumps(dict(plan.program.settings)),
            ascii_json.dump(plan.stored()),
            view_id,
        ],
    )
    connection.execute("DELETE FROM idivm.inlined_views WHERE view = %s", [view_id])
    connection.execute(
        "INSERT INTO idivm.inlined_views SELECT %s, r, idivm.signature(r) FROM unnest(%s::oid[]) AS r",
        [view_id, list(plan.definition.inlined)],
    )
    connection.execute("DELETE FROM idivm.view_sources WHERE view = %s", [view_id])
    # In one order for everybody, so that two creations do not wait for each other.
    for source in sorted(plan.program.sources, key=lambda source: source.oid):
        source_id = sources.ensure_source(connection, source)
        connection.execute(
            "INSERT INTO idivm.view_sources VALUES (%s, %s, %s, %s)",
            [view_id, source_id, list(source.not_null), json.dumps(source.keys)],
        )
    connection.execute("DELETE FROM idivm.view_expressions WHERE view = %s", [view_id])
    for source in plan.program.sources:
        # What recomputes asks the definition, and has no expression in its program.
        planned = plan.strategy != recompute.NAME
        for in_plan, attnums in ((False, source.stored), (planned, source.virtual)):
            connection.execute(
                "INSERT INTO idivm.view_expressions SELECT %(view)s, %(table)s::oid::regclass, n,"
                " %(in_plan)s, idivm.expression_digest(%(table)s::oid::regclass, n)"
                " FROM unnest(%(attnums)s::smallint[]) AS n",
                {
                    "view": view_id,
                    "table": source.oid,
                    "in_plan": in_plan,
                    "attnums": list(attnums),
                },
            )
    connection.execute("SELECT idivm.note_expressions(%s)", [view_id])
    connection.execute("SELECT idivm.note_code(idivm.code_now(%s))", [view_id])
    catalog.note_reads(connection, view_id, plan.definition.types, plan.definition.reads)
    connection.execute("DELETE FROM idivm.made_indexes WHERE view = %s", [view_id])
    if options.create_indexes == "on":
        indexes.ensure(connection, view_id, plan.program.probes)


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
    # What writers keep, or have kept, is published while there are none; and so is what other views read, as these
    # are planned again with it.
    kept = {plan.maintain, replaced.maintain if replaced else modes.DEFERRED}
    by_writers = kept != {modes.DEFERRED} or bool(readers)
    attempts = ATTEMPTS if new.waiting or new.adopted else 1
    progress.reach(connection, names.view, "compute")
    prepared = initialise(connection, plan, names) if initialise else None
    snapshot = prepared.snapshot if prepared else None
    level = connection.isolation_level
    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    try:
        with connection.transaction():
            catalog.refuse_forbidden(connection, names.id, names.view)
            if prepared and snapshot:
                prepared.finish()
            else:
                catalog.take_settings(connection, dict(plan.program.settings))
                for statement in emit.create_states(plan.program, names):
                    connection.execute(statement)
                for statement in program.create_program(plan.program, names):
                    connection.execute(statement)
                connection.execute(SQL("SELECT {}(NULL, true)").format(names.refresh))
            progress.reach(connection, names.view, "index")
            for statement in emit.index_states(plan.program, names):
                connection.execute(statement)
            progress.reach(connection, names.view, "publish")
            connection.execute(
                "INSERT INTO idivm.watermarks (view, mark, cluster, refreshed_at)"
                " VALUES (%s, ROW(coalesce(%s::pg_snapshot, pg_current_snapshot()), NULL, NULL)::idivm.watermark,"
                " idivm.cluster(), now())",
                [names.id, snapshot],
            )
            if snapshot is None:
                connection.execute("SELECT idivm.discard_foreign_log(%s)", [names.id])
            if prepared:
                catalog.note_initialised(connection, names.id, prepared.initialised)
            if new.adopted is not None:
                catalog_take_over.note_indexes(connection, new.adopted)
            catalog_take_over.make_indexes(
                connection,
                catalog.relation_oid(connection, relation),
                names.id,
                names.state(plan.program.content),
            )
            if not by_writers:
                publish = partial(_publish, connection, plan, names, relation, replaced, new)
                _in_turns(connection, publish, attempts)
        if by_writers:

            def publish_with_readers() -> None:
                # To take triggers off keeps readers out as well, for as long as it takes.
                concerned = [names.id, *([replaced.id, *readers] if replaced else [])]
                connection.execute(
                    "SELECT idivm.hold_writers(%s, %s)", [concerned, replaced is not None]
                )
                if readers != _readers_of(connection, replaced):
                    raise DatabaseError(
                        f"Other maintained views read {names.view} by now; replace it again."
                    )
                _publish(connection, plan, names, relation, replaced, new, readers)
                modes.start(connection, names.id, *readers)

            connection.isolation_level = IsolationLevel.READ_COMMITTED
            _in_turns(connection, publish_with_readers, attempts)
    finally:
        if not connection.closed:
            connection.isolation_level = level


def _publish(
    connection: Connection[Any],
    plan: MaintenancePlan,
    names: Names,
    relation: Identifier,
    replaced: ViewInfo | None,
    new: NewView,
    readers: Sequence[int] = (),
) -> None:
    """Makes the content readable under the view's name; its readers wait for the commit at most.

    The maintained views above a replaced view are planned again; the caller recomputes them.
    """
    state = names.state(plan.program.content)
    given = new.waiting or new.adopted
    timeout: tuple[Any, ...] | None = None
    if given is not None:
        # A session that has read the view may write its tables next: it must not wait for this transaction,
        # which waits for that session.
        timeout = connection.execute(
            "SELECT current_setting('lock_timeout'), set_config('lock_timeout', '100ms', true)"
        ).fetchone()
    if new.waiting is not None and not catalog_unplanned.take(connection, new.waiting):
        raise DatabaseError(f"{new.waiting.relation} was changed meanwhile; plan it again.")
    if new.adopted is not None:
        catalog_take_over.exchange(connection, new.adopted)
    above = ", ".join(catalog.view_by_id(connection, reader).name for reader in readers)
    try:
        replacing = replaced is not None or given is not None
        _show(connection, names, relation, plan.program.shown, state, replacing=replacing)
    except DependentObjectsStillExist as error:
        if not readers:
            raise
        raise UsageError(
            f"{names.view} cannot lose, rename or retype columns while the maintained views {above} read it;"
            " add columns at the end, or drop these views first."
        ) from error
    if timeout is not None:
        connection.execute("SELECT set_config('lock_timeout', %s, true)", timeout[:1])
    catalog.clear_dropped(connection, relation)
    if replaced is not None:
        # The views above read its content until they are planned again.
        connection.execute(
            "UPDATE idivm.views SET status = 'building', relation = NULL WHERE id = %s",
            [replaced.id],
        )
    connection.execute(
        "UPDATE idivm.views SET status = 'ready', relation = %s::regclass, state = %s::regclass WHERE id = %s",
        [
            relation.as_string(connection),
            names.state(plan.program.content).as_string(connection),
            names.id,
        ],
    )
    if given is not None:
        connection.execute("SELECT idivm.hand_over(%s)", [names.id])
    catalog.describe(connection, names.id)
    if replaced is not None:
        _replan_readers(connection, readers)
        connection.execute("SELECT idivm.uninstall(%s, true)", [replaced.id])


def _replan_readers(connection: Connection[Any], readers: Sequence[int]) -> None:
    """Plan the views above a replaced view again, lower views first; their contents are recomputed later.

    A view that waits to be planned shows its query, so that only its former plan is removed.
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
        # As it is now: the view below it may have been planned again.
        contents.append(_replan_one(connection, catalog.view_by_id(connection, view.id)))
        modes.refuse_time_dependent(connection, view.id, view.maintain)
    _drop_contents(connection, contents)


def _drop_contents(connection: Connection[Any], contents: Iterable[Identifier | None]) -> None:
    """Drop what held the contents of views before they were planned again."""
    for content in filter(None, contents):
        kind = SQL("VIEW" if catalog.is_plain_view(connection, content) else "TABLE")
        connection.execute(SQL("DROP {} IF EXISTS {}").format(kind, content))


def _in_turns(connection: Connection[Any], publish: Callable[[], None], attempts: int) -> None:
    """Run a transaction or savepoint; repeat it while other sessions hold a lock that it does not wait for."""
    for left in reversed(range(attempts)):
        try:
            with connection.transaction():
                publish()
            return
        except LockNotAvailable:
            if not left:
                raise
            time.sleep(PAUSE)


def show_again(connection: Connection[Any], view: ViewInfo) -> None:
    """Makes the relation of a view show the maintained content again, whatever it shows now."""
    assert view.definition is not None and view.state is not None
    names, relation = names_of(view), SQL(view.relation)
    columns = [name for name, _ in catalog_objects.columns(connection, names.definition)]
    _show(connection, names, relation, columns, SQL(view.state), replacing=True)
    connection.execute(
        "UPDATE idivm.views SET relation = %s::regclass WHERE id = %s", [view.relation, view.id]
    )


def _show(
    connection: Connection[Any],
    names: Names,
    relation: Composable,
    columns: Sequence[str],
    content: Composable,
    *,
    replacing: bool,
) -> None:
    options = catalog_take_over.options_of(connection, relation) if replacing else SQL("")
    try:
        with connection.transaction():
            for statement in emit.show(
                names, relation, columns, content, replacing=replacing, options=options
            ):
                connection.execute(statement)
    except InvalidTableDefinition:
        # The columns differ. Only a view that nothing reads can then make room.
        if not replacing:
            raise
        with catalog_take_over.kept_properties(connection, relation):
            connection.execute(SQL("DROP VIEW {}").format(relation))
            for statement in emit.show(
                names, relation, columns, content, replacing=False, options=options
            ):
                connection.execute(statement)
