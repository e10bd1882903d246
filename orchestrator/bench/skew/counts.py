"""Counts over heavy and light parts: measure the cost of a change and the stored rows as data grow.

The queries follow appendices F, G and H of papers/ivm-eps-counting-triangles.txt: Loomis-Whitney
counts, here of degree four, and counts over four and over three tables in a row. Each measure uses
the data on which it is largest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from orchestrator.api import Orchestrator
from orchestrator.bench.report import Bar
from orchestrator.bench.skew import slopes
from orchestrator.bench.skew.cycles import (
    BLOCKS,
    STARS,
    Growth,
    by_epsilon,
    changed,
    rebalancing_bars,
    stored,
    view,
)
from orchestrator.bench.skew.rebalancing import Light
from orchestrator.bench.workload import Workload

SIZES = (10_000, 100_000, 1_000_000)
"""The rows on which changes are measured."""
STORED = (31_623, 160_000, 500_000)
"""The rows on which stored rows are counted: for an ε of 3/4, there are about two, three and four heavy values."""
LIGHT = Light(
    "SELECT count(*) FROM s WHERE a = 2", "INSERT INTO s SELECT 2, n FROM unnest(%s::bigint[]) AS n"
)


@dataclass(frozen=True)
class Count:
    """A count, and the most expensive one-row changes on its data."""

    workload: Workload
    changes: tuple[slopes.Change, ...]
    light: Light = LIGHT
    linear: bool = False
    """Whether the view stores no more rows than the relations have."""
    cyclic: bool = False
    """Whether the atoms of a stored view join as a triangle for each value of the variable that it sums out.

    Of m and m' rows and the N^ε rows of a light value, at most sqrt(m m' N^ε) join (the bound of Atserias, Grohe and
    Marx): N^(1 + ε/2) for all values. The paper's bound, 1 + min(ε, 1-ε), cannot be reached for an ε between 0 and 2/3.
    """

    def stored(self, epsilon: Fraction) -> Fraction:
        """Return the exponent of the stored rows."""
        light = epsilon / 2 if self.cyclic else epsilon
        return Fraction(1) if self.linear else 1 + min(light, 1 - epsilon)


def _alone(table: str, *names: str) -> slopes.Change:
    return slopes.row_of(
        "a row that meets nothing", table, dict.fromkeys(names, -1), slopes.constant
    )


COUNTS = {
    "four_path": Count(
        Workload("four_path"),
        (
            _alone("r", "a"),
            slopes.row_of("heavy values of r", "r", {"a": 1}, slopes.heavy, a=-2),
            slopes.row_of("rows of a light value of r", "r", {"a": 2}, slopes.light, a=-3),
            slopes.row_of("rows of a light value of s", "s", {"a": 3, "b": 3}, slopes.light, b=-4),
        ),
    ),
    "loomis_whitney": Count(
        Workload("loomis_whitney"),
        (
            _alone("r", "a", "b", "c"),
            slopes.row_of(
                "rows of a light value of r", "r", {"a": 9, "b": 2, "c": 3}, slopes.light, b=-2
            ),
            slopes.row_of("heavy values of r", "r", {"a": 1, "b": 12, "c": 8}, slopes.heavy, a=-3),
        ),
        Light(
            "SELECT count(*) FROM s WHERE b = 2 AND c = 3",
            "INSERT INTO s SELECT 2, 3, n FROM unnest(%s::bigint[]) AS n",
            columns=3,
        ),
        cyclic=True,
    ),
    "in_a_row": Count(
        Workload("in_a_row"),
        (
            _alone("r", "a"),
            slopes.row_of("rows of a light value of r", "r", {"a": 2}, slopes.light, a=-2),
            slopes.row_of("heavy values of t", "t", {"b": 1}, slopes.heavy, b=-3),
        ),
        linear=True,
    ),
}


def measured(
    orchestrator: Orchestrator,
    name: str,
    size: int,
    epsilon: str,
    updates: int,
    say: Callable[[str], None],
) -> Iterator[Growth]:
    """Yield a row of the report for each kind of change."""
    share, count = Fraction(epsilon), COUNTS[name]
    yield from changed(
        orchestrator,
        count.workload,
        name,
        "count",
        size,
        share,
        STARS,
        count.changes,
        count.light,
        updates,
        say,
    )


def filled(
    orchestrator: Orchestrator, name: str, size: int, epsilon: str, say: Callable[[str], None]
) -> Growth:
    """Return a row of the report with the stored rows."""
    share, count = Fraction(epsilon), COUNTS[name]
    kind = STARS if count.linear else BLOCKS
    with view(orchestrator, count.workload, "count", size, share, kind, say) as named:
        return slopes.row_for(name, size, share) | stored(orchestrator, named)


def bars(rows: Sequence[Growth]) -> Iterator[Bar]:
    """Yield bars that compare the growth of each measure with its exponent."""
    for name, count in COUNTS.items():
        for epsilon, own in by_epsilon(rows, name):
            called = f"{name}, skew {epsilon}"
            yield from slopes.exponents(own, count.changes, epsilon, called)
            yield from rebalancing_bars(own, called, None, max(epsilon, 1 - epsilon))
            for measure, title in (
                ("stored", "rows stored"),
                ("largest state", "rows of the largest state"),
            ):
                title = f"{called}, slope of {title}"
                yield from slopes.of_measure(title, own, measure, count.stored(epsilon))
