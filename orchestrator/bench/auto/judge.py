"""Judge the cells: ratios to recomputing the query and to the best strategy, and the bars."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.bench.auto.cells import RECOMPUTED, Cell, sides_of
from orchestrator.bench.auto.changes import TRANSACTIONS
from orchestrator.bench.contenders import AUTO, RECOMPUTE
from orchestrator.bench.measure import geometric_mean
from orchestrator.bench.report import Bar

FACTOR = 1.25
SLACK = 5.0
"""A refresh may always take this many milliseconds."""

MEAN_AT_MOST, MOST_AT_MOST, WORST_AT_MOST = 1.15, 1.6, 3.0
TRANSACTIONS_AT_MOST = 1.5
TRANSACTIONS_WORST_AT_MOST = 3.0
BESIDE_AT_MOST = 3.0
WORST = 10
"""The number of worst cells that the report names."""

_NOTHING = 1e-3
"""Shorter times, in milliseconds, count as this time."""

Row = dict[str, Any]


def row(cell: Cell) -> Row:
    """Return the report's row for a cell."""
    sides = sides_of(cell)
    auto = sides[AUTO.label]
    strategies = {side: ms for side, ms in sides.items() if side != RECOMPUTED}
    best = min(strategies, key=lambda side: strategies[side])
    recomputed = _recompute_estimate(sides)
    return {
        "suite": cell.suite,
        "view": cell.view,
        "statistics": cell.statistics,
        "change": str(cell.change),
        "rows": cell.rows,
        "taken": cell.taken,
        "auto ms": round(auto, 2),
        "first ms": round(cell.times[AUTO.label][0], 2),
        "again ms": round(recomputed, 2),
        "query ms": round(cell.query, 2),
        "best": best,
        "best ms": round(strategies[best], 2),
        "auto / again": max(
            over(auto, recomputed),
            over(
                cell.times[AUTO.label][0],
                max(
                    recomputed,
                    _recompute_estimate({side: times[0] for side, times in cell.times.items()}),
                ),
            ),
        ),
        "auto / best": round(max(auto, _NOTHING) / max(strategies[best], _NOTHING), 3),
        "cut": ", ".join(sorted(cell.cut)),
        "beside": cell.beside,
        "sides": {side: round(ms, 2) for side, ms in sides.items()},
        "buffers": cell.buffers,
    }


def _recompute_estimate(sides: Mapping[str, float]) -> float:
    """Return the time to recompute, by hand or by the strategy `recompute`, whichever is shorter."""
    return min(sides[side] for side in (RECOMPUTED, RECOMPUTE.label) if side in sides)


def over(auto: float, recomputed: float) -> float:
    """Return the time of a refresh beyond `SLACK`, divided by the time to recompute.

    >>> over(4.0, 1.0), over(25.0, 10.0)
    (0.0, 2.0)
    """
    return round(max(0.0, auto - SLACK) / max(recomputed, _NOTHING), 3)


def bars(rows: Sequence[Row]) -> Iterator[Bar]:
    """Return the bars of the benchmark."""
    single = [r for r in rows if r["change"] != TRANSACTIONS]
    if single:
        name = f"refresh beyond {SLACK:g} ms / recomputing"
        yield Bar(f"{name}, worst", max(r["auto / again"] for r in single), "<=", FACTOR)
        yield Bar(
            f"{name}, cells above {FACTOR}", sum(r["auto / again"] > FACTOR for r in single), "=", 0
        )
        ratios = [r["auto / best"] for r in single]
        yield Bar("auto / best strategy, mean", geometric_mean(ratios), "<=", MEAN_AT_MOST)
        yield Bar(
            "auto / best strategy, 95th percentile", percentile(ratios, 0.95), "<=", MOST_AT_MOST
        )
        yield Bar("auto / best strategy, worst", max(ratios), "<=", WORST_AT_MOST)
    small = [r for r in rows if r["change"] == TRANSACTIONS]
    if small:
        ratios = [r["auto ms"] / max(r["query ms"], _NOTHING) for r in small]
        yield Bar(
            "eight transactions: refresh / query, 95th percentile",
            percentile(ratios, 0.95),
            "<=",
            TRANSACTIONS_AT_MOST,
        )
        worst = max(
            min(
                ratio,
                (TRANSACTIONS_WORST_AT_MOST if r["auto ms"] <= r["query ms"] + SLACK else ratio),
            )
            for ratio, r in zip(ratios, small, strict=True)
        )
        yield Bar(
            f"eight transactions: refresh / query, worst, if more than {SLACK:g} ms",
            worst,
            "<=",
            TRANSACTIONS_WORST_AT_MOST,
        )
    yield from _beside(rows)


def _beside(rows: Sequence[Row]) -> Iterator[Bar]:
    """Compare the cost of one updated row between a view and the view in its `beside`."""
    single = {
        (r["suite"], r["statistics"], r["view"]): r["auto ms"]
        for r in rows
        if r["change"] == "update 1"
    }
    for r in rows:
        other = single.get((r["suite"], r["statistics"], r["beside"]))
        if r["change"] == "update 1" and other is not None and r["statistics"] == "good":
            name = f"one row: {r['view']} / {r['beside']}"
            yield Bar(name, r["auto ms"] / max(other, _NOTHING), "<=", BESIDE_AT_MOST)


def worst(rows: Sequence[Row], ratio: Callable[[Row], float]) -> list[Row]:
    """Return the cells with the highest ratios."""
    return sorted(rows, key=ratio, reverse=True)[:WORST]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that is at least as large as a share of all values.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.0
    """
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
