"""View trees: one row of growing data, a covariance matrix over a join, a join kept factorized.

After papers/fivm.txt, sections 7.2 and 9: updates of a q-hierarchical query take constant time, and
one tree with the covariance ring takes the place of a scalar aggregate for each pair of features.

The baselines share what a view's aggregates have in common, which the paper's do not: as many scalar
aggregates as a table can hold are one view. What a baseline cannot create in its time is left out of
its measurement, in its favour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from time import monotonic
from typing import Any

from psycopg import sql

from orchestrator.api import Orchestrator, connect
from orchestrator.bench.contenders import (
    SDBT_STREAMS,
    SETTLE,
    TREE,
    TUPLE,
    Contender,
    Series,
    in_turn,
    refreshing,
    require,
    require_equal,
    statement,
    view_name,
)
from orchestrator.bench.housing import POSTCODES, SCALES, measure, row
from orchestrator.bench.measure import STEADY, in_c_or_say, machine, own_server, slope
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.bench.workload import Workload, vacuum
from orchestrator.errors import UsageError

STAR = Workload("star")
RETAILER = Workload("retailer")

SIZES = (10_000, 100_000, 1_000_000)
BATCH = 1_000
BASELINES = ((TUPLE, 200), (SDBT_STREAMS, 20))
"""With how many scalar aggregates are in one view. A table has at most 1,600 columns, and each
aggregate needs several; the recursive one's plans grow with the square."""

SLOPE_BELOW = 0.1
TIMES_AT_LEAST = 10
VIEWS_AT_MOST = 10
REFRESH_AT_MOST = 1
"""Times what it took to insert the batch."""


def run(
    *,
    dsn: str | None = None,
    sizes: Sequence[int] = SIZES,
    rows: int = 100_000,
    features: int | None = None,
    scales: Sequence[int] = SCALES,
    postcodes: int = POSTCODES,
    repeat: int = 5,
    limit: float = 300,
    seed: int = 1,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Measures on a server of its own, or in schema idivm_bench of the database at `dsn`."""
    if repeat < 1 or rows < BATCH or any(size < 1_000 for size in sizes):
        raise UsageError("The benchmark needs --repeat of 1 or more, and 1,000 rows or more.")

    def on(at: str) -> Report:
        with connect(at) as orchestrator:
            described = machine(orchestrator.connection)
            found, bars = _updates(orchestrator, sizes, repeat, seed, say)
            more, further = _covariance(orchestrator, rows, features, repeat, limit, seed, say)
            star, last = measure(orchestrator, scales, postcodes, repeat, seed, say)
            return Report("fivm", described, (*found, *more, *star), (*bars, *further, *last))

    if dsn is not None:
        return on(dsn)
    with own_server(pg, {**STEADY, "shared_buffers": "1GB"}) as server:
        in_c_or_say(server, "So triples and capture are measured in plpgsql.", say)
        return on(server.up().dsn)


def _updates(
    orchestrator: Orchestrator,
    sizes: Sequence[int],
    repeat: int,
    seed: int,
    say: Callable[[str], None],
) -> tuple[list[dict[str, Any]], list[Bar]]:
    """One changed row of a q-hierarchical query, over data of growing size."""
    found: list[dict[str, Any]] = []
    rounds = count()
    for size in sizes:
        say(f"updating one of {size:,} rows")
        with STAR.tables(orchestrator, {"rows": size, "seed": seed}):
            require(orchestrator, "v", STAR.text("v"), TREE)
            view = view_name("v", TREE)
            vacuum(orchestrator)

            def change(view: str = view) -> None:
                orchestrator.refresh(view)
                orchestrator.connection.execute(
                    STAR.text("change").encode(), {"round": next(rounds)}
                )

            side = {"viewtree": refreshing(orchestrator.connection, [view])}
            series = in_turn(side, change, repeat, SETTLE)
            require_equal(orchestrator, [view])
            found.append(row("one row", size, "viewtree", series["viewtree"]))
    points = [(row["rows"], row["buffers"]) for row in found]
    if len(points) < 2:
        return found, []
    return found, [Bar("q-hierarchical, slope of buffers touched", slope(points), "<", SLOPE_BELOW)]


def _covariance(
    orchestrator: Orchestrator,
    rows: int,
    most: int | None,
    repeat: int,
    limit: float,
    seed: int,
    say: Callable[[str], None],
) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Batches of new inventory: the covariance of all features, and a scalar aggregate for each."""
    with RETAILER.tables(orchestrator, {"rows": rows, "seed": seed}):
        features = _features(orchestrator)[:most]
        source = RETAILER.text("from")
        say(f"creating the covariance of {len(features)} features")
        require(
            orchestrator, "covar", f"SELECT idivm.covar({', '.join(features)}) AS c {source}", TREE
        )
        scalars = _scalars(features)
        tree = [view_name("covar", TREE)]
        flat = {
            contender.label: _chunks(orchestrator, scalars, source, contender, size, limit, say)
            for contender, size in BASELINES
        }
        vacuum(orchestrator)
        inserts: list[Any] = []
        starts = count(rows, BATCH)

        def batch() -> None:
            say("refreshing after a batch")
            orchestrator.refresh(*tree, *(view for views, _ in flat.values() for view in views))
            first = next(starts)
            text = sql.SQL(RETAILER.text("change")).format(
                first=sql.Literal(first), last=sql.Literal(first + BATCH - 1)
            )
            inserts.append(statement(orchestrator.connection, text)())

        connection = orchestrator.connection
        sides = {"viewtree": refreshing(connection, tree)}
        sides |= {
            label: refreshing(connection, views) for label, (views, _) in flat.items() if views
        }
        series = in_turn(sides, batch, repeat, SETTLE)
        require_equal(orchestrator, tree)
        states = orchestrator.explain(tree[0]).details["states"]
        views = sum("key" in state for state in states)
    inserted = Series(tuple(inserts[-repeat:]))
    name = f"covariance of {len(features)} features, batches of {BATCH:,}"
    found = [row(name, rows, "insert, captured", inserted)]
    bars: list[Bar] = []
    for side, one in series.items():
        found.append(row(name, rows, side, one))
        if side == "viewtree":
            continue
        had = flat[side][1]
        if had < len(scalars):
            found[-1]["side"] = f"{side}, {had} of {len(scalars)} aggregates"
        times = round(one.times_slower_than(series["viewtree"]), 1)
        bars.append(Bar(f"covariance, times the throughput of {side}", times, ">=", TIMES_AT_LEAST))
    cost = series["viewtree"].times_slower_than(inserted)
    return found, [
        *bars,
        Bar("covariance, stored views", views, "<=", VIEWS_AT_MOST),
        Bar("covariance, times the insert of the batch", round(cost, 2), "<=", REFRESH_AT_MOST),
    ]


def _chunks(
    orchestrator: Orchestrator,
    scalars: Sequence[str],
    source: str,
    contender: Contender,
    size: int,
    limit: float,
    say: Callable[[str], None],
) -> tuple[list[str], int]:
    """Views of scalar aggregates, as many as are created in so many seconds, and their number."""
    made: list[str] = []
    until = monotonic() + limit
    for start in range(0, len(scalars), size):
        if monotonic() > until:
            say(f"{contender.label}: the time is up after {start} of {len(scalars)} aggregates")
            return made, start
        say(f"creating scalar aggregates {start + 1:,} to {start + size:,} ({contender.label})")
        listed = ", ".join(
            f"{text} AS s{n}" for n, text in enumerate(scalars[start : start + size])
        )
        name = f"scalar{len(made)}"
        require(orchestrator, name, f"SELECT {listed} {source}", contender)
        made.append(view_name(name, contender))
    return made, len(scalars)


def _features(orchestrator: Orchestrator) -> list[str]:
    """Every column of the retailer's tables that is no join column."""
    found: list[str] = []
    for table in ("inventory", "item", "weather", "location", "census"):
        query = sql.SQL("SELECT * FROM {} LIMIT 0").format(sql.Identifier(table))
        described = orchestrator.connection.execute(query).description or ()
        found += [column.name for column in described]
    return [name for name in found if name not in ("locn", "dateid", "ksn", "zip")]


def _scalars(features: Sequence[str]) -> list[str]:
    """The entries of the covariance matrix as aggregates of their own.

    >>> _scalars(["a", "b"])
    ['sum(a)', 'sum(b)', 'sum(a * a)', 'sum(a * b)', 'sum(b * b)']
    """
    pairs = [(a, b) for i, a in enumerate(features) for b in features[i:]]
    return [*(f"sum({a})" for a in features), *(f"sum({a} * {b})" for a, b in pairs)]
