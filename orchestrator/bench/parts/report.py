"""The results of the running example's benchmark, as rows and bars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from orchestrator.bench.contenders import AUTO, ID, TUPLE, Contender, Series
from orchestrator.bench.measure import geometric_mean
from orchestrator.bench.parts.against import BY_HAND, MATERIALIZED, PAIR, Against
from orchestrator.bench.parts.breakdown import COMPONENTS, Pages
from orchestrator.bench.parts.formula import Costs, aggregate_speedup, growth, spj_speedup
from orchestrator.bench.report import Bar

D, J, S, F = 200, 2, 20, 10
"""The paper's defaults (figure 11b)."""

TIMES_BY_HAND_AT_MOST = 1.5
TIMES_FASTER_THAN_MATERIALIZED = 15.0
TIMES_BEST_AT_MOST = 1.1
COLD_TIMES_AT_LEAST = 4.0


@dataclass(frozen=True)
class Point:
    """A point on an axis."""

    varied: str
    view: str = "V'"
    d: int = D
    j: int = J
    s: int = S
    f: int = F


@dataclass(frozen=True)
class Measured:
    """The measurements of the strategies at a point."""

    point: Point
    costs: Costs
    series: dict[str, Series]
    refused: dict[str, str]
    pages: dict[str, Pages] = field(default_factory=dict)

    def beside(self, other: Measured) -> Measured:
        """Return these measurements together with others at the same point."""
        return replace(
            self,
            series={**self.series, **other.series},
            refused={**self.refused, **other.refused},
            pages={**self.pages, **other.pages},
        )


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
        **dict.fromkeys(COMPONENTS),
        "time / id": None,
        "buffers / id": None,
        "formula": None,
        "paper": None,
        "costs": {},
        "note": "",
    }


def rows(parts: int, measured: Measured) -> Iterator[dict[str, Any]]:
    """Yield a row for each strategy; the row of `tuple` has the formula."""
    predict = spj_speedup if measured.point.view == "V" else aggregate_speedup
    base = measured.series.get(ID.label)
    for label, series in measured.series.items():
        row = _row(parts, measured.point, label, series)
        row["costs"] = asdict(measured.costs)
        row.update(measured.pages.get(label, {}))
        if base is not None:
            row["time / id"] = series.times_slower_than(base)
            row["buffers / id"] = series.times_more_buffers_than(base)
        if label == TUPLE.label:
            row["formula"] = predict(measured.costs)
            row["paper"] = _paper(measured.point)
        yield row
    for label, reason in measured.refused.items():
        yield {**_row(parts, measured.point, label, None), "note": reason}


def _paper(point: Point) -> str | None:
    """Return the speedup in section 7.2 of the paper; the figure gives no other numbers."""
    if point.view == "V":
        return None
    if point.varied == "s":
        return "1.2" if point.s == 100 else None
    if point.varied == "j":
        return "grows"
    return "4 to 5"


def against_rows(parts: int, against: Against, subject: Contender) -> Iterator[dict[str, Any]]:
    """Yield a row for the refresh and for each alternative."""
    sides = {
        subject.label: against.refresh,
        BY_HAND: against.by_hand,
        MATERIALIZED: against.materialized,
    }
    for label, series in sides.items():
        yield {
            **_row(parts, Point("against", view=against.case), label, series),
            "time / id": series.times_slower_than(against.refresh) if subject == ID else None,
            "buffers / id": series.times_more_buffers_than(against.refresh)
            if subject == ID
            else None,
        }


def join_bars(measured: Sequence[Measured]) -> Iterator[Bar]:
    """Yield bars on the slopes over j: ID must not grow beyond chance, and tuple-based must."""
    for contender, op in ((ID, "<="), (TUPLE, ">")):
        runs = {
            item.point.j: item.series[contender.label].times
            for item in measured
            if contender.label in item.series
        }
        if len(runs) < 3:
            continue
        trend = growth(runs)
        name = (
            f"{contender.label}, growth of time with j ({trend.per_step:+.1%} a join), "
            "slope in standard errors"
        )
        yield Bar(name, trend.in_errors, op, trend.limit)


def cold_bars(measured: Sequence[Measured]) -> Iterator[Bar]:
    """Yield the bars of a cold run: the ratio of tuple-based to ID, which the paper reports."""
    ratios = {
        item.point: item.series[TUPLE.label].times_slower_than(item.series[ID.label])
        for item in measured
        if {ID.label, TUPLE.label} <= set(item.series)
    }
    usual = [ratio for point, ratio in ratios.items() if point.s == S]
    if usual:
        name = f"tuple / id, cold, s = {S}, geometric mean (the paper: 4 to 5)"
        yield Bar(name, round(geometric_mean(usual), 2), ">=", COLD_TIMES_AT_LEAST)
    if ratios:
        name = "tuple / id, cold, smallest (the paper: 1.2 at s = 100)"
        yield Bar(name, round(min(ratios.values()), 2), ">=", 1.0)


def auto_bars(measured: Sequence[Measured]) -> Iterator[Bar]:
    """Limit the time of `auto` at its worst point, relative to the best other strategy."""
    ratios = {}
    for item in measured:
        others = [series for label, series in item.series.items() if label != AUTO.label]
        if others and AUTO.label in item.series:
            best = min(others, key=lambda series: series.milliseconds)
            ratios[item.point] = item.series[AUTO.label].times_slower_than(best)
    if ratios:
        worst = max(ratios, key=lambda point: ratios[point])
        where = f"d = {worst.d}, j = {worst.j}, s = {worst.s}, f = {worst.f}"
        name = f"auto / best strategy, worst point ({worst.view}, {where})"
        yield Bar(name, ratios[worst], "<=", TIMES_BEST_AT_MOST)


def against_bars(compared: Mapping[int, Sequence[Against]]) -> Iterator[Bar]:
    """Limit a refresh of both views relative to its alternatives, at the largest size."""
    factors = {n: item for n, cases in compared.items() for item in cases if item.case == PAIR}
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
