"""The query that a view with `maintain = on_read` runs while changes are pending."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.deltascript.plan.query import Query
from orchestrator.deltascript.plan.tables import Column


@dataclass(frozen=True)
class Merged:
    """The stored content merged with the pending changes, as one query over states, tables and logs."""

    query: Query
    columns: tuple[Column, ...]
    """The columns of the view, with their types as PostgreSQL writes them."""
    sources: tuple[int, ...]
    """The captured tables, by oid, whose pending changes the query merges. If another table of the view
    has pending changes, a read runs the query of the view."""
    lookups: tuple[tuple[int, tuple[int, ...]], ...]
    """The keys of groups or rows in captured tables, by oid and column numbers: a reader's condition on them is
    looked up in the logs."""
