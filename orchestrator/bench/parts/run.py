"""Update prices in the running example of papers/idivm.txt: its figure 12, and SQL by hand.

At each point of four axes (diff size d, joins j, selectivity s, fanout f), the strategies maintain
V' in turn. Each refresh follows d price updates. The report also shows the paper's formula.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from orchestrator.api import Orchestrator, connect
from orchestrator.bench.contenders import (
    AUTO,
    ID,
    RECOMPUTE,
    SDBT_STREAMS,
    SETTLE,
    TUPLE,
    Contender,
    Series,
    create,
    in_turn,
    offered,
    refreshing,
    require_equal,
    require_strategy,
    sdbt_fixed,
    view_name,
)
from orchestrator.bench.measure import (
    COLD_MEMORY,
    STEADY,
    in_c_or_say,
    machine,
    own_server,
    require_durable_commits,
)
from orchestrator.bench.parts import against
from orchestrator.bench.parts.against import PAIR, Against
from orchestrator.bench.parts.breakdown import Pages, pages
from orchestrator.bench.parts.cold import measure as measure_cold
from orchestrator.bench.parts.data import FILES, WORKLOAD, Dataset, Prices, query
from orchestrator.bench.parts.report import (
    D,
    F,
    J,
    Measured,
    Point,
    S,
    against_bars,
    against_rows,
    auto_bars,
    cold_bars,
    join_bars,
    rows,
)
from orchestrator.bench.report import Report, progress
from orchestrator.bench.workload import vacuum
from orchestrator.errors import UsageError

CONTENDERS = (ID, AUTO, TUPLE, sdbt_fixed("parts"), SDBT_STREAMS, RECOMPUTE)
COLD = (ID, TUPLE, sdbt_fixed("parts"), SDBT_STREAMS)
"""The contenders of figure 12."""

PARTS = 100_000
"""The number of parts, and of devices, at scale 1; the paper has 50 times as many."""

RECOMPUTATIONS = 3
"""Runs of a recomputation, which costs as much as the query."""

SHARED_BUFFERS = "1GB"


@dataclass(frozen=True)
class Axes:
    """The values of each parameter while the others keep their defaults; an empty axis is left out."""

    d: tuple[int, ...] = (100, 200, 300, 400, 500, 2_000, 5_000, 15_000)
    j: tuple[int, ...] = (2, 3, 4, 5, 6)
    s: tuple[int, ...] = (6, 12, 25, 50, 100)
    f: tuple[int, ...] = (5, 10, 15, 20, 25)


@dataclass(frozen=True)
class _Bench:
    """The settings of one run of the benchmark, and where to report progress."""

    orchestrator: Orchestrator
    contenders: tuple[Contender, ...]
    parts: int
    repeat: int
    seed: int
    say: Callable[[str], None]


def run(
    *,
    dsn: str | None = None,
    scale: float = 1.0,
    repeat: int = 5,
    seed: int = 1,
    d: Sequence[int] = Axes.d,
    j: Sequence[int] = Axes.j,
    s: Sequence[int] = Axes.s,
    f: Sequence[int] = Axes.f,
    strategies: Sequence[str] = (),
    compare: bool = True,
    cold: bool = False,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Run the benchmark on its own server, or in schema idivm_bench of the database at `dsn`.

    Scale 1 has 100,000 parts, as many devices, and a million rows that join them. With `cold`, the
    caches are empty before each refresh, and nothing else is compared.
    """
    axes = Axes(tuple(d), tuple(j), tuple(s), tuple(f))
    parts = round(PARTS * scale)
    _require_sense(axes, parts, repeat)
    if cold:
        if dsn is not None:
            raise UsageError(
                "A cold run restarts its server: leave --dsn out to measure on a server of its own."
            )
        return _cold(axes, parts, repeat, seed, strategies, pg, say)
    if dsn is None:
        with own_server(pg, {**STEADY, "shared_buffers": SHARED_BUFFERS}) as server:
            in_c_or_say(server, "So capture is measured in plpgsql.", say)
            return run(
                dsn=server.up().dsn,
                scale=scale,
                repeat=repeat,
                seed=seed,
                d=d,
                j=j,
                s=s,
                f=f,
                strategies=strategies,
                compare=compare,
                say=say,
            )
    with connect(dsn) as orchestrator:
        require_durable_commits(orchestrator.connection)
        contenders = _offered(orchestrator, CONTENDERS, strategies)
        bench = _Bench(orchestrator, contenders, parts, repeat, seed, say)
        described = machine(orchestrator.connection)
        measured = [item for group in _groups(axes, parts) for item in _measure_group(bench, group)]
        compared = _compare(bench) if compare else {}
    subject = contenders[0]
    report_rows = [row for item in measured for row in rows(parts, item)]
    report_rows += [
        row
        for number, cases in compared.items()
        for case in cases
        for row in against_rows(number, case, subject)
    ]
    bars = (
        *join_bars([item for item in measured if item.point.varied == "j"]),
        *auto_bars(measured),
        *(against_bars(compared) if subject == ID else ()),
    )
    return Report("parts", described, tuple(report_rows), bars)


def _cold(
    axes: Axes,
    parts: int,
    repeat: int,
    seed: int,
    strategies: Sequence[str],
    pg: int | None,
    say: Callable[[str], None],
) -> Report:
    with own_server(pg, {**STEADY, "shared_buffers": COLD_MEMORY}) as server:
        in_c_or_say(server, "So capture is measured in plpgsql.", say)
        with connect(server.up().dsn) as orchestrator:
            require_durable_commits(orchestrator.connection)
            contenders = _offered(orchestrator, COLD, strategies)
            described = machine(orchestrator.connection)
        groups = [(replace(dataset, seed=seed), points) for dataset, points in _groups(axes, parts)]
        measured = list(measure_cold(server, groups, contenders, repeat, say))
    report_rows = [row for item in measured for row in rows(parts, item)]
    return Report("parts, cold", described, tuple(report_rows), tuple(cold_bars(measured)))


def _offered(
    orchestrator: Orchestrator, contenders: Sequence[Contender], strategies: Sequence[str]
) -> tuple[Contender, ...]:
    tiny = Dataset(parts=10, fanout=2, selectivity=50, joins=2).settings()
    with WORKLOAD.tables(orchestrator, tiny):
        return offered(orchestrator, contenders, query("V'"), strategies)


def _require_sense(axes: Axes, parts: int, repeat: int) -> None:
    if repeat < 1:
        raise UsageError(f"The benchmark needs --repeat of 1 or more, not {repeat}.")
    if parts < D:
        raise UsageError(
            f"The benchmark updates {D} of the parts, and at this scale there are {parts}: "
            f"give --scale {D / PARTS} or more."
        )
    limits = {
        "d": (axes.d, 1, 10**9),
        "j": (axes.j, 2, 10),
        "s": (axes.s, 1, 100),
        "f": (axes.f, 1, parts),
    }
    for name, (values, least, most) in limits.items():
        for value in values:
            if not least <= value <= most:
                raise UsageError(f"--{name} takes numbers from {least} to {most}, not {value}.")


def _groups(axes: Axes, parts: int) -> Iterator[tuple[Dataset, list[Point]]]:
    """Yield groups of points that share tables, without values of d above the number of parts."""
    points = [
        *(Point("d", d=d) for d in axes.d if d <= parts),
        *((Point("d", view="V"),) if axes.d else ()),
        *(Point("j", j=j, s=100) for j in axes.j),
        *(Point("s", s=s) for s in axes.s),
        *(Point("f", f=f) for f in axes.f),
    ]

    def tables(point: Point) -> Dataset:
        joins = max(axes.j) if point.varied == "j" else J
        return Dataset(parts, point.f, point.s, joins)

    for dataset, group in itertools.groupby(points, tables):
        yield dataset, list(group)


@contextmanager
def _tables(bench: _Bench, dataset: Dataset) -> Iterator[None]:
    seeded = {**dataset.settings(), "seed": bench.seed}
    bench.say(f"loading {dataset.parts:,} parts of {dataset.fanout} devices each")
    with WORKLOAD.tables(bench.orchestrator, seeded):
        yield


def _measure_group(bench: _Bench, group: tuple[Dataset, list[Point]]) -> Iterator[Measured]:
    dataset, points = group
    with _tables(bench, dataset):
        for _, same_view in itertools.groupby(points, lambda point: point.view):
            at = list(same_view)
            by_point: dict[Point, Measured] = {}
            for together in _together(bench.contenders, at[0]):
                measure = _measure_joins if at[0].varied == "j" else _measure_view
                for item in measure(bench, at, together):
                    before = by_point.get(item.point)
                    by_point[item.point] = before.beside(item) if before else item
            yield from by_point.values()


def _together(contenders: tuple[Contender, ...], point: Point) -> list[tuple[Contender, ...]]:
    """Return groups of contenders to measure in turn; the slow `recompute` runs alone, less often.

    One axis is enough to show that recomputing costs the same for every diff. On axis j, the points
    are measured in turn, because their difference counts.
    """
    quick = tuple(contender for contender in contenders if contender != RECOMPUTE)
    slow = tuple(contender for contender in contenders if contender == RECOMPUTE)
    if point.varied == "j":
        return [(item,) for item in quick or slow]
    if quick and point.varied != "d":
        return [quick]
    return [group for group in (quick, slow) if group]


def _measure_view(
    bench: _Bench, points: Sequence[Point], contenders: Sequence[Contender]
) -> Iterator[Measured]:
    """Measure the contenders in turn, at points that only differ in d."""
    first = points[0]
    name, text = FILES[first.view], query(first.view, first.j)
    bench.say(f"creating {first.view} by {', '.join(item.label for item in contenders)}")
    refused = {}
    for contender in contenders:
        if (reason := create(bench.orchestrator, name, text, contender)) is not None:
            refused[contender.label] = reason
    views = {item.label: view_name(name, item) for item in contenders if item.label not in refused}
    for number, point in enumerate(points):
        prices = Prices(bench.orchestrator, point.d)
        series = _in_turn(bench, views, prices, point, contenders, SETTLE if number == 0 else 1)
        costs, components = prices.costs(point.j), _pages(bench, views, prices)
        yield Measured(point, costs, series, refused, components)
    _finish(bench, {views[item.label]: item for item in contenders if item.label in views})


def _measure_joins(
    bench: _Bench, points: Sequence[Point], contenders: Sequence[Contender]
) -> Iterator[Measured]:
    """Measure the numbers of joins in turn, without the condition on devices."""
    (contender,) = contenders
    views, refused = {}, {}
    for point in points:
        bench.say(f"creating {point.view} with {point.j} joins by {contender.label}")
        name = f"{FILES[point.view]}_{point.j}"
        text = query(point.view, point.j, selective=False)
        if (reason := create(bench.orchestrator, name, text, contender)) is None:
            views[str(point.j)] = view_name(name, contender)
        else:
            refused[point.j] = reason
    prices = Prices(bench.orchestrator, points[0].d)
    series = _in_turn(bench, views, prices, points[0], contenders, SETTLE) if views else {}
    components = _pages(bench, views, prices)
    for point in points:
        there = point.j not in refused
        yield Measured(
            point,
            prices.costs(point.j, selective=False),
            {contender.label: series[str(point.j)]} if there else {},
            {} if there else {contender.label: refused[point.j]},
            {contender.label: components[str(point.j)]} if there else {},
        )
    _finish(bench, dict.fromkeys(views.values(), contender))


def _in_turn(
    bench: _Bench,
    views: dict[str, str],
    prices: Prices,
    point: Point,
    contenders: Sequence[Contender],
    settle: int,
) -> dict[str, Series]:
    orchestrator = bench.orchestrator
    vacuum(orchestrator)

    def next_round() -> None:
        bench.say(
            f"{point.view}, {point.varied} varied: d = {point.d}, s = {point.s}, f = {point.f}"
        )
        orchestrator.refresh(*views.values())
        prices.change()

    recomputed = RECOMPUTE in contenders
    return in_turn(
        {label: refreshing(orchestrator.connection, [view]) for label, view in views.items()},
        next_round,
        min(bench.repeat, RECOMPUTATIONS) if recomputed else bench.repeat,
        1 if recomputed else settle,
    )


def _pages(bench: _Bench, views: dict[str, str], prices: Prices) -> dict[str, Pages]:
    """Return the pages of the components of one more refresh of each view."""
    orchestrator = bench.orchestrator
    orchestrator.refresh(*views.values())
    prices.change()
    return {
        label: pages(orchestrator, view, refreshing(orchestrator.connection, [view]), cold=False)[1]
        for label, view in views.items()
    }


def _finish(bench: _Bench, views: dict[str, Contender]) -> None:
    """Check that the views are right and maintained by the expected strategies; drop them."""
    if not views:
        return
    require_equal(bench.orchestrator, list(views))
    for view, item in views.items():
        require_strategy(bench.orchestrator, view, item)
        bench.orchestrator.drop_view(view)


def _compare(bench: _Bench) -> dict[int, list[Against]]:
    """Compare the first contender with hand-written SQL and materialized views, at two sizes."""
    result = {}
    smaller = max(bench.parts // 10, D)
    for parts, cases in ((smaller, (PAIR,)), (bench.parts, tuple(against.CASES))):
        with _tables(bench, Dataset(parts, F, S, J)):
            measured = []
            for case in cases:
                bench.say(f"{case} of {parts:,} parts beside SQL by hand and materialized views")
                item = against.measure(
                    bench.orchestrator, case, bench.contenders[0], D, bench.repeat
                )
                measured += [item] if item else []
        result[parts] = measured
    return result
