"""Samples of the catalog, shared by all watchers of a database.

A sample reads the catalog once for all watchers. Counters that the catalog does not have grow with the
refreshes that appear in `idivm.history` between samples.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
from psycopg import Connection

from orchestrator.catalog import ViewInfo
from orchestrator.catalog import monitoring as catalog_monitoring
from orchestrator.catalog.monitoring import PastRefresh, StateSize, TableState, ViewState
from orchestrator.runtime.installation.names import names_of

if TYPE_CHECKING:
    from orchestrator.runtime.serve import Event

Connect: TypeAlias = Callable[[], "Connection[Any]"]

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of the buckets of a histogram, in seconds."""

YOUNG = 1.0
"""Seconds for which a sample is reused."""

SHARE = 0.02
"""The maximum share of a core that samples use, however often watchers ask."""

LONGEST = 10.0
"""Seconds after which the server cancels a sample."""

OVERLAP = timedelta(minutes=10)
"""A refresh in a transaction of at most this length is counted although it commits late."""


class Histogram:
    """Counts of durations, cumulative by upper bound."""

    def __init__(self) -> None:
        """Begin without durations."""
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count a duration."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, int]]:
        """Return how many durations are at most each bound.

        >>> histogram = Histogram()
        >>> for seconds in (0.001, 0.3, 100.0):
        ...     histogram.add(seconds)
        >>> [histogram.buckets()[position] for position in (0, 7, 8, -1)]
        [('0.001', 1), ('0.25', 1), ('0.5', 2), ('+Inf', 3)]
        """
        total, cumulative = 0, []
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self.counts, strict=True):
            total += count
            cumulative.append((bound, total))
        return cumulative


@dataclass
class Counters:
    """The counters of a view since the monitor began."""

    durations: Histogram = field(default_factory=Histogram)
    changed: int = 0
    errors: int = 0
    recomputes: Counter[str] = field(default_factory=Counter)
    """By reason."""

    def add(self, refresh: PastRefresh) -> None:
        """Count a refresh."""
        if refresh.error is not None:
            self.errors += 1
            return
        self.durations.add(refresh.seconds or 0.0)
        self.changed += refresh.changed or 0
        if refresh.reason is not None:
            self.recomputes[refresh.reason] += 1


@dataclass(frozen=True)
class Sample:
    """The state of a database at a moment."""

    views: list[ViewState]
    tables: list[TableState]
    seconds: float
    """How long reading the catalog took."""


class Monitor:
    """Reads samples over a connection of its own, for any number of threads."""

    def __init__(self, connect: Connect) -> None:
        """Take a function that opens a connection."""
        self._connect = connect
        self._lock = threading.Lock()
        self._connection: Connection[Any] | None = None
        self._sample: Sample | None = None
        self._sampled_at = 0.0
        self._since: datetime | None = None
        self._counted: set[tuple[str, datetime]] = set()
        self._counters: defaultdict[str, Counters] = defaultdict(Counters)
        """By the name of the view."""
        self._staleness: defaultdict[str, Histogram] = defaultdict(Histogram)
        """By the name of the view in events."""
        self.is_active = False
        """Whether this process refreshes views now."""

    def note(self, event: Event) -> None:
        """Count an event of `serve`."""
        self.is_active = event.event not in ("standing by", "disconnected", "stopped")
        if event.view is not None and event.staleness is not None:
            with self._lock:
                self._staleness[event.view].add(event.staleness)

    def counted(self, views: Iterable[ViewState]) -> list[tuple[str, Counters, Histogram | None]]:
        """Return the name and the counters of each view, and the staleness that this process measured."""
        with self._lock:
            return [
                (
                    view.name,
                    deepcopy(self._counters[view.name]),
                    deepcopy(self._staleness.get(view.display)),
                )
                for view in views
            ]

    def sample(self) -> Sample:
        """Return a recent sample, or read a new one."""
        with self._lock:
            now = time.monotonic()
            known = self._sample
            if known is not None:
                allowed = max(YOUNG, known.seconds / SHARE)
                if now - self._sampled_at < allowed:
                    return known
            with self._reading() as connection:
                self._count(connection)
                views = catalog_monitoring.view_states(connection)
                tables = catalog_monitoring.table_states(connection)
            self._sampled_at = time.monotonic()
            self._sample = Sample(views, tables, self._sampled_at - now)
            self._drop_counters(views)
            return self._sample

    def expire(self) -> None:
        """Make the next call read a new sample, after the caller has changed something."""
        with self._lock:
            self._sample = None

    def last_refreshes(self, view: int, number: int) -> list[PastRefresh]:
        """Return the last recorded refreshes of a view, the latest first."""
        with self._lock, self._reading() as connection:
            return catalog_monitoring.last_refreshes(connection, view, number)

    def state_sizes(self, view: ViewInfo) -> list[StateSize]:
        """Return the sizes of the stored states of a view."""
        names = names_of(view)
        roles = [state.role for state in view.plan.program.states]
        with self._lock, self._reading() as connection:
            return catalog_monitoring.state_sizes(connection, {r: names.table(r) for r in roles})

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._drop_connection()

    def _drop_connection(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
        self._connection = None

    @contextmanager
    def _reading(self) -> Iterator[Connection[Any]]:
        """Give the connection to a block. If the block fails, open another connection next time."""
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
            self._connection.execute(
                "SELECT set_config('statement_timeout', %s, false),"
                " set_config('application_name', 'idivm monitor', false)",
                [f"{int(LONGEST * 1000)}ms"],
            )
        try:
            yield self._connection
        except psycopg.Error:
            self._drop_connection()
            raise

    def _count(self, connection: Connection[Any]) -> None:
        """Count the refreshes since the last sample."""
        if self._since is None:
            self._since = catalog_monitoring.clock(connection)
            return
        refreshes = catalog_monitoring.refreshes_since(connection, self._since)
        for refresh in refreshes:
            if (refresh.view, refresh.at) not in self._counted:
                self._counters[refresh.view].add(refresh)
        self._counted = {(refresh.view, refresh.at) for refresh in refreshes}
        latest = max((refresh.at for refresh in refreshes), default=self._since)
        self._since = max(self._since, latest - OVERLAP)

    def _drop_counters(self, views: list[ViewState]) -> None:
        """Drop the counters of views that no longer exist."""
        for name in self._counters.keys() - {view.name for view in views}:
            del self._counters[name]
        for name in self._staleness.keys() - {view.display for view in views}:
            del self._staleness[name]
