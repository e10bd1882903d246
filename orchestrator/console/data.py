"""What the pages show, read from a database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from markupsafe import Markup

from orchestrator.catalog import ViewInfo
from orchestrator.catalog.monitoring import PastRefresh, ViewState, pause, resume
from orchestrator.catalog.parts import Parts
from orchestrator.console.charts import Bar, bars
from orchestrator.drawing import Edge, Graph, Node, svg
from orchestrator.drawing.plans import states_graph
from orchestrator.errors import NotFoundError
from orchestrator.runtime.explain import Explanation, sources_shown
from orchestrator.runtime.installation.indexes import MissingIndex
from orchestrator.runtime.monitoring.sample import Monitor, Sample

PAST = 100
"""Refreshes in a chart."""

WORST_FIRST = ("failed", "invalid", "not planned", "behind", "paused", "fresh")


class Operations(Protocol):
    """What the console uses of an orchestrator."""

    connection: Any

    def view(self, name: str) -> ViewInfo:
        """Return a view."""

    def explain(self, name: str) -> Explanation:
        """Explain a view."""

    def explain_query(self, query: str) -> Explanation:
        """Explain the view that a query would become."""

    def parts(self, view: ViewInfo) -> Parts | None:
        """Return the heavy and light parts of a view."""

    def missing_indexes(self, view: ViewInfo) -> list[MissingIndex]:
        """Return the indexes that changes miss most."""

    def refresh(self, *names: str) -> Any:
        """Refresh views."""

    def close(self) -> None:
        """Close the connection."""


@dataclass(frozen=True)
class ViewPage:
    """The page of a view."""

    state: ViewState
    query: str
    explanation: Explanation
    pictures: dict[str, Markup]
    legends: dict[str, list[tuple[str, str]]]
    parts: Parts | None
    missing: list[MissingIndex]
    history: list[PastRefresh]
    charts: list[Markup]


class Data:
    """Reads pages over one connection beside the monitor's, for any number of threads."""

    def __init__(self, monitor: Monitor, operate: Callable[[], Operations]) -> None:
        """Take the source of samples, and how to connect."""
        self.monitor = monitor
        self._operate = operate
        self._lock = threading.Lock()
        self._operations: Operations | None = None

    @contextmanager
    def operations(self) -> Iterator[Operations]:
        """Give the orchestrator to a block, while no other request uses it."""
        with self._lock:
            if self._operations is None or self._operations.connection.closed:
                self._operations = self._operate()
            yield self._operations

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._operations is not None:
                self._operations.close()

    def state(self, view_id: int) -> ViewState:
        """Return the state of a view."""
        for view in self.monitor.sample().views:
            if view.id == view_id:
                return view
        raise NotFoundError("There is no such view any more.")

    def page(self, view_id: int) -> ViewPage:
        """Return what the page of a view shows."""
        state = self.state(view_id)
        with self.operations() as operations:
            view = operations.view(state.name)
            explanation = operations.explain(state.name)
            parts = operations.parts(view)
            missing = operations.missing_indexes(view)
        history = self.monitor.last_refreshes(view_id, PAST)
        sizes = self.monitor.state_sizes(view)
        facts = {s.role: (f"about {s.rows:,} rows, {size(s.bytes)}",) for s in sizes}
        names = {
            str(s.oid): name
            for s, name in zip(view.plan.program.sources, sources_shown(view), strict=True)
        }
        graphs = {**explanation.graphs, "tree": states_graph(view.plan, view.name, names, facts)}
        return ViewPage(
            state,
            view.query,
            explanation,
            {name: picture(graph) for name, graph in graphs.items()},
            {name: graph.legend() for name, graph in graphs.items()},
            parts,
            missing,
            history,
            list(_charts(history)),
        )

    def what_if(self, query: str) -> tuple[Explanation, dict[str, Markup]]:
        """Return the explanation of a query, and its pictures."""
        with self.operations() as operations:
            explanation = operations.explain_query(query)
        return explanation, {name: picture(g) for name, g in explanation.graphs.items()}

    def refresh(self, view_id: int) -> None:
        """Refresh a view."""
        name = self.state(view_id).name
        with self.operations() as operations:
            operations.refresh(name)
        self.monitor.expire()

    def explained(self, view_id: int) -> str:
        """Return the explanation of a view as text, with the Δ-script."""
        name = self.state(view_id).name
        with self.operations() as operations:
            explanation = operations.explain(name)
        return f"{explanation}\n\n{explanation.script}"

    def pause_or_resume(self, view_id: int) -> None:
        """Pause a view, or end its pause."""
        pauses = self.state(view_id).state != "paused"
        with self.operations() as operations:
            (pause if pauses else resume)(operations.connection, view_id)
        self.monitor.expire()


def picture(graph: Graph) -> Markup:
    """Return a graph as SVG for a page that has its style sheet."""
    return Markup(svg(graph, standalone=False))


def by_trouble(views: list[ViewState]) -> list[ViewState]:
    """Return the views, those with problems first, then those that are most behind."""
    return sorted(views, key=lambda v: (WORST_FIRST.index(v.state), -(v.lag or 0.0), v.name))


def overview(sample: Sample) -> Graph:
    """Return the graph of tables and views, those with problems first."""
    nodes: list[Node] = []
    edges: list[Edge] = []
    for view in by_trouble(sample.views):
        if view.id is None:
            continue
        own = f"view {view.id}"
        facts = [view.state, "" if view.state == "fresh" else lag(view), cost(view)]
        line = ", ".join(filter(None, facts))
        nodes.append(Node(own, view.display, "view", (line,), view.state, f"/view/{view.id}"))
        edges += [Edge(f"table {source}", own) for source in view.tables]
        edges += [Edge(f"view {below}", own) for below in view.below]
    nodes += [
        Node(f"table {t.id}", t.name, "table", (f"{t.captured:,} rows captured",))
        for t in sample.tables
    ]
    present = {node.id for node in nodes}
    kept = tuple(edge for edge in edges if {edge.source, edge.target} <= present)
    return Graph("tables and views", tuple(nodes), kept, "right")


def lag(view: ViewState) -> str:
    """Return how old a content is, for people."""
    seconds = view.lag
    if seconds is None:
        return "never refreshed"
    if seconds < 0.0005:
        return "0 s"
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:,.2g} s" if seconds < 10 else f"{seconds:,.0f} s"


def cost(view: ViewState) -> str:
    """Return the mean duration of refreshes, for people."""
    return milliseconds(view.total_seconds / view.refreshes) if view.refreshes else ""


def milliseconds(seconds: float | None) -> str:
    """Return a duration, for people.

    >>> milliseconds(0.0123), milliseconds(2.0), milliseconds(None)
    ('12.3 ms', '2,000 ms', '')
    """
    if seconds is None:
        return ""
    number = seconds * 1000
    return f"{number:,.0f} ms" if number >= 100 else f"{number:,.3g} ms"


def size(number: float) -> str:
    """Return a number of bytes, for people."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 10240 or unit == "GB":
            break
        number /= 1024
    return f"{number:,.0f} {unit}"


def _charts(history: list[PastRefresh]) -> Iterator[Markup]:
    past = [refresh for refresh in reversed(history) if refresh.error is None]
    if not past:
        return
    marks = ["recomputed" if refresh.reason else "" for refresh in past]
    times = [
        Bar((r.seconds or 0) * 1000, f"{r.at:%Y-%m-%d %H:%M:%S}: {milliseconds(r.seconds)}", mark)
        for r, mark in zip(past, marks, strict=True)
    ]
    rows = [
        Bar(r.changed or 0, f"{r.at:%Y-%m-%d %H:%M:%S}: {r.changed or 0:,} rows", mark)
        for r, mark in zip(past, marks, strict=True)
    ]
    yield bars("Duration of the last refreshes", times, "ms")
    yield bars("Rows that the last refreshes changed", rows, "rows")
