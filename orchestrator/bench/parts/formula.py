"""What papers/idivm.txt predicts (section 6, appendix A), and whether a cost grows along an axis."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """The parameters of the analysis, each measured on the data.

    The fourth, k, counts the tuples that a diff inserts into a cache; price updates insert none.
    """

    a: float
    """Accesses with which the tuple-based approach makes the view's diff, per changed tuple."""
    p: float
    """Tuples of the select-project-join view that change, per i-diff tuple."""
    g: float
    """Groups that change, per changed tuple of the select-project-join view."""


def accesses(fanout: float, joins: int) -> float:
    """The cost a of a loop from a changed part: one lookup finds `fanout` rows of devices_parts.

    Each of them is looked up, and read, in every further table of the view; the selection comes
    last.

    >>> accesses(fanout=10, joins=2)
    31
    """
    return 1 + fanout + 2 * fanout * (joins - 1)


def spj_speedup(costs: Costs) -> float:
    """Tuple to ID, for updates of attributes in no condition of an SPJ view (equation 1).

    >>> spj_speedup(Costs(a=31, p=10, g=1))
    4.636363636363637
    """
    return (costs.a + 2 * costs.p) / (1 + costs.p)


def aggregate_speedup(costs: Costs) -> float:
    """The same under an aggregation whose input the ID-based approach caches (equation 2).

    >>> aggregate_speedup(Costs(a=31, p=2, g=1))
    5.0
    """
    grouping = 2 * costs.p * costs.g
    return (costs.a + grouping) / (1 + costs.p + grouping)


@dataclass(frozen=True)
class Growth:
    """A line through the medians at the points of an axis."""

    per_step: float
    """The slope, as a share of the cost at the first point."""
    in_errors: float
    """The slope in its standard errors; the larger of two estimates of the error counts."""
    limit: float
    """What chance alone reaches in one of twenty cases where nothing grows."""


_ONE_SIDED_95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860)
"""Student's t for 1, 2, 3, ... degrees of freedom."""


def growth(runs: Mapping[int, Sequence[float]]) -> Growth:
    """How a cost, measured several times at each point, grows along the axis.

    One estimate of the error is how far the medians lie from the line; it knows of what happened
    between the points. The other is how far the runs at one point lie apart. Three points at least.

    >>> flat = growth({2: [10.0, 10.2], 3: [10.3, 10.1], 4: [9.9, 10.1]})
    >>> flat.in_errors <= flat.limit
    True
    >>> steep = growth({2: [10.0, 10.2], 3: [20.3, 20.1], 4: [29.9, 30.1]})
    >>> steep.in_errors <= steep.limit
    False
    """
    medians = {x: statistics.median(values) for x, values in runs.items()}
    middle = statistics.mean(runs)
    line = statistics.linear_regression(list(medians), list(medians.values()))
    spread = sum((x - middle) ** 2 for x in medians)
    off = sum((y - line.slope * x - line.intercept) ** 2 for x, y in medians.items())
    between = math.sqrt(off / (len(medians) - 2) / spread)
    within = math.sqrt(
        sum(((x - middle) / spread) ** 2 * _error_of_median(runs[x]) ** 2 for x in medians)
    )
    error = max(between, within) or math.ulp(1.0)
    freedom = min(len(medians) - 2, len(_ONE_SIDED_95))
    return Growth(
        line.slope / medians[min(medians)], line.slope / error, _ONE_SIDED_95[freedom - 1]
    )


def _error_of_median(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    return math.sqrt(math.pi / 2 / len(values)) * statistics.stdev(values)
