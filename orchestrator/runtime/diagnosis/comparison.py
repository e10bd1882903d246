"""Refresh views and compare each with the result of its query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.sql import SQL, Literal

from orchestrator import catalog
from orchestrator.catalog import ViewInfo, serving
from orchestrator.catalog.streams import streams_below
from orchestrator.errors import RightsError
from orchestrator.planning import notices
from orchestrator.runtime import refresh
from orchestrator.runtime.diagnosis import answers
from orchestrator.runtime.diagnosis.check import CheckResult
from orchestrator.runtime.errors import explain
from orchestrator.sqltext import SEARCH_PATH


@dataclass(frozen=True)
class CheckReport:
    """The comparison of a view with the result of its query in the same snapshot."""

    view: str
    equal: bool
    missing: int
    surplus: int
    missing_rows: tuple[str, ...] = ()
    surplus_rows: tuple[str, ...] = ()
    error: str | None = None
    """Why the view could not be refreshed, or why its query fails. Such a view is not compared."""
    notes: tuple[str, ...] = ()
    """Which columns were not compared exactly, and why."""


def refresh_and_compare(
    connection: Connection[Any], ids: Sequence[int], some: bool
) -> list[tuple[int, CheckReport]]:
    """Refresh views in this snapshot and compare them. With `some`, each of them must exist.

    An on_read view is compared before the refresh, with what is pending, and after it.
    """
    merged = [
        view
        for view in catalog.all_views(connection)
        if view.id in ids and view.read_from is not None and not view.error
    ]
    if merged:
        refresh.pin_tables(connection, [view.id for view in merged])
    before = {view.id: compare(connection, view) for view in merged}
    refresh.refresh_here(connection, ids)
    waiting = serving.waiting(connection, ids)
    for view_id, reason in waiting.items():
        name = catalog.view_by_id(connection, view_id).name
        notices.say(
            connection, Literal(f"{name} was not compared: it waits for its gate: {reason}.")
        )
    ids = [item for item in ids if item not in waiting]
    refresh.pin_tables(connection, ids)
    here = {view.id: view for view in catalog.all_views(connection)}
    wanted = [
        here.get(item) or catalog.view_by_id(connection, item)
        for item in ids
        if item in here or some
    ]
    reports = [(view.id, compare(connection, view)) for view in wanted]
    return [
        (view_id, before[view_id] if report.equal and view_id in before else report)
        for view_id, report in reports
    ]


def compare_on_standby(
    connection: Connection[Any], ids: Sequence[int], say: Callable[[str], None]
) -> list[CheckReport]:
    """Compare the views without pending changes. A standby cannot refresh the other views."""
    unlogged = catalog.readers_of_unlogged(connection, ids)
    reports = []
    for view in [catalog.view_by_id(connection, item) for item in ids]:
        over_stream = bool(streams_below(connection, [view.id]))
        if view.pending or view.time_dependent or view.id in unlogged or over_stream:
            reason = (
                "it reads an unlogged table, which is empty on a standby"
                if view.id in unlogged
                else "the rows of a stream that it reads are in files, which only a check on the primary reads"
                if over_stream
                else "its query depends on the time, so only a refresh and a comparison at the same moment can be equal"
                if view.time_dependent
                else f"it has {view.pending} pending changes; refresh it on the primary"
            )
            say(f"View {view.name} was not compared: {reason}.")
        else:
            reports.append(compare(connection, view))
    return reports


def compare(connection: Connection[Any], view: ViewInfo) -> CheckReport:
    """Compare what a view shows with the result of its query, with the settings of a refresh.

    A time-dependent view is refreshed again by the comparison itself.
    """
    if view.error:
        return CheckReport(view.name, False, 0, 0, error=view.error)
    try:
        result = _result(connection, view)
    except RightsError as reason:
        return CheckReport(view.name, False, 0, 0, error=str(reason))
    except (psycopg.OperationalError, psycopg.InternalError):
        # They concern the connection or the transaction, not this view.
        raise
    except psycopg.Error as error:
        return CheckReport(view.name, False, 0, 0, error=str(explain(error, "its query fails")))
    return CheckReport(
        view.name,
        result.equal,
        result.missing,
        result.surplus,
        result.missing_samples,
        result.surplus_samples,
        notes=result.notes,
    )


def _result(connection: Connection[Any], view: ViewInfo) -> CheckResult:
    """Compare with the settings of a refresh, which the savepoint takes back."""
    with connection.transaction(force_rollback=True):
        catalog.take_settings(connection, {**view.settings, "search_path": SEARCH_PATH})
        catalog.refuse_forbidden(connection, view.id, view.name)
        relation = catalog.relation_name(connection, view)
        again = SQL("SELECT idivm.refresh_views(ARRAY[{}])").format(Literal(view.id))
        return answers.check_view(
            connection, relation, view.id, again if view.time_dependent else None
        )
