"""Maintain covariances along a stream, and models of categories (papers/fivm.txt, figures 21 and 25).

The data are skewed and correlated. In figure 21, features are numbers (CONT), or numbers and
categories (MIXED). In figure 25, all features are categories, in 100 buckets; after each batch, the
mutual information and the Chow-Liu tree are computed from the covariance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from psycopg import sql

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import (
    SDBT_STREAMS,
    TREE,
    TUPLE,
    Contender,
    require,
    statement,
    view_name,
)
from orchestrator.bench.fivm.datasets import CATEGORIES, FAVORITA, HOUSING, RETAILER, Dataset
from orchestrator.bench.fivm.retailer import ONE_EACH, chunks, scalars
from orchestrator.bench.fivm.stream import Side, Stream, along, replay, whole
from orchestrator.bench.report import Bar

DATASETS = (HOUSING, RETAILER, FAVORITA)
AT_ONCE = 200
"""The aggregates of one view of `tuple`."""

BUCKETS = 100
FEATURES = 8
"""The largest number of categories: the entries grow with the square of features and buckets."""
TREES = "viewtree, Chow-Liu tree"
INFORMATION: dict[str, dict[str, float]] = {
    "housing": {ONE_EACH.label: 2.8, SDBT_STREAMS.label: 0.22, TREES: 1.85},
    "retailer": {ONE_EACH.label: 28, SDBT_STREAMS.label: 74, TREES: 7.1},
    "favorita": {ONE_EACH.label: 2.1, SDBT_STREAMS.label: 9.3, TREES: 1.54},
}
"""The paper's ratios of the throughput of the view tree to that of a side, in figure 25."""
MIXED = {"housing": 11.6, "retailer": 3.04, "favorita": 3.99}
"""The paper's ratios of CONT to MIXED throughput, from figure 20."""


def measure(
    orchestrator: Orchestrator,
    rows: int,
    most: int | None,
    limit: float,
    seed: int,
    say: Callable[[str], None],
) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Measure throughput and memory of covariances along the stream of each data set."""
    result: list[dict[str, Any]] = []
    for data in DATASETS:
        with data.tables_of(orchestrator, rows, seed, skewed=True):
            features = data.features(orchestrator)[:most]
            stream = Stream(orchestrator, data.tables)
            mixed = [f"idivm.categorical({f})" if f in data.categorical else f for f in features]
            sides: list[Side] = []
            for label, listed in ((TREE.label, features), (CATEGORIES, mixed)):
                if label == CATEGORIES and mixed == features:
                    continue
                say(f"creating the covariance of {data.workload.name} ({label})")
                query = f"SELECT idivm.covar({', '.join(listed)}) AS c {data.source}"
                view = require(orchestrator, f"covar{len(sides)}", query, TREE)
                sides.append(Side(label, (view,)))
            entries = scalars(features)
            views, covered = chunks(
                orchestrator, entries[:AT_ONCE], data.source, TUPLE, AT_ONCE, limit, say
            )
            part = f", {covered} of {len(entries)} aggregates" if covered < len(entries) else ""
            sides.append(Side(f"{TUPLE.label}{part}", tuple(views)))
            replayed = replay(orchestrator, stream, sides, limit=limit, say=say)
        name = f"{data.workload.name}, covariance of {len(features)} features"
        result += along(name, replayed, sides)
        paper = {CATEGORIES: MIXED[data.workload.name]}
        result += whole(name, replayed, sides, TREE.label, paper, {})
    return result, []


def information(
    orchestrator: Orchestrator,
    rows: int,
    most: int | None,
    limit: float,
    seed: int,
    say: Callable[[str], None],
) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Measure covariances of categories, and Chow-Liu trees after each batch, along the stream."""
    result: list[dict[str, Any]] = []
    for data in DATASETS:
        with data.tables_of(orchestrator, rows, seed, skewed=True):
            features = data.features(orchestrator)[: min(most or FEATURES, FEATURES)]
            stream = Stream(orchestrator, data.tables)
            # The features have values below 256.
            buckets = [f"{name} * {BUCKETS} / 256" for name in features]
            say(f"creating the covariance of categories of {data.workload.name}")
            listed = ", ".join(f"idivm.categorical({bucket})" for bucket in buckets)
            covar = f"SELECT idivm.covar({listed}) AS c {data.source}"
            alone, below = (require(orchestrator, name, covar, TREE) for name in ("covar", "tree"))
            text = sql.SQL("SELECT idivm.chow_liu(c) FROM {}").format(
                sql.Identifier(*below.split("."))
            )
            sides = [
                Side(TREE.label, (alone,)),
                Side(TREES, (below,), statement(orchestrator.connection, text)),
            ]
            for contender in (ONE_EACH, SDBT_STREAMS):
                say(f"creating counts of {data.workload.name} ({contender.label})")
                sides.append(_counts(orchestrator, buckets, data, contender))
            replayed = replay(orchestrator, stream, sides, limit=limit, say=say)
        name = f"{data.workload.name}, information of {len(features)} features"
        result += along(name, replayed, sides)
        result += whole(name, replayed, sides, TREE.label, INFORMATION[data.workload.name], {})
    return result, []


def _counts(
    orchestrator: Orchestrator, buckets: Sequence[str], data: Dataset, contender: Contender
) -> Side:
    """Return a side that counts the rows of each pair of features in a view of its own."""
    pairs = [(x, y) for i, x in enumerate(buckets) for y in buckets[i + 1 :]]
    views = []
    for number, (x, y) in enumerate(pairs):
        name = f"pair{number}"
        query = f"SELECT {x} AS x, {y} AS y, count(*) AS n {data.source} GROUP BY 1, 2"
        require(orchestrator, name, query, contender)
        views.append(view_name(name, contender))
    return Side(contender.label, tuple(views))
