"""Plan the views that SQL created: the stored content replaces the query.

The query comes from the view itself, as PostgreSQL prints it, and not from a text of its owner: it is one
statement, and means the same under every search path. The view keeps its owner. Every refresh checks the
owner's rights to everything that the query reads, as in idivm.owners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection

from orchestrator import catalog
from orchestrator.catalog import ViewInfo
from orchestrator.catalog import unplanned as catalog_unplanned
from orchestrator.catalog.search_path import taking_path
from orchestrator.catalog.unplanned import UnplannedView
from orchestrator.errors import IdivmError, NotFoundError, RightsError, is_interruption
from orchestrator.frontend.options import parse_options
from orchestrator.frontend.statements import QualifiedName
from orchestrator.runtime.errors import explain
from orchestrator.runtime.installation import install, replanning
from orchestrator.runtime.installation.new_view import Initialiser, NewView
from orchestrator.runtime.sessions import end_if_cancelled
from orchestrator.sqltext import SEARCH_PATH


@dataclass(frozen=True)
class PlanReport:
    """The strategy of a view that was planned, or the reason why it was not."""

    view: str
    strategy: str | None
    refusal: str | None = None
    """Why it stays an ordinary view of its query."""


def plan_views(
    connection: Connection[Any],
    views: Sequence[UnplannedView],
    initialiser: Callable[[NewView], Initialiser | None],
) -> Iterator[PlanReport]:
    """Plan views. If a view cannot be planned, leave it as it is and record the reason in the catalog."""
    for view in views:
        end_if_cancelled(connection)
        name = catalog_unplanned.user_name(connection, view)
        try:
            planned = _plan(connection, view, initialiser)
        except Exception as error:
            # One error must not keep the other views from being planned and served.
            if connection.closed:
                raise
            end_if_cancelled(connection, error)
            reason = _reason(error)
            if not is_interruption(error):
                catalog_unplanned.note_refusal(connection, view, reason)
            yield PlanReport(name, None, reason)
        else:
            if planned is not None:
                yield PlanReport(name, planned.strategy)


def _reason(error: Exception) -> str:
    if isinstance(error, psycopg.Error):
        return str(explain(error, "Planning it"))
    if isinstance(error, IdivmError):
        return str(error)
    return f"idivm failed to plan it, which is a fault of idivm ({type(error).__name__}: {error})."


def waiting(
    connection: Connection[Any], names: Sequence[QualifiedName] = ()
) -> list[UnplannedView]:
    """Return the named views that wait for planning, or all such views, lower views first."""
    catalog_unplanned.remove_dropped(connection)
    if not names:
        return catalog_unplanned.unplanned_views(connection)
    wanted = {catalog.relation_oid(connection, name.identifier): name for name in names}
    views = catalog_unplanned.views_with(connection, [oid for oid in wanted if oid is not None])
    for oid in wanted.keys() - {view.oid for view in views}:
        raise NotFoundError(
            f"{wanted[oid]} does not wait to be planned; `idivm list` shows the views and their strategies."
        )
    return views


def plan_ready(
    connection: Connection[Any], initialiser: Callable[[NewView], Initialiser | None]
) -> Iterator[PlanReport]:
    """Plan the waiting views that need not be named. After a refusal, a view is left out for five minutes."""
    catalog_unplanned.remove_dropped(connection)
    return plan_views(connection, catalog_unplanned.ready_views(connection), initialiser)


def plan_first(
    connection: Connection[Any],
    names: Sequence[QualifiedName],
    initialiser: Callable[[NewView], Initialiser | None],
) -> list[QualifiedName]:
    """Plan the waiting views of a refresh. Return the names of the views that are planned."""
    if not catalog_unplanned.is_any_waiting(connection):
        return list(names)
    oids = {name: catalog.relation_oid(connection, name.identifier) for name in names}
    given = [oid for oid in oids.values() if oid is not None]
    named = catalog_unplanned.views_with(connection, given)
    chosen = named if names else catalog_unplanned.ready_views(connection)
    for view in chosen:
        catalog_unplanned.ask_for_data(connection, view)
    for report in plan_views(connection, chosen, initialiser):
        if report.refusal is not None:
            replanning.warn(
                connection,
                f"{report.view} computes its query at every read, as it could not be planned: {report.refusal}",
            )
    left = {view.oid for view in catalog_unplanned.views_with(connection, given)}
    return [name for name in names if oids[name] not in left]


def _plan(
    connection: Connection[Any],
    view: UnplannedView,
    initialiser: Callable[[NewView], Initialiser | None],
) -> ViewInfo | None:
    with catalog_unplanned.locked(connection, view) as is_ours:
        # Another orchestrator may have planned it since it was read.
        if not is_ours or not catalog_unplanned.views_with(connection, [view.oid]):
            return None
        if not view.is_own:
            raise RightsError(
                f"The orchestrator's role may not replace a view of {view.owner};"
                f" GRANT {view.owner} to that role, or run idivm plan as {view.owner}."
            )
        new = NewView(
            QualifiedName(view.name, view.schema),
            catalog_unplanned.query_of(connection, view),
            None,
            parse_options(view.options.items()),
            replace=True,
            waiting=view,
        )
        with (
            catalog_unplanned.session_settings(connection, view),
            taking_path(connection, SEARCH_PATH),
        ):
            return install.create_view(connection, new, initialiser(new))
