"""Make the content of a view readable under its name."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from psycopg import Connection
from psycopg.errors import DependentObjectsStillExist, LockNotAvailable
from psycopg.sql import Composable, Identifier

from orchestrator import catalog
from orchestrator.catalog import ViewInfo
from orchestrator.catalog import take_over as catalog_take_over
from orchestrator.catalog import unplanned as catalog_unplanned
from orchestrator.deltascript import reads
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import MaintenancePlan
from orchestrator.errors import (
    DatabaseError,
    UsageError,
)
from orchestrator.runtime.enumeration import relations
from orchestrator.runtime.installation import feeds, shown, sources, tables
from orchestrator.runtime.installation.new_view import NewView
from orchestrator.runtime.installation.replanning import replan_readers

ATTEMPTS, PAUSE = 100, 0.1
"""How often, and after how many seconds, to retry the publication of a view that others read meanwhile."""


def publish_content(
    connection: Connection[Any],
    plan: MaintenancePlan,
    names: Names,
    relation: Identifier,
    replaced: ViewInfo | None,
    new: NewView,
    readers: Sequence[int] = (),
) -> None:
    """Make the content readable under the view's name. Its readers wait for the commit at most.

    Plan the maintained views above a replaced view again. The caller recomputes them.
    """
    state = reads.readable(plan.merges, plan.program, names)
    given = new.waiting or new.adopted
    timeout: tuple[Any, ...] | None = None
    if given is not None:
        # A session that has read the view may write its tables next. It must not wait for this transaction,
        # which waits for that session.
        timeout = connection.execute(
            "SELECT current_setting('lock_timeout'), set_config('lock_timeout', '100ms', true)"
        ).fetchone()
    if plan.merges or replaced is not None:
        # The logs of what an on_read view reads get indexes.
        sources.hold(
            connection,
            [] if replaced is None else [replaced.id],
            changed=plan.program.sources if plan.merges else (),
            kept=plan.program.sources,
        )
    if new.waiting is not None and not catalog_unplanned.take(connection, new.waiting):
        raise DatabaseError(f"{new.waiting.relation} was changed meanwhile; plan it again.")
    if new.adopted is not None:
        catalog_take_over.exchange(connection, new.adopted)
    if plan.merges:
        for statement in reads.create_read_views(plan.program, names):
            connection.execute(statement)
    relations.create(connection, names, plan)
    above = ", ".join(catalog.view_by_id(connection, reader).name for reader in readers)
    try:
        replacing = replaced is not None or given is not None
        if new.options.relation == "table":
            tables.shape(connection, names, relation)
        else:
            shown.show(
                connection, names, relation, plan.program.column_names, state, replacing=replacing
            )
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
        "UPDATE idivm.views SET status = 'ready', relation = %s::regclass, state = %s::regclass,"
        " read_from = %s::regclass WHERE id = %s",
        [
            relation.as_string(connection),
            names.state(plan.program.content).as_string(connection),
            state.as_string(connection) if plan.merges else None,
            names.id,
        ],
    )
    if plan.merges:
        connection.execute("SELECT idivm.sync_modes()")
    if given is not None:
        connection.execute("SELECT idivm.hand_over(%s)", [names.id])
    catalog.describe(connection, names.id)
    if new.options.relation != "table":
        # Further ones, if a table becomes a view.
        make_indexes_of_users(connection, plan, names, relation)
    if replaced is not None:
        feeds.hand_on(connection, replaced.id, names.id)
    feeds.bring_in_line(connection, names.id)
    tables.bring_in_line(connection, names.id)
    if replaced is not None:
        replan_readers(connection, readers)
        connection.execute("SELECT idivm.uninstall(%s, true)", [replaced.id])


def make_indexes_of_users(
    connection: Connection[Any], plan: MaintenancePlan, names: Names, relation: Composable
) -> None:
    """Create the indexes that users had on a view on the table that holds its content now."""
    catalog_take_over.make_indexes(
        connection,
        catalog.relation_oid(connection, relation),
        names.id,
        names.state(plan.program.content),
    )


def in_turns(connection: Connection[Any], publish: Callable[[], None], attempts: int) -> None:
    """Run a transaction or savepoint. Repeat it while other sessions hold a lock that it does not wait for."""
    for left in reversed(range(attempts)):
        try:
            with connection.transaction():
                publish()
            return
        except LockNotAvailable:
            if not left:
                raise
            time.sleep(PAUSE)
