"""Modes: when a view follows its tables, and changing that while the tables are written.

The triggers and what they do are in the database, in sql/functions/60_modes.sql.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from psycopg import Connection, IsolationLevel
from psycopg.pq import TransactionStatus
from psycopg.sql import SQL

from orchestrator.catalog import ViewInfo
from orchestrator.errors import UnsupportedError, UsageError
from orchestrator.frontend.options import ViewOptions, parse_options
from orchestrator.runtime import refresh

DEFERRED = "deferred"


def is_synchronous(connection: Connection[Any], view_id: int) -> bool:
    """Whether writers keep a view up to date: by its own mode, or by that of one that reads it."""
    row = connection.execute(
        "SELECT %s IN (SELECT idivm.synchronous_views())", [view_id]
    ).fetchone()
    return row is not None and bool(row[0])


def refuse_time_dependent(connection: Connection[Any], view_id: int, mode: str) -> None:
    """Raises an error if the view's content changes by itself and its mode cannot see that."""
    if mode == DEFERRED:
        return
    row = connection.execute("SELECT idivm.time_dependent_part(%s)", [view_id]).fetchone()
    if row != (None,):
        assert row is not None
        raise UnsupportedError(
            f"The content of {row[0]} changes while no table does, so that no writer can keep it up"
            f" to date; leave out maintain = {mode}, and refresh it."
        )


def sync(connection: Connection[Any]) -> None:
    """Has capture's tables carry the triggers of the modes, on partitions that came as well."""
    connection.execute("SELECT idivm.sync_modes()")


def hold(connection: Connection[Any], *view_ids: int) -> None:
    """Keeps refreshes and writers away from views that are to go or to change.

    In the order of everybody: the locks of views that are not kept, then the tables of those that
    are, before whose locks writers take them as well.
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
    """Brings up views whose writers are held, lower ones first, and leaves synchronous ones to them from then on."""
    sync(connection)
    for view_id in view_ids:
        connection.execute("SELECT idivm.start_keeping(%s)", [view_id])


def alter(connection: Connection[Any], view: ViewInfo, options: ViewOptions) -> None:
    """Gives a view other options that ask for no other plan, while its tables are written."""
    if connection.info.transaction_status != TransactionStatus.IDLE:
        raise UsageError(
            f"ALTER VIEW {view.name} commits while it works; run it outside a transaction block."
        )
    refuse_time_dependent(connection, view.id, options.maintain)
    if options.maintain != view.maintain:
        # Most of what is pending is applied before writers are held for the rest.
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
    finally:
        if not connection.closed:
            connection.isolation_level = level


def altered(view: ViewInfo, given: tuple[tuple[str, str], ...]) -> ViewOptions:
    """The options of a view once the given ones are set."""
    parse_options(given)
    return parse_options({**view.options, **dict(given)}.items())


def asks_for_another_plan(view: ViewInfo, options: ViewOptions) -> bool:
    """Whether options are others than those that a view was planned with."""
    before = parse_options(view.options.items())
    return (
        replace(
            options,
            maintain=before.maintain,
            staleness=before.staleness,
            initialise=before.initialise,
            on_drop=before.on_drop,
            on_error=before.on_error,
        )
        != before
    )


def columns_of(connection: Connection[Any], view: ViewInfo) -> tuple[str, ...]:
    """The names of a view's columns as its readers see them."""
    cursor = connection.execute(SQL("SELECT * FROM {} LIMIT 0").format(SQL(view.relation)))
    return tuple(column.name for column in cursor.description or ())
