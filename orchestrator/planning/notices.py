"""Notices for the creator of a view."""

from __future__ import annotations

from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Literal

from orchestrator.deltascript.notation import in_words
from orchestrator.deltascript.plan import MaintenancePlan, Strategy
from orchestrator.frontend.options import ParsedOptions

UNSORTED = Literal(
    "The ORDER BY of the query has no effect, because a stored view has no order; write it where the"
    " view is read."
)


OPEN_ORDER = Literal(
    "The query leaves the order of some rows open, as equal ones may come in any order. The view orders"
    " them by the keys of their tables, so that its content does not change by itself."
)


def say(connection: Connection[Any], notice: Literal) -> None:
    """Send a notice to the client of a connection."""
    text = Literal(f"BEGIN RAISE NOTICE USING MESSAGE = {notice.as_string(connection)}; END")
    connection.execute(SQL("DO {}").format(text))


def recompute_notice(name: str, plan: MaintenancePlan, options: ParsedOptions) -> str | None:
    """Return a notice that each refresh recomputes the view, why, and how to make the view
    incremental.
    """
    if plan.strategy != Strategy.RECOMPUTE or options.strategy == Strategy.RECOMPUTE:
        return None
    reasons = [reason.because for reason in plan.evidence.reasons if not reason.taken]
    because = (
        plan.program.time_dependent[0]
        if plan.program.time_dependent
        else reasons[0]
        if reasons
        else ""
    )
    remedy = "docs/sql-support.md lists the queries that are incremental."
    for words, advice in _REMEDIES.items():
        if words in because:
            remedy = advice
    # The server sends the notice, and its encoding may lack the symbols of operators.
    return f"Each refresh of {name} recomputes it: {in_words(because)}. {remedy}"


_REMEDIES = {
    "changes by itself": "Leave that out of the query, and filter or compute it where the view is read.",
    "cannot be captured": "Read ordinary tables instead, or copy the rows into one.",
    "a row that is read as one value": "List the columns instead of the whole row.",
}
