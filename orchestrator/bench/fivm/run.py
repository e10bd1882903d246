"""Measure view trees: one-row updates, covariance, factorized joins, paths, and matrices.

The benchmarks follow papers/fivm.txt, sections 7.2 and 9. Updates of a q-hierarchical query and the
step to its next row take constant time. One tree with the covariance ring replaces one scalar
aggregate for each pair of features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from psycopg import sql

from orchestrator.api import Orchestrator, connect
from orchestrator.bench.contenders import (
    SETTLE,
    TREE,
    Contender,
    Series,
    in_turn,
    refreshing,
    require,
    require_equal,
    row,
)
from orchestrator.bench.fivm import (
    covariances,
    housing,
    joins,
    matrices,
    paths,
    retailer,
    training,
    triangles,
)
from orchestrator.bench.fivm.datasets import FAVORITA, FLIGHTS, HOUSING, RETAILER
from orchestrator.bench.measure import (
    STEADY,
    Execution,
    explained,
    in_c_or_say,
    machine,
    own_server,
    slope,
)
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.bench.workload import Workload, vacuum
from orchestrator.errors import UsageError
from orchestrator.runtime.enumeration import ordered

STAR = Workload("star")
ROWS = Contender("factorized", "viewtree", (("representation", "factorized"),))

SIZES = (10_000, 100_000, 1_000_000)
PARTS = {
    "updates": None,
    "covariance": "20, 24",
    "houses": "20, 24",
    "favorita": "20, 24",
    "categories": "20",
    "stream": "21",
    "training": "22",
    "triangles": "23",
    "information": "25",
    "joins": "26",
    "paths": "27",
    "sum": "28",
    "matrices": "29",
    "housing": "30",
}
"""The parts, with their figures in the paper, unless a row has another one."""
COVARIANCES = {"covariance": RETAILER, "houses": HOUSING, "favorita": FAVORITA}
"""The parts that measure a covariance, with their data sets."""
READ = 1_000
"""The rows of a result that are read to measure the cost of one row."""

SLOPE_BELOW = 0.1

Measured = tuple[list[dict[str, Any]], list[Bar]]


def run(
    *,
    dsn: str | None = None,
    parts: Sequence[str] = tuple(PARTS),
    sizes: Sequence[int] = SIZES,
    rows: int = 100_000,
    features: int | None = None,
    batches: Sequence[int] = retailer.BATCHES,
    scales: Sequence[int] = housing.SCALES,
    postcodes: int = housing.POSTCODES,
    intervals: Sequence[int] = joins.INTERVALS,
    lengths: Sequence[int] = paths.LENGTHS,
    seconds: float = 10,
    matrix_sizes: Sequence[int] = matrices.SIZES,
    repeat: int = 5,
    limit: float = 300,
    seed: int = 1,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Run the benchmark on its own server, or in schema idivm_bench of the database at `dsn`."""
    if repeat < 1 or rows < retailer.BATCH or any(size < 1_000 for size in sizes):
        raise UsageError("The benchmark needs --repeat of 1 or more, and 1,000 rows or more.")
    if not all(interval >= 1 for interval in intervals):
        raise UsageError("The numbers of batches between reads (--intervals) are 1 or more.")
    if not all(2 <= length <= paths.LENGTHS[-1] for length in lengths):
        raise UsageError(f"Paths have a length of 2 to {paths.LENGTHS[-1]}.")

    def measured(part: str, orchestrator: Orchestrator) -> Measured:
        if part == "updates":
            return _updates(orchestrator, sizes, repeat, seed, say)
        if part in COVARIANCES:
            data = COVARIANCES[part]
            return retailer.covariance(
                orchestrator, data, rows, features, batches, repeat, limit, seed, say
            )
        if part == "categories":
            few = max(rows // 10, retailer.BATCH)
            both = [
                retailer.categories(orchestrator, data, few, features, repeat, seed, say)
                for data in (FAVORITA, FLIGHTS)
            ]
            return [item for lines, _ in both for item in lines], []
        if part == "training":
            return training.measure(orchestrator, rows, features, repeat, seed, say)
        if part == "sum":
            return retailer.total(orchestrator, rows, limit, seed, say)
        if part == "stream":
            return covariances.measure(orchestrator, rows, features, limit, seed, say)
        if part == "information":
            return covariances.information(orchestrator, rows, features, limit, seed, say)
        if part == "triangles":
            return triangles.measure(orchestrator, rows, batches, limit, seed, say)
        if part == "joins":
            return joins.measure(orchestrator, rows, features, intervals, limit, seed, say)
        if part == "housing":
            return housing.measure(orchestrator, scales, postcodes, repeat, seed, say)
        if part == "paths":
            return paths.measure(orchestrator, lengths, seconds, limit, seed, say)
        return matrices.measure(orchestrator, matrix_sizes, repeat, limit, seed, say)

    def on(at: str) -> Report:
        with connect(at) as orchestrator:
            described = machine(orchestrator.connection)
            measured_parts = [
                (part, *measured(part, orchestrator)) for part in PARTS if part in parts
            ]
        return Report(
            "fivm",
            described,
            tuple(_beside(part, item) for part, rows, _ in measured_parts for item in rows),
            tuple(bar for *_, bars in measured_parts for bar in bars),
        )

    if dsn is not None:
        return on(dsn)
    with own_server(pg, {**STEADY, "shared_buffers": "1GB"}) as server:
        in_c_or_say(server, "So triples and capture are measured in plpgsql.", say)
        return on(server.up().dsn)


def _beside(part: str, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with its figure in the paper and the ratios there and here, if they are known."""
    beside = {name: item.get(name) for name in ("ratio", "paper")}
    return {"figure": PARTS[part], **item, **beside}


def _updates(
    orchestrator: Orchestrator,
    sizes: Sequence[int],
    repeat: int,
    seed: int,
    say: Callable[[str], None],
) -> Measured:
    """Measure a one-row change of a q-hierarchical query, and the next result row, on growing data."""
    result: list[dict[str, Any]] = []
    points: dict[str, list[tuple[float, float]]] = {"a change": [], "the next row": []}
    rounds = count()
    for size in sizes:
        say(f"updating one of {size:,} rows")
        with STAR.tables(orchestrator, {"rows": size, "seed": seed}):
            views = {
                each.label: require(orchestrator, "v", STAR.text(query), each)
                for each, query in ((TREE, "v"), (ROWS, "rows"))
            }
            vacuum(orchestrator)

            def change(views: Sequence[str] = tuple(views.values())) -> None:
                orchestrator.refresh(*views)
                orchestrator.connection.execute(
                    STAR.text("change").encode(), {"round": next(rounds)}
                )

            sides = {
                label: refreshing(orchestrator.connection, [view]) for label, view in views.items()
            }
            series = in_turn(sides, change, repeat, SETTLE)
            require_equal(orchestrator, [views[TREE.label]])
            for label, item in series.items():
                result.append(row("one row", size, label, item))
                points["a change"].append((size, item.buffers))
            first, more = (
                Series(tuple(_read(orchestrator, views[ROWS.label], n) for _ in range(repeat)))
                for n in (1, 1 + READ)
            )
            result.append(row("the first row", size, ROWS.label, first))
            result.append(row(f"{READ:,} rows more", size, ROWS.label, more, batch=READ))
            points["the next row"].append((size, more.buffers / READ))
            points.setdefault("the first row", []).append((size, first.buffers))
    if len(sizes) < 2:
        return result, []
    return result, [
        Bar(f"q-hierarchical, slope of buffers touched by {what}", slope(point), "<", SLOPE_BELOW)
        for what, point in points.items()
    ]


def _read(orchestrator: Orchestrator, view: str, rows: int) -> Execution:
    """Read some rows of a view in the same way as `Orchestrator.enumerate`."""
    text = sql.SQL("SELECT * FROM {} LIMIT {}").format(
        sql.Identifier(*view.split(".")), sql.Literal(rows)
    )
    with orchestrator.connection.transaction():
        ordered.by_lookups(orchestrator.connection)
        return explained(orchestrator.connection, text.as_string(orchestrator.connection))
