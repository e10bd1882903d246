"""Maintain covariances (papers/fivm.txt, section 9.2) and sums (section 9.6), in batches.

The paper's 1-IVM has a view and a delta query for each aggregate. Our `tuple` can share work
between aggregates, with as many of them in one view as a table can hold; it is measured too.
Aggregates that a baseline is not asked to create, or cannot create in time, do not count in its
time. This favors the baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from time import monotonic
from typing import Any

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import (
    RECOMPUTE,
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
    row,
    view_name,
)
from orchestrator.bench.fivm.datasets import CATEGORIES, HOUSING, RETAILER, Dataset
from orchestrator.bench.fivm.stream import Side, Stream, replay, whole
from orchestrator.bench.measure import Execution
from orchestrator.bench.report import Bar
from orchestrator.bench.workload import vacuum
from orchestrator.deltascript.plan import StateTable

BATCH = 1_000
ALONE = 3
"""This many times as many runs count while there is no baseline yet."""
BATCHES = (100, 10_000, 100_000)
"""Further batch sizes to measure."""
ONE_EACH = Contender("1-IVM", "tuple")
BASELINES = ((ONE_EACH, 1, 100), (SDBT_STREAMS, 20, None), (TUPLE, 200, None))
"""The baselines, with the aggregates of one view and the largest number of aggregates.

A table has at most 1,600 columns, and each aggregate needs several. The plans of the recursive
strategy grow with the square.
"""

PUSHED = Contender("recompute, pushed down", "recompute")
SUMS: tuple[tuple[Dataset, str, Mapping[str, float]], ...] = (
    (
        RETAILER,
        "sum(units)",
        {"tuple": 1.01, "SDBT-streams": 2.36, "recompute": 846, PUSHED.label: 781},
    ),
    (
        HOUSING,
        "sum(postcode)",
        {"tuple": 9.5, "SDBT-streams": 1.28, "recompute": 62_800, PUSHED.label: 289},
    ),
)
"""The sums of figure 28, with the paper's ratios of the view tree's throughput to that of a side."""

TIMES_AT_LEAST = 10
VIEWS_AT_MOST = 10
REFRESH_AT_MOST = 1
"""The limit of a refresh, as a multiple of the time to insert the batch."""


def covariance(
    orchestrator: Orchestrator,
    data: Dataset,
    rows: int,
    most: int | None,
    batches: Sequence[int],
    repeat: int,
    limit: float,
    seed: int,
    say: Callable[[str], None],
) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Insert batches; compare the covariance of all features with one aggregate for each entry."""
    with data.tables_of(orchestrator, rows, seed):
        features = data.features(orchestrator)[:most]
        source = data.source
        say(f"creating the covariance of {len(features)} features")
        require(
            orchestrator, "covar", f"SELECT idivm.covar({', '.join(features)}) AS c {source}", TREE
        )
        entries = scalars(features)
        tree = [view_name("covar", TREE)]
        connection = orchestrator.connection
        sides = {TREE.label: refreshing(connection, tree)}
        flat: dict[str, tuple[list[str], int]] = {}
        inserts: list[Execution] = []
        starts = count(rows, BATCH)

        def batch(starts: Iterator[int], size: int) -> None:
            say(f"refreshing after a batch of {size:,}")
            orchestrator.refresh(*tree, *(view for views, _ in flat.values() for view in views))
            inserts.append(data.insert(orchestrator, next(starts), size))

        # A session that knows hundreds of other views takes longer for each view.
        vacuum(orchestrator)
        often = repeat * ALONE
        alone = in_turn(sides, partial(batch, starts, BATCH), often, SETTLE)[TREE.label]
        inserted = Series(tuple(inserts[-often:]))
        flat = {
            contender.label: chunks(
                orchestrator, entries[:asked], source, contender, size, limit, say
            )
            for contender, size, asked in BASELINES
        }
        vacuum(orchestrator)
        sides |= {
            label: refreshing(connection, views) for label, (views, _) in flat.items() if views
        }
        result: list[dict[str, Any]] = []
        series = in_turn(sides, partial(batch, starts, BATCH), repeat, SETTLE)
        require_equal(orchestrator, tree)
        name = f"{data.workload.name}, covariance of {len(features)} features, batches of"
        for side, item in (("insert, captured", inserted), (f"{TREE.label}, alone", alone)):
            result.append(row(f"{name} {BATCH:,}", rows, side, item, batch=BATCH))
        called = {
            side: f"{side}, {flat[side][1]} of {len(entries)} aggregates"
            if side in flat and flat[side][1] < len(entries)
            else side
            for side in sides
        }
        for side, item in series.items():
            line = row(f"{name} {BATCH:,}", rows, called[side], item, batch=BATCH)
            result.append(line | _beside(data, side, item, series["viewtree"]))
        first = next(starts)
        for size in batches:
            some = in_turn(sides, partial(batch, count(first, size), size), min(repeat, 3), 1)
            first += size * (min(repeat, 3) + 1)
            for side, item in some.items():
                result.append(row(f"{name} {size:,}", rows, called[side], item, batch=size))
        states = orchestrator.view(tree[0]).plan.program.states
        views = sum(isinstance(state, StateTable) for state in states)
    if data is not RETAILER:
        return result, [Bar(f"{data.workload.name}, stored views", views, "<=", VIEWS_AT_MOST)]
    bars = [
        Bar(
            f"covariance, times the throughput of {side}",
            round(each.times_slower_than(series["viewtree"]), 1),
            ">=",
            TIMES_AT_LEAST,
        )
        for side, each in series.items()
        if side not in (TREE.label, TUPLE.label)
    ]
    cost = alone.times_slower_than(inserted)
    return result, [
        *bars,
        Bar("covariance, stored views", views, "<=", VIEWS_AT_MOST),
        Bar("covariance, times the insert of the batch", round(cost, 2), "<=", REFRESH_AT_MOST),
    ]


def categories(
    orchestrator: Orchestrator,
    data: Dataset,
    rows: int,
    most: int | None,
    repeat: int,
    seed: int,
    say: Callable[[str], None],
) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Compare the covariance of numbers and categories with one that treats all as numbers."""
    with data.tables_of(orchestrator, rows, seed):
        features = data.features(orchestrator)[:most]
        mixed = [f"idivm.categorical({f})" if f in data.categorical else f for f in features]
        mixed += sorted(data.texts)
        views: dict[str, str] = {}
        for label, listed in ((TREE.label, features), (CATEGORIES, mixed)):
            say(f"creating the covariance ({label})")
            query = f"SELECT idivm.covar({', '.join(listed)}) AS c {data.source}"
            views[label] = require(orchestrator, f"covar{len(views)}", query, TREE)
        vacuum(orchestrator)
        starts = count(rows, BATCH)

        def batch() -> None:
            say(f"refreshing after a batch of {BATCH:,}")
            orchestrator.refresh(*views.values())
            data.insert(orchestrator, next(starts), BATCH)

        connection = orchestrator.connection
        sides = {label: refreshing(connection, [view]) for label, view in views.items()}
        series = in_turn(sides, batch, repeat, 1)
        require_equal(orchestrator, list(views.values()))
    number = len(data.categorical.intersection(features) | data.texts)
    name = f"{data.workload.name}, covariance of {len(mixed)} features, {number} categories"
    return [
        row(name, rows, label, item, batch=BATCH) | _beside(data, label, item, series[TREE.label])
        for label, item in series.items()
    ], []


def _beside(data: Dataset, side: str, series: Series, tree: Series) -> dict[str, Any]:
    """Return the ratio of the view tree's throughput to that of a side, here and in the paper."""
    ratio = None if series is tree else round(series.times_slower_than(tree), 2)
    return {"ratio": ratio, "paper": data.paper.get(side)}


def total(
    orchestrator: Orchestrator, rows: int, limit: float, seed: int, say: Callable[[str], None]
) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Measure a sum of each data set while rows arrive in all tables (figure 28).

    Two sides compute the sum again after each batch: from the join, and from a query that adds up
    each table before it joins.
    """
    result: list[dict[str, Any]] = []
    for data, asked, paper in SUMS:
        with data.tables_of(orchestrator, rows, seed, skewed=True):
            stream = Stream(orchestrator, data.tables)
            query = f"SELECT {asked} AS total {data.source}"
            sides = []
            for contender in (TREE, TUPLE, SDBT_STREAMS, RECOMPUTE, PUSHED):
                say(f"creating {asked} of {data.workload.name} ({contender.label})")
                text = data.workload.text("pushed") if contender is PUSHED else query
                view = require(orchestrator, "total", text, contender)
                sides.append(Side(contender.label, (view,)))
            replayed = replay(orchestrator, stream, sides, limit=limit, points=1, say=say)
        name = f"{data.workload.name}, {asked}"
        result += whole(name, replayed, sides, TREE.label, paper)
    return result, []


def chunks(
    orchestrator: Orchestrator,
    entries: Sequence[str],
    source: str,
    contender: Contender,
    size: int,
    limit: float,
    say: Callable[[str], None],
) -> tuple[list[str], int]:
    """Create views of scalar aggregates until time is up; return them and the aggregates' number."""
    views: list[str] = []
    until = monotonic() + limit
    for start in range(0, len(entries), size):
        if monotonic() > until:
            say(f"{contender.label}: the time is up after {start} of {len(entries)} aggregates")
            return views, start
        say(f"creating scalar aggregates {start + 1:,} to {start + size:,} ({contender.label})")
        listed = ", ".join(
            f"{text} AS s{n}" for n, text in enumerate(entries[start : start + size])
        )
        name = f"scalar{len(views)}"
        require(orchestrator, name, f"SELECT {listed} {source}", contender)
        views.append(view_name(name, contender))
    return views, len(entries)


def scalars(features: Sequence[str]) -> list[str]:
    """Return each entry of the covariance matrix as an aggregate.

    >>> scalars(["a", "b"])
    ['sum(a)', 'sum(b)', 'sum(a * a)', 'sum(a * b)', 'sum(b * b)']
    """
    pairs = [(a, b) for i, a in enumerate(features) for b in features[i:]]
    return [*(f"sum({a})" for a in features), *(f"sum({a} * {b})" for a, b in pairs)]
