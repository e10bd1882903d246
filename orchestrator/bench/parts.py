"""The running example of papers/idivm.txt under price updates: its figure 12, and what SQL can do.

At each point of four axes (diff size d, joins j, selectivity s, fanout f) the strategies maintain
V' side by side; every refresh follows d price updates. The formula beside them is the paper's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from orchestrator.api import Orchestrator, connect
from orchestrator.bench import against
from orchestrator.bench.against import BY_HAND, MATERIALIZED, PAIR, Against
from orchestrator.bench.contenders import (
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
from orchestrator.bench.formula import Costs, aggregate_speedup, growth, spj_speedup
from orchestrator.bench.measure import STEADY, machine, own_server, require_durable_commits
from orchestrator.bench.parts_data import FILES, WORKLOAD, Dataset, Prices, query
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.bench.workload import vacuum
from orchestrator.errors import UsageError

CONTENDERS = (ID, TUPLE, sdbt_fixed("parts"), SDBT_STREAMS, RECOMPUTE)

PARTS = 100_000
"""Parts, and as many devices, at scale 1; the paper has 50 times as many."""

D, J, S, F = 200, 2, 20, 10
"""The paper's defaults (figure 11b)."""

TIMES_BY_HAND_AT_MOST = 1.5
TIMES_FASTER_THAN_MATERIALIZED = 15.0

RECOMPUTATIONS = 3
"""Runs of what costs as much as the query."""

SHARED_BUFFERS = "1GB"


@dataclass(frozen=True)
class Axes:
    """The values of each parameter while the others keep their defaults; empty: left out."""

    d: tuple[int, ...] = (100, 200, 300, 400, 500, 2_000, 5_000, 15_000)
    j: tuple[int, ...] = (2, 3, 4, 5, 6)
    s: tuple[int, ...] = (6, 12, 25, 50, 100)
    f: tuple[int, ...] = (5, 10, 15, 20, 25)


@dataclass(frozen=True)
class Point:
    """A place on an axis."""

    varied: str
    view: str = "V'"
    d: int = D
    j: int = J
    s: int = S
    f: int = F

    @property
    def selective(self) -> bool:
        """Without a condition on devices nothing but joins tells the points of axis j apart."""
        return self.varied != "j"


@dataclass(frozen=True)
class Measured:
    """What the strategies took at a point."""

    point: Point
    costs: Costs
    series: dict[str, Series]
    refused: dict[str, str]


@dataclass(frozen=True)
class _Bench:
    """One run of the benchmark: where, how much, and whom to tell of progress."""

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
    axes: Axes | None = None,
    strategies: Sequence[str] = (),
    compare: bool = True,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Measures on a server of its own, or in schema idivm_bench of the database at `dsn`.

    At scale 1 there are 100,000 parts, as many devices, and a million rows that join them.
    """
    axes = axes or Axes()
    parts = round(PARTS * scale)
    _require_sense(axes, parts, repeat)
    if dsn is None:
        with own_server(pg, {**STEADY, "shared_buffers": SHARED_BUFFERS}) as server:
            return run(
                dsn=server.up().dsn,
                scale=scale,
                repeat=repeat,
                seed=seed,
                axes=axes,
                strategies=strategies,
                compare=compare,
                say=say,
            )
    with connect(dsn) as orchestrator:
        require_durable_commits(orchestrator.connection)
        tiny = Dataset(parts=10, fanout=2, selectivity=50, joins=2).settings()
        with WORKLOAD.tables(orchestrator, tiny):
            contenders = offered(orchestrator, CONTENDERS, query("V'"), strategies)
        bench = _Bench(orchestrator, contenders, parts, repeat, seed, say)
        described = machine(orchestrator.connection)
        measured = [one for group in _groups(axes, parts) for one in _measure_group(bench, group)]
        compared = _compare(bench) if compare else {}
    rows = [row for one in measured for row in _rows(bench, one)]
    subject = contenders[0]
    rows += [
        row
        for number, cases in compared.items()
        for one in cases
        for row in _against_rows(number, one, subject)
    ]
    bars = (
        *_join_bars([one for one in measured if one.point.varied == "j"]),
        *(_against_bars(compared) if subject == ID else ()),
    )
    return Report("parts", described, tuple(rows), bars)


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
    """The points that share tables; values of d above the number of parts are left out."""
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
        for (view, joins), same_view in itertools.groupby(points, lambda p: (p.view, p.j)):
            at = list(same_view)
            text = query(view, joins, selective=at[0].selective)
            found: dict[Point, Measured] = {}
            for together in _together(bench.contenders, at[0]):
                for one in _measure_view(bench, text, at, together):
                    before = found.get(one.point, one)
                    found[one.point] = Measured(
                        one.point,
                        before.costs,
                        {**before.series, **one.series},
                        {**before.refused, **one.refused},
                    )
            yield from found.values()


def _together(contenders: tuple[Contender, ...], point: Point) -> list[tuple[Contender, ...]]:
    """Who is measured in turn: what takes a thousand times as long runs by itself, and less often.

    That recomputing costs the same for every diff is worth showing on one axis.
    """
    quick = tuple(one for one in contenders if one != RECOMPUTE)
    slow = tuple(one for one in contenders if one == RECOMPUTE)
    if quick and point.varied != "d":
        return [quick]
    return [group for group in (quick, slow) if group]


def _measure_view(
    bench: _Bench, text: str, points: Sequence[Point], contenders: Sequence[Contender]
) -> Iterator[Measured]:
    """Measures a view at points that differ in d alone."""
    orchestrator = bench.orchestrator
    name = FILES[points[0].view]
    bench.say(f"creating {points[0].view} by {', '.join(one.label for one in contenders)}")
    refused = {}
    for one in contenders:
        if (reason := create(orchestrator, name, text, one)) is not None:
            refused[one.label] = reason
    present = [one for one in contenders if one.label not in refused]
    views = {one.label: view_name(name, one) for one in present}
    recomputed = RECOMPUTE in present
    for number, point in enumerate(points):
        vacuum(orchestrator)
        bench.say(f"{point.view}: d = {point.d}, j = {point.j}, s = {point.s}, f = {point.f}")
        prices = Prices(orchestrator, point.d)

        def next_round(prices: Prices = prices) -> None:
            orchestrator.refresh(*views.values())
            prices.change()

        series = in_turn(
            {k: refreshing(orchestrator.connection, [v]) for k, v in views.items()},
            next_round,
            min(bench.repeat, RECOMPUTATIONS) if recomputed else bench.repeat,
            SETTLE if number == 0 and not recomputed else 1,
        )
        costs = prices.costs(point.j, selective=point.selective)
        yield Measured(point, costs, series, refused)
    require_equal(orchestrator, list(views.values()))
    for one in present:
        require_strategy(orchestrator, views[one.label], one)
        orchestrator.drop_view(views[one.label])


def _compare(bench: _Bench) -> dict[int, list[Against]]:
    """The first contender beside hand-written SQL and materialized views, at two sizes."""
    found = {}
    smaller = max(bench.parts // 10, D)
    for parts, cases in ((smaller, (PAIR,)), (bench.parts, tuple(against.CASES))):
        with _tables(bench, Dataset(parts, F, S, J)):
            measured = []
            for case in cases:
                bench.say(f"{case} of {parts:,} parts beside SQL by hand and materialized views")
                one = against.measure(
                    bench.orchestrator, case, bench.contenders[0], D, bench.repeat
                )
                measured += [one] if one else []
        found[parts] = measured
    return found


def _row(parts: int, point: Point, strategy: str, series: Series | None) -> dict[str, Any]:
    return {
        "varied": point.varied,
        "parts": parts,
        "view": point.view,
        "d": point.d,
        "j": point.j,
        "s %": point.s,
        "f": point.f,
        "strategy": strategy,
        "ms": series.milliseconds if series else None,
        "from": min(series.times) if series else None,
        "to": max(series.times) if series else None,
        "buffers": series.buffers if series else None,
        "time / id": None,
        "buffers / id": None,
        "formula": None,
        "paper": None,
        "a": None,
        "p": None,
        "g": None,
        "note": "",
    }


def _rows(bench: _Bench, measured: Measured) -> Iterator[dict[str, Any]]:
    """A row for each strategy; the formula stands beside the one that it is of."""
    predict = spj_speedup if measured.point.view == "V" else aggregate_speedup
    base = measured.series.get(ID.label)
    for label, series in measured.series.items():
        row = _row(bench.parts, measured.point, label, series)
        row.update(a=measured.costs.a, p=measured.costs.p, g=measured.costs.g)
        if base is not None:
            row["time / id"] = series.times_slower_than(base)
            row["buffers / id"] = series.times_more_buffers_than(base)
        if label == TUPLE.label:
            row["formula"] = predict(measured.costs)
            row["paper"] = _paper(measured.point)
        yield row
    for label, reason in measured.refused.items():
        yield {**_row(bench.parts, measured.point, label, None), "note": reason}


def _paper(point: Point) -> str | None:
    """What section 7.2 says of the speedup; the figure has no other numbers."""
    if point.view == "V":
        return None
    if point.varied == "s":
        return "1.2" if point.s == 100 else None
    if point.varied == "j":
        return "grows"
    return "4 to 5"


def _against_rows(parts: int, one: Against, subject: Contender) -> Iterator[dict[str, Any]]:
    sides = {subject.label: one.refresh, BY_HAND: one.by_hand, MATERIALIZED: one.materialized}
    for label, series in sides.items():
        yield {
            **_row(parts, Point("against", view=one.case), label, series),
            "time / id": series.times_slower_than(one.refresh) if subject == ID else None,
            "buffers / id": series.times_more_buffers_than(one.refresh) if subject == ID else None,
        }


def _join_bars(measured: Sequence[Measured]) -> Iterator[Bar]:
    """Slopes over j: that of ID must be no more than chance, that of tuple-based must be more."""
    for contender, op in ((ID, "<="), (TUPLE, ">")):
        runs = {
            one.point.j: one.series[contender.label].times
            for one in measured
            if contender.label in one.series
        }
        if len(runs) < 3:
            continue
        found = growth(runs)
        name = (
            f"{contender.label}, growth of time with j ({found.per_step:+.1%} a join), "
            "slope in standard errors"
        )
        yield Bar(name, found.in_errors, op, found.limit)


def _against_bars(compared: dict[int, list[Against]]) -> Iterator[Bar]:
    factors = {n: one for n, cases in compared.items() for one in cases if one.case == PAIR}
    if not factors:
        return
    largest = factors[max(factors)]
    yield Bar(
        f"{PAIR}, refresh / SQL by hand, time",
        largest.times_by_hand,
        "<=",
        TIMES_BY_HAND_AT_MOST,
    )
    yield Bar(
        f"{PAIR}, REFRESH MATERIALIZED VIEW / refresh, time",
        largest.times_faster,
        ">=",
        TIMES_FASTER_THAN_MATERIALIZED,
    )
    if len(factors) > 1:
        smallest = factors[min(factors)]
        yield Bar(
            f"{PAIR}, that factor / the factor with a tenth of the data",
            largest.times_faster / smallest.times_faster,
            ">",
            1.0,
        )
