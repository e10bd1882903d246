"""Modes: when a view follows its tables, and how to change the mode while the tables are written.

The triggers and their functions are in the database, in sql/functions/60_modes.sql.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from psycopg import Connection, IsolationLevel
from psycopg.pq import TransactionStatus
from psycopg.sql import SQL

from orchestrator.catalog import ViewInfo
from orchestrator.deltascript.plan import ON_READ
from orchestrator.errors import UnsupportedError, UsageError
from orchestrator.frontend.options import ParsedOptions, parse_options
from orchestrator.runtime import refresh
from orchestrator.runtime.installation import feeds

DEFERRED = "deferred"


def is_synchronous(connection: Connection[Any], view_id: int) -> bool:
    """Return whether writers keep a view up to date, because of its own mode or the mode of a view that reads it."""
    row = connection.execute(
        "SELECT %s IN (SELECT idivm.synchronous_views())", [view_id]
    ).fetchone()
    return row is not None and bool(row[0])


def refuse_time_dependent(connection: Connection[Any], view_id: int, mode: str) -> None:
    """Raise an error if the view's content changes by itself and its mode cannot notice that."""
    if mode == DEFERRED:
        return
    row = connection.execute("SELECT idivm.time_dependent_part(%s)", [view_id]).fetchone()
    if row != (None,):
        assert row is not None
        raise UnsupportedError(
            f"The content of {row[0]} changes while no table does, so that no writer can keep it up"
            f" to date; leave out maintain = {mode}, and refresh it."
        )


def refuse_synchronous_cut(connection: Connection[Any]) -> None:
    """Raise an error if writers would keep a view up to date that has a refresh group or a gate."""
    connection.execute("SELECT idivm.refuse_synchronous_cut()")


def sync(connection: Connection[Any]) -> None:
    """Give captured tables and their new partitions the triggers that the modes need, and drop all others."""
    connection.execute("SELECT idivm.sync_modes()")


def hold(connection: Connection[Any], *view_ids: int) -> None:
    """Keep refreshes and writers away from views that are to be dropped or changed.

    The order is the same everywhere: first the locks of the views that are not synchronous, then the tables
    of the synchronous views. Writers also take these tables before the locks of synchronous views.
    """
    connection.execute(
        "SELECT idivm.lock_apart(%s, ARRAY(SELECT idivm.synchronous_views()))", [list(view_ids)]
    )
    connection.execute(
        "SELECT idivm.hold_writers(ARRAY(SELECT id FROM unnest(%s::integer[]) AS id"
        " WHERE id IN (SELECT idivm.synchronous_views())), true)",
        [list(view_ids)],
    )


def start(connection: Connection[Any], *view_ids: int) -> None:
    """Refresh views whose writers are held, lower views first. From then on, writers maintain the synchronous
    views.
    """
    sync(connection)
    for view_id in view_ids:
        connection.execute("SELECT idivm.start_keeping(%s)", [view_id])


def alter(connection: Connection[Any], view: ViewInfo, options: ParsedOptions) -> None:
    """Change options of a view that need no other plan, while its tables are written."""
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise UsageError(
            f"ALTER VIEW {view.name} commits while it works; run it outside a transaction block."
        )
    refuse_time_dependent(connection, view.id, options.maintain)
    if options.maintain != view.maintain:
        # This applies most pending changes before writers are held for the rest.
        refresh.refresh(connection, [view.id])
    level = connection.isolation_level
    connection.isolation_level = IsolationLevel.READ_COMMITTED
    try:
        with connection.transaction():
            if options.maintain != view.maintain:
                connection.execute("SELECT idivm.set_mode(%s, %s)", [view.id, options.maintain])
            connection.execute(
                "UPDATE idivm.views SET options = %s WHERE id = %s",
                [json.dumps(options.to_json()), view.id],
            )
            connection.execute("SELECT idivm.check_gate(%s)", [view.id])
            refuse_synchronous_cut(connection)
            if options.feed != view.options.get("feed", "off"):
                hold(connection, view.id)
                feeds.bring_in_line(connection, view.id)
    finally:
        if not connection.closed:
            connection.isolation_level = level


def altered(view: ViewInfo, given: tuple[tuple[str, str], ...]) -> ParsedOptions:
    """Return the options of a view with the given options set."""
    parse_options(given)
    return parse_options({**view.options, **dict(given)}.items())


def asks_for_another_plan(view: ViewInfo, options: ParsedOptions) -> bool:
    """Return whether options require another plan than the options that a view was planned with."""
    before = parse_options(view.options.items())
    program, shares = view.plan.program, options.may_be_shared
    if (options.maintain, shares) != (before.maintain, before.may_be_shared) and (
        view.plan.merges or options.maintain == ON_READ or (shares and program.reads_log_alone)
    ):
        # Its readers see another relation, and not every plan has one.
        return True
    if options.feed == "on" and not program.is_stored:
        return True
    return (
        replace(
            options,
            maintain=before.maintain,
            staleness=before.staleness,
            schedule=before.schedule,
            refresh_group=before.refresh_group,
            gate=before.gate,
            feed=before.feed,
            feed_keep=before.feed_keep,
            feed_hold=before.feed_hold,
            initialise=before.initialise,
            on_drop=before.on_drop,
            on_error=before.on_error,
        )
        != before
    )


def columns_of(connection: Connection[Any], view: ViewInfo) -> tuple[str, ...]:
    """Return the names of a view's columns as its readers see them."""
    cursor = connection.execute(SQL("SELECT * FROM {} LIMIT 0").format(SQL(view.relation)))
    return tuple(column.name for column in cursor.description or ())
