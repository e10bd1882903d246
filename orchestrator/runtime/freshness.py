"""What `idivm serve` knows about the freshness of each view, and when to refresh it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from orchestrator.catalog.serving import Served
from orchestrator.runtime import side_by_side


@dataclass
class Progress:
    """The known freshness of a view."""

    since: float | None = None
    """The time since when it may be stale; None while it is fresh."""
    seen: dict[int, int] = field(default_factory=dict)
    """The numbers of the last statements on the tables below, at the last look."""
    writers: frozenset[str] = frozenset()
    """The transactions that were writing the logs of these tables at the last look."""
    unsettled: bool = False
    """Whether a writer may have had its statement number before it appeared among the writers."""
    quiet_until: float = 0.0
    """For a view with clocks that is fresh: until when no row is due, as a time of the database."""
    clocks: dict[int, int] = field(default_factory=dict)
    """The numbers of the last moves of its clocks, at the last look."""
    wake: float = 0.0
    """When to look whether a row is due."""
    took: float = 0.0
    failures: int = 0
    not_before: float = 0.0
    due: float = 0.0
    """For a view with a schedule: its next time."""


def groups(views: Iterable[Served]) -> list[list[Served]]:
    """Return views in groups. Views that share a view below are in one group; groups are refreshed in
    parallel.

    >>> def served(id, *below):
    ...     return Served(id, f"v{id}", 1.0, False, frozenset(), frozenset(below))
    >>> [[v.id for v in group] for group in groups([served(1), served(2), served(3, 1), served(4, 3, 1)])]
    [[1, 3, 4], [2]]
    """
    by_id = {view.id: view for view in views}
    id_groups = side_by_side.groups((view.id, view.below) for view in by_id.values())
    return [[by_id[view_id] for view_id in sorted(group)] for group in id_groups]


def refresh_at(view: Served, progress: Progress) -> float | None:
    """Return when to begin the refresh of a view: late enough to batch changes, early enough for its bound.

    >>> view = Served(1, "v", 1.0, False, frozenset(), frozenset())
    >>> refresh_at(view, Progress(since=10.0, took=0.1)), refresh_at(view, Progress())
    (10.4, None)
    """
    if progress.since is None:
        return None
    if view.schedule is not None:
        return max(progress.due, progress.not_before)
    return max(progress.since + view.bound / 2 - progress.took, progress.not_before)
