"""Replace materialized views and views of pg_ivm by maintained views, and the reverse.

The content is computed beside the relation. The transaction that publishes it gives name, owner, rights, comments and
readers of the relation to the maintained view (sql/functions/88_take_over.sql).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.sql import SQL

from orchestrator import catalog
from orchestrator.catalog import take_over as catalog_take_over
from orchestrator.catalog.search_path import pinned, taking_path
from orchestrator.catalog.take_over import Adoptable
from orchestrator.deltascript.names import Names
from orchestrator.deltascript.plan import Reason
from orchestrator.errors import (
    IdivmError,
    NotFoundError,
    RightsError,
    UsageError,
    is_interruption,
    state_of,
)
from orchestrator.frontend.options import ParsedOptions, parse_options
from orchestrator.frontend.statements import QualifiedName
from orchestrator.planning.view import plan_view
from orchestrator.runtime import side_by_side
from orchestrator.runtime.errors import explain
from orchestrator.runtime.installation import install, replanning
from orchestrator.runtime.installation.new_view import Initialiser, NewView
from orchestrator.runtime.side_by_side import Sessions
from orchestrator.sqltext import SEARCH_PATH


@dataclass(frozen=True)
class AdoptReport:
    """The result, or the expected result, of adopting a materialized view."""

    view: str
    strategy: str | None
    cost: str
    """The expected cost of a refresh, and why this strategy was chosen."""
    lost: tuple[str, ...]
    """The properties that a maintained view does not have."""
    refusal: str | None = None
    """Why it was not adopted."""


def adopt(
    connection: Connection[Any],
    names: Sequence[QualifiedName],
    options: Mapping[str, str],
    initialiser: Callable[[NewView], Initialiser | None],
    *,
    dry_run: bool,
    sessions: Sessions | None = None,
) -> list[AdoptReport]:
    """Adopt the named materialized views, or all of them, each in a transaction of its own.

    A dry run plans each and changes nothing. With `sessions`, views that have no reader in common are adopted at
    the same time: while the database computes the content of one, the other is planned.
    """
    chosen = list(names) or [
        QualifiedName(name, schema) for schema, name in catalog_take_over.own_adoptables(connection)
    ]
    views = {view.oid: view for view in (_adoptable(connection, name) for name in chosen)}
    visible = catalog.visible_names(connection, [view.relation for view in views.values()])
    names_of = dict(zip(views, visible, strict=True))
    reports: dict[int, AdoptReport] = {}

    def take(session: Connection[Any], group: Sequence[int]) -> None:
        for oid in group:
            if oid not in reports:
                reports[oid] = _report(
                    session, views[oid], names_of[oid], options, initialiser, dry_run=dry_run
                )

    def take_first(session: Connection[Any], group: Sequence[int]) -> None:
        try:
            with pinned(session):
                take(session, group)
        except (IdivmError, psycopg.Error) as error:
            # A conflict between two sessions leaves the rest of the group to the calling session.
            if not state_of(error).startswith("40"):
                raise

    if sessions is not None and sessions.jobs > 1 and not dry_run:
        above = catalog_take_over.objects_above(connection, list(views))
        apart = side_by_side.groups((oid, above[oid]) for oid in views)
        with ExitStack() as stack:
            workers = sessions.open(stack, connection, len(apart))
            if len(workers) > 1:
                side_by_side.each(workers, apart, take_first)
    take(connection, list(views))
    return [reports[oid] for oid in views]


def _report(
    connection: Connection[Any],
    before: Adoptable,
    relation: str,
    options: Mapping[str, str],
    initialiser: Callable[[NewView], Initialiser | None],
    *,
    dry_run: bool,
) -> AdoptReport:
    # The adoption of a view below has created the relation again, and that of another may have changed its readers.
    view = _adoptable(connection, QualifiedName(before.name, before.schema))
    try:
        if not view.is_own:
            raise RightsError(f"You must be owner of {relation}, which belongs to {view.owner}.")
        with taking_path(connection, SEARCH_PATH):
            catalog_take_over.refuse_distrusted(connection, view)
            new = _new_view(view, options)
            strategy, cost = (
                _planned(connection, view, new.options)
                if dry_run
                else _adopted(connection, view, new, initialiser)
            )
    except (IdivmError, psycopg.Error) as error:
        if connection.closed or is_interruption(error):
            raise
        reason = explain(error, "Adopting it") if isinstance(error, psycopg.Error) else error
        return AdoptReport(relation, None, "", tuple(view.lost), str(reason))
    return AdoptReport(relation, strategy, cost, tuple(view.lost))


def _adoptable(connection: Connection[Any], name: QualifiedName) -> Adoptable:
    oid = catalog.relation_oid(connection, name.identifier)
    view = None if oid is None else catalog_take_over.adoptable(connection, oid)
    if view is None:
        what = "does not exist" if oid is None else "is no materialized view, and no view of pg_ivm"
        raise NotFoundError(f"{name} {what}.")
    return view


def _new_view(view: Adoptable, options: Mapping[str, str]) -> NewView:
    # A view of pg_ivm is updated by each statement.
    default = {"maintain": "eager"} if view.is_pg_ivm else {}
    return NewView(
        QualifiedName(view.name, view.schema),
        view.query,
        None,
        parse_options({**default, **options}.items()),
        adopted=view,
    )


def _adopted(
    connection: Connection[Any],
    view: Adoptable,
    new: NewView,
    initialiser: Callable[[NewView], Initialiser | None],
) -> tuple[str, str]:
    created = install.create_view(connection, new, initialiser(new))
    for reader in catalog_take_over.existing_views(connection, view.readers):
        # Each refresh recomputed the reader, because changes of a materialized view cannot be captured.
        replanning.replan(connection, catalog.view_by_id(connection, reader))
    return created.strategy, _taken(created.plan.evidence.reasons)


def _planned(
    connection: Connection[Any], view: Adoptable, options: ParsedOptions
) -> tuple[str, str]:
    """Plan the query of a relation in a transaction that is rolled back."""
    names = Names(0, view.name)
    with connection.transaction(force_rollback=True):
        connection.execute(SQL("CREATE VIEW {} AS {}").format(names.definition, SQL(view.query)))
        plan = plan_view(connection, names, options)
    return plan.strategy, _taken(plan.evidence.reasons)


def _taken(reasons: Sequence[Reason]) -> str:
    return next(reason.because for reason in reasons if reason.taken)


def release(connection: Connection[Any], name: QualifiedName) -> None:
    """Give a maintained view back as a materialized view."""
    oid = catalog.relation_oid(connection, name.identifier)
    if oid is None:
        raise NotFoundError(f"There is no view {name}.")
    if catalog_take_over.is_materialized_view(connection, oid):
        raise UsageError(f"{name} is a materialized view already.")
    with connection.transaction():
        catalog_take_over.release(connection, oid)
