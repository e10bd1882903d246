"""Covariances of triangles, 4-cycles and 4-cliques of a graph with hubs: compare `skew` with `tuple`.

The graph is a single table, so each query joins it with itself. The changes are edges between hubs, which meet the
most rows. The covariance is that of figure 23 in papers/fivm.txt; `tuple` maintains its entries as scalar sums, as
first-order maintenance does in the paper. The cases for 4-cycles and 4-cliques come from a search
(docs/internals/skew.md), whose exponents the costs of `skew` must not exceed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import (
    TUPLE,
    Contender,
    in_turn,
    refreshing,
    require,
    require_equal,
)
from orchestrator.bench.fivm.retailer import scalars
from orchestrator.bench.report import Bar
from orchestrator.bench.skew import pairs, slopes
from orchestrator.bench.workload import Workload, vacuum

HUBS = Workload("hubs")
SKEW = Contender("skew", "skew")
SIZES = (10_000, 31_623, 100_000)
LARGE = 100_000
"""From this number of edges, the bars on times apply."""
SETTLE = 18
"""Warm-up rounds, in which PostgreSQL plans the statements."""

Growth = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """A query over edges, and the edge whose changes meet the most rows."""

    edge: tuple[int, int]
    exponent: Fraction
    """The exponent of the cost of a change, according to the plan's guarantee."""
    times: int
    """How many times as fast as `tuple` the strategy `skew` must be."""
    stars: bool = True
    """Whether the graph has the hubs with the most edges."""
    features: tuple[str, ...] = ()
    """The numbers of a covariance, or nothing for a count."""

    def query(self, name: str, contender: Contender) -> str:
        """Return the query of a contender's view."""
        values = ["count(*)"]
        if self.features:
            listed = ", ".join(self.features)
            values = (
                [f"idivm.covar({listed})"] if contender is SKEW else scalars(list(self.features))
            )
        columns = ", ".join(f"{value} AS x{number}" for number, value in enumerate(values))
        return f"SELECT {columns} {HUBS.text(name)}"


SHAPES = {
    "covariance": Shape((2, 1), Fraction(1, 2), 10, features=("p.w", "q.w", "o.w")),
    "four_cycle": Shape((2, 3), Fraction(2, 3), 5),
    "four_clique": Shape((5, 6), Fraction(1), 5, stars=False),
}


def measured(
    orchestrator: Orchestrator, name: str, size: int, updates: int, say: Callable[[str], None]
) -> Iterator[Growth]:
    """Yield a row of the report for `skew` and for `tuple`."""
    shape, connection = SHAPES[name], orchestrator.connection
    x, y = shape.edge

    def toggle() -> None:
        """Delete the edge, or insert it if it does not exist."""
        values = {"x": x, "y": y}
        deleted = connection.execute("DELETE FROM e WHERE x = %(x)s AND y = %(y)s", values)
        if not deleted.rowcount:
            connection.execute("INSERT INTO e VALUES (%(x)s, %(y)s, 7)", values)

    with HUBS.tables(orchestrator, {"rows": size, "stars": int(shape.stars)}):
        names = {}
        for contender in (SKEW, TUPLE):
            say(f"{name}, {size:,} edges: creating {contender.label}")
            query = shape.query(name, contender)
            names[contender.label] = require(orchestrator, "v", query, contender)
        vacuum(orchestrator)
        sides = {label: refreshing(connection, [view]) for label, view in names.items()}
        say(f"{name}, {size:,} edges: {updates} changes")
        series = in_turn(sides, toggle, updates, SETTLE)
        require_equal(orchestrator, list(names.values()))
        for label, view in names.items():
            yield {
                "graph": name,
                "rows": size,
                "side": label,
                "ms": round(statistics.mean(series[label].times), 3),
                "buffers": round(statistics.mean(run.buffers for run in series[label].runs), 1),
                "stored": slopes.stored(orchestrator, view),
            }


def bars(rows: Sequence[Growth]) -> Iterator[Bar]:
    """Yield bars on times beside `tuple` at the largest size, and on how this ratio and the costs grow."""
    for name, shape in SHAPES.items():
        own = [row for row in rows if row["graph"] == name]
        ms = {(row["side"], row["rows"]): row["ms"] for row in own}
        ratios = {
            size: round(ms[TUPLE.label, size] / ms[SKEW.label, size], 1)
            for side, size in ms
            if side == SKEW.label
        }
        for size, times in ratios.items():
            if size >= LARGE:
                yield Bar(
                    f"{name} of {size:,} edges, times as fast as tuple", times, ">=", shape.times
                )
        if len(ratios) > 1:
            grows = round(ratios[max(ratios)] / ratios[min(ratios)], 1)
            yield Bar(f"{name}, growth of this ratio from {min(ratios):,} edges", grows, ">=", 1)
        growth = pairs.growth_of(own, "buffers", side=SKEW.label)
        if growth is not None:
            most = round(float(shape.exponent) + pairs.MARGIN, 4)
            yield Bar(f"{name}, slope of buffers touched by a change", growth, "<=", most)
