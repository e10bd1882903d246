"""Check the health of capture, change logs and views by the catalog alone. Change nothing and read no table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from psycopg import Connection

from orchestrator import catalog
from orchestrator.catalog import monitoring as catalog_monitoring
from orchestrator.catalog import objects as catalog_objects
from orchestrator.catalog.monitoring import ViewState
from orchestrator.runtime.diagnosis.doctor import Finding

_FINE = {
    "fresh": "it is up to date",
    "paused": "it is paused",
    "not planned": "it is not planned yet, so every read computes its query",
}


def health(connection: Connection[Any], max_lag: float | None) -> Iterator[Finding]:
    """Yield the state of capture and of each view. `max_lag` is the maximum age of a content in seconds."""
    off = [name for _, _, name in catalog_objects.members_without_triggers(connection)]
    sentence = f"triggers of {', '.join(off)} are missing or disabled: run idivm doctor"
    yield Finding("capture", not off, sentence if off else "every captured table has its triggers")
    for dropped in catalog.dropped_views(connection):
        yield Finding(
            f"view {dropped.name}",
            False,
            f"{dropped.cause} dropped it: run idivm restore or idivm drop",
        )
    for view in catalog_monitoring.view_states(connection):
        yield _view(view, max_lag)


def _view(view: ViewState, max_lag: float | None) -> Finding:
    subject = f"view {view.display}"
    if view.error is not None:
        return Finding(subject, False, view.error)
    if view.state == "invalid":
        return Finding(subject, False, "it is invalid: its next refresh recomputes it")
    if view.log_limit is not None and view.log_bytes > view.log_limit:
        return Finding(
            subject,
            False,
            f"it holds {view.log_bytes:,} bytes of change logs, more than its log_limit",
        )
    if view.state in _FINE:
        return Finding(subject, True, _FINE[view.state])
    lag = view.lag or 0.0
    sentence = f"it is behind by {view.pending:,} changes and {lag:,.1f} s"
    if view.waits_for is not None:
        sentence += f", and waits for its gate: {view.waits_for}"
    return Finding(subject, max_lag is None or lag <= max_lag, sentence)
