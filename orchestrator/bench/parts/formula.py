"""The predictions of papers/idivm.txt (section 6, appendix A), and a test of growth along an axis."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """The parameters of the analysis, measured on the data.

    The fourth parameter, k, counts the tuples that a diff inserts into a cache. Price updates
    insert none.
    """

    a: float
    """Accesses of the tuple-based approach to compute the view's diff, for each changed tuple."""
    p: float
    """Changed tuples of the select-project-join view for each i-diff tuple."""
    g: float
    """Changed groups for each changed tuple of the select-project-join view."""


def accesses(fanout: float, joins: int) -> float:
    """Return the cost a of a loop from a changed part with `fanout` rows in devices_parts.

    One lookup finds these rows. The loop looks up and reads each of them in every further table of
    the view. The selection comes last.

    >>> accesses(fanout=10, joins=2)
    31
    """
    return 1 + fanout + 2 * fanout * (joins - 1)


def spj_speedup(costs: Costs) -> float:
    """Return the ratio of tuple to ID for updates outside conditions of an SPJ view (equation 1).

    >>> spj_speedup(Costs(a=31, p=10, g=1))
    4.636363636363637
    """
    return (costs.a + 2 * costs.p) / (1 + costs.p)


def aggregate_speedup(costs: Costs) -> float:
    """Return the ratio under an aggregation whose input the ID-based approach caches (equation 2).

    >>> aggregate_speedup(Costs(a=31, p=2, g=1))
    5.0
    """
    grouping = 2 * costs.p * costs.g
    return (costs.a + grouping) / (1 + costs.p + grouping)


@dataclass(frozen=True)
class Growth:
    """The growth of a cost: a line through the medians at the points of an axis."""

    per_step: float
    """The slope as a share of the cost at the first point."""
    in_errors: float
    """The slope divided by its standard error, which is the larger of two estimates."""
    limit: float
    """The value that chance exceeds in one of twenty cases without growth."""


_ONE_SIDED_95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860)
"""Student's t for 1, 2, 3, ... degrees of freedom."""


def growth(runs: Mapping[int, Sequence[float]]) -> Growth:
    """Return how a cost grows along the axis, given several measurements at three or more points.

    One estimate of the error is the distance of the medians from the line; it includes events
    between the points. The other estimate is the spread of the runs at each point.

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
