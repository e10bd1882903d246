"""Maintain the natural joins of data sets, as rows or factorized (papers/fivm.txt, figures 26 and 30).

Section 9.4 has four variants: the result is maintained after each batch (eager) or when it is read
(lazy), as rows or factorized. The lazy list is the query itself. The result is read after every so
many batches. Section 9.8 measures throughput and memory along a retailer's stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from psycopg import sql

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import require, statement
from orchestrator.bench.fivm.datasets import FAVORITA, HOUSING, RETAILER, Dataset
from orchestrator.bench.fivm.housing import FACT, LIST
from orchestrator.bench.fivm.stream import Side, Stream, along, replay, whole
from orchestrator.bench.report import Bar

DATASETS = (HOUSING, RETAILER, FAVORITA)
INTERVALS = (1, 10, 100)
"""The numbers of batches between two reads."""
WIDEST = 24
"""The most features of a listed join: an index of PostgreSQL has up to 32 columns."""
PAPER_TIME, PAPER_SPACE = 2.8, 4.4
"""The paper's ratios of listed to factorized payloads for the retailer (figure 30, left)."""


def measure(
    orchestrator: Orchestrator,
    rows: int,
    most: int | None,
    intervals: Sequence[int],
    limit: float,
    seed: int,
    say: Callable[[str], None],
) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Measure the four variants at each interval, and both representations without reading."""
    result: list[dict[str, Any]] = []
    for data in DATASETS:
        for interval in intervals:
            with data.tables_of(orchestrator, rows, seed, skewed=True):
                stream = Stream(orchestrator, data.tables)
                say(f"the join of {data.workload.name}, read after each {interval} batches")
                sides = _variants(orchestrator, data, most)
                replayed = replay(
                    orchestrator, stream, sides, limit=limit, interval=interval, points=1, say=say
                )
            name = f"{data.workload.name}, read after each {interval}"
            variants = whole(name, replayed, sides, f"eager-{FACT.label}", {})
            result += [item | {"figure": "26"} for item in variants]
    with RETAILER.tables_of(orchestrator, rows, seed, skewed=True):
        stream = Stream(orchestrator, RETAILER.tables)
        say("the join of retailer along the stream")
        query = _query(orchestrator, RETAILER, most)
        sides = [
            Side(item.label, (require(orchestrator, "join", query, item),)) for item in (LIST, FACT)
        ]
        replayed = replay(orchestrator, stream, sides, limit=limit, say=say)
    paper, space = {LIST.label: PAPER_TIME}, {LIST.label: PAPER_SPACE}
    name = "retailer, the join"
    measured = [
        *along(name, replayed, sides),
        *whole(name, replayed, sides, FACT.label, paper, space),
    ]
    return [*result, *(item | {"figure": "30"} for item in measured)], []


def _query(orchestrator: Orchestrator, data: Dataset, most: int | None) -> str:
    features = data.features(orchestrator)[: min(most or WIDEST, WIDEST)]
    return f"SELECT {', '.join([*sorted(data.joined), *features])} {data.source}"


def _variants(orchestrator: Orchestrator, data: Dataset, most: int | None) -> list[Side]:
    """Return the variants; a lazy view is another view than the eager one."""
    query = _query(orchestrator, data, most)
    sides = []
    for item, eager in ((LIST, True), (FACT, True), (FACT, False)):
        name = "join" if eager else "lazy"
        view = require(orchestrator, name, query, item)
        text = sql.SQL("SELECT * FROM {}").format(sql.Identifier(*view.split(".")))
        read = statement(orchestrator.connection, text)
        sides.append(Side(f"{'eager' if eager else 'lazy'}-{item.label}", (view,), read, eager))
    answer = statement(orchestrator.connection, sql.SQL(query))
    return [*sides, Side(f"lazy-{LIST.label}", (), answer, eager=False)]
