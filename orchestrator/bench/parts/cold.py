"""Measure refreshes of the running example on restarted servers with empty caches.

The paper's tables are larger than memory, so its refreshes read most pages from the disk. Here the
server has little memory and is restarted before each refresh, and the system's file cache is
dropped. The session has made its plans, and the price updates have read the parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from orchestrator.api import connect
from orchestrator.bench.contenders import (
    Contender,
    cold_session,
    create,
    in_turn,
    refreshing,
    require_equal,
    require_strategy,
    view_name,
)
from orchestrator.bench.measure import Execution
from orchestrator.bench.parts.breakdown import Pages, pages
from orchestrator.bench.parts.data import FILES, WORKLOAD, Dataset, Prices, query
from orchestrator.bench.parts.report import Measured, Point
from orchestrator.bench.workload import drop, enter, vacuum
from orchestrator.server import EmbeddedServer

IDLE = "UPDATE parts SET price = price + 1 WHERE pid <= 0"
"""Updates parts that are in no device."""


def measure(
    server: EmbeddedServer,
    groups: Iterable[tuple[Dataset, list[Point]]],
    contenders: Sequence[Contender],
    repeat: int,
    say: Callable[[str], None],
) -> Iterator[Measured]:
    """Measure the contenders at the points of each group, which shares tables."""
    for dataset, points in groups:
        say(f"loading {dataset.parts:,} parts of {dataset.fanout} devices each")
        refused: dict[Point, dict[str, str]] = {}
        with connect(server.up().dsn) as orchestrator:
            WORKLOAD.load(orchestrator, dataset.settings())
            orchestrator.connection.execute(WORKLOAD.text("hermits").encode())
            for _, same in itertools.groupby(points, _name):
                at = list(same)
                text = query(at[0].view, at[0].j, selective=at[0].varied != "j")
                reasons = {
                    item.label: create(orchestrator, _name(at[0]), text, item)
                    for item in contenders
                }
                given = {label: reason for label, reason in reasons.items() if reason is not None}
                refused |= dict.fromkeys(at, given)
            vacuum(orchestrator)
        rounds = itertools.count()
        for point in points:
            yield _at(server, point, contenders, refused[point], repeat, rounds, say)
        with connect(server.up().dsn) as orchestrator:
            views = {
                view_name(_name(point), item): item
                for point in points
                for item in contenders
                if item.label not in refused[point]
            }
            require_equal(orchestrator, list(views))
            for view, item in views.items():
                require_strategy(orchestrator, view, item)
            drop(orchestrator)


def _at(
    server: EmbeddedServer,
    point: Point,
    contenders: Sequence[Contender],
    refused: dict[str, str],
    repeat: int,
    rounds: Iterator[int],
    say: Callable[[str], None],
) -> Measured:
    components: dict[str, Pages] = {}

    def side(item: Contender) -> Callable[[], Execution]:
        view = view_name(_name(point), item)

        def run() -> Execution:
            say(f"{point.view} by {item.label}, cold: d = {point.d}, j = {point.j}, s = {point.s}")
            with cold_session(server, view, IDLE) as orchestrator:
                Prices(orchestrator, point.d, rounds).change()
                refresh = refreshing(orchestrator.connection, [view])
                measured, components[item.label] = pages(orchestrator, view, refresh, cold=True)
            return measured

        return run

    sides = {item.label: side(item) for item in contenders if item.label not in refused}
    series = in_turn(sides, lambda: None, repeat, 0)
    with connect(server.up().dsn) as orchestrator:
        enter(orchestrator)
        costs = Prices(orchestrator, point.d, rounds).costs(point.j, selective=point.varied != "j")
    return Measured(point, costs, series, refused, components)


def _name(point: Point) -> str:
    joins = f"_{point.j}" if point.varied == "j" else ""
    return f"{FILES[point.view]}{joins}"
