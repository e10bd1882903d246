"""Maintain a covariance over the triangles of a heavy-tailed graph (papers/fivm.txt, figures 23 and 24).

The follows of a social network arrive in three copies. The sides are the view tree; the same under
updates of r alone (the paper's F-IVM-ONE); recursive maintenance with the covariance ring (DBT-RING)
and of scalar aggregates (DBT); and first-order maintenance of the scalar aggregates (1-IVM). Our
view tree has indicator projections, which the paper leaves out in this experiment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import SDBT_STREAMS, TREE, TUPLE, Contender, require
from orchestrator.bench.fivm.retailer import scalars
from orchestrator.bench.fivm.stream import BATCH, Side, Stream, along, replay, whole
from orchestrator.bench.report import Bar
from orchestrator.bench.workload import Workload

TWITTER = Workload("twitter")
RING = Contender("SDBT-ring", "recursive")
R_CHANGES = Contender("viewtree, only r changes", "viewtree", (("static", "s, t"),))
FEATURES = ("r.a", "r.b", "s.c")
ROWS_PER_VERTEX = 20
ONE_PAPER, ONE_SPACE = 100, 1 / 23
"""The paper's ratios of F-IVM-ONE to 1-IVM: throughput, and memory the other way round."""
RING_SPACE = 2.3


def measure(
    orchestrator: Orchestrator,
    rows: int,
    batches: Sequence[int],
    limit: float,
    seed: int,
    say: Callable[[str], None],
) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Measure the sides along the stream, under updates of one relation, and by size of batches."""
    result: list[dict[str, Any]] = []
    name = "twitter, covariance of triangles"
    with _graph(orchestrator, rows, seed):
        stream = Stream(orchestrator, ("r", "s", "t"), sort=False)
        sides = _sides(orchestrator, (TREE, RING, SDBT_STREAMS, TUPLE), say)
        replayed = replay(orchestrator, stream, sides, limit=limit, say=say)
        result += along(name, replayed, sides)
        space = {RING.label: RING_SPACE}
        result += whole(name, replayed, sides, TREE.label, {}, space)
    name = "twitter, covariance of triangles, only r changes"
    with _graph(orchestrator, rows, seed):
        stream = Stream(orchestrator, ("r",), sort=False)
        sides = _sides(orchestrator, (R_CHANGES, TUPLE), say)
        replayed = replay(orchestrator, stream, sides, limit=limit, say=say)
        result += along(name, replayed, sides)
        paper, space = {TUPLE.label: ONE_PAPER}, {TUPLE.label: round(ONE_SPACE, 3)}
        result += whole(name, replayed, sides, R_CHANGES.label, paper, space)
    for size in (BATCH, *batches):
        with _graph(orchestrator, rows, seed):
            stream = Stream(orchestrator, ("r", "s", "t"), size=size, sort=False)
            sides = _sides(orchestrator, (TREE, TUPLE), say)
            replayed = replay(orchestrator, stream, sides, limit=limit, points=1, say=say)
            name = f"twitter, covariance of triangles, batches of {size:,}"
            measured = whole(name, replayed, sides, TREE.label, {})
            result += [item | {"figure": "24"} for item in measured]
    return result, []


def _graph(orchestrator: Orchestrator, rows: int, seed: int) -> AbstractContextManager[None]:
    """Return the context in which the graph exists, with about `rows` rows in all relations."""
    follows = max(rows // 3, 1)
    vertices = max(follows // ROWS_PER_VERTEX, 50)
    return TWITTER.tables(orchestrator, {"rows": follows, "vertices": vertices, "seed": seed})


def _sides(
    orchestrator: Orchestrator, contenders: Sequence[Contender], say: Callable[[str], None]
) -> list[Side]:
    """Create the views; first-order and recursive maintenance have scalar aggregates in one view."""
    sides = []
    for contender in contenders:
        say(f"creating the covariance of triangles ({contender.label})")
        listed = (
            ", ".join(f"{text} AS x{n}" for n, text in enumerate(scalars(FEATURES)))
            if contender in (TUPLE, SDBT_STREAMS)
            else f"idivm.covar({', '.join(FEATURES)}) AS c"
        )
        query = f"SELECT {listed} {TWITTER.text('from')}"
        sides.append(Side(contender.label, (require(orchestrator, "covar", query, contender),)))
    return sides
