"""Multiply a chain of three matrices whose middle one changes (papers/fivm.txt, section 9.7).

A row that is added to the middle matrix changes every entry of the product. Maintenance in factors
takes two products of a matrix and a vector, and one product of two vectors. Maintenance of the
entries takes a product of two matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from psycopg import errors, sql

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import (
    TUPLE,
    Contender,
    Series,
    refreshing,
    require,
    require_equal,
    row,
    view_name,
)
from orchestrator.bench.measure import Execution
from orchestrator.bench.report import Bar
from orchestrator.bench.workload import Workload, configure, vacuum
from orchestrator.errors import DatabaseError

MATRICES = Workload("matrices")
STATIC = ("static", "a1, a3")
FACTORS = Contender("factors", "viewtree", (STATIC, ("factorizable", "a2")))
LISTED = Contender("listed", "viewtree", (STATIC,))

SIZES = (256, 512, 1_024)
RANKS = (1, 4, 16, 64)
"""The ranks of updates, which are sums of so many outer products (figure 29, right)."""
CHECKED = 64
"""Up to this size, the benchmark also computes the query itself, a join of three matrices."""
TIMES_AT_LEAST = 10


def measure(
    orchestrator: Orchestrator,
    sizes: Sequence[int],
    repeat: int,
    limit: float,
    seed: int,
    say: Callable[[str], None],
) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Measure one-row updates by each side at each size, and updates of growing rank."""
    result: list[dict[str, Any]] = []
    ratios: list[float] = []
    for size in sizes:
        taken: dict[str, Series | None] = {}
        for item in (FACTORS, LISTED, TUPLE):
            with MATRICES.tables(orchestrator, {"size": size, "seed": seed}):
                say(f"matrices of {size:,} by {item.label}")
                view = require(orchestrator, "product", MATRICES.text("product"), item)
                vacuum(orchestrator)
                numbers = count(1)
                runs = []
                for _ in range(1 + repeat if item is FACTORS else 2):
                    run = _refreshed(orchestrator, item, "row", next(numbers), size, limit)
                    if run is None:
                        break
                    runs.append(run)
                taken[item.label] = Series(tuple(runs[1:])) if len(runs) > 1 else None
                name = f"matrices of {size:,}, a row"
                label = item.label if len(runs) > 1 else f"{item.label}, more than {limit:g} s"
                result.append(row(name, size * size, label, taken[item.label]))
                if item is not TUPLE:
                    for rank in RANKS if size == max(sizes) else RANKS[:1]:
                        outer = _refreshed(orchestrator, item, "outer", size, size, limit, rank)
                        what = "an outer product" if rank == 1 else f"rank {rank}"
                        held = Series((outer,)) if outer else None
                        label = item.label if outer else f"{item.label}, more than {limit:g} s"
                        result.append(
                            row(f"matrices of {size:,}, {what}", size * size, label, held)
                        )
                        if outer is None:
                            break
                if size <= CHECKED:
                    require_equal(orchestrator, [view])
        ours, theirs = taken[FACTORS.label], taken[TUPLE.label]
        if ours is None:
            raise DatabaseError(f"Matrices of {size} take more than {limit:g} s in factors.")
        least = limit * 1000 if theirs is None else theirs.milliseconds
        ratios.append(round(least / ours.milliseconds, 1))
    bars = [
        Bar(f"matrices of {sizes[-1]:,}, times faster than tuple", ratios[-1], ">=", TIMES_AT_LEAST)
    ]
    if len(ratios) > 1:
        growth = round(ratios[-1] / ratios[0], 2)
        bars.append(Bar(f"the same beside matrices of {sizes[0]:,}", growth, ">", 1))
    return result, bars


def _refreshed(
    orchestrator: Orchestrator,
    contender: Contender,
    change: str,
    number: int,
    size: int,
    limit: float,
    times: int = 1,
) -> Execution | None:
    """Measure a refresh after a change; return None if it takes longer than the limit.

    With `times`, the change is made so often, with another number each time.
    """
    for more in range(times):
        text = sql.SQL(MATRICES.text(change)).format(
            number=sql.Literal(number + more), size=sql.Literal(size)
        )
        orchestrator.connection.execute(text)
    configure(orchestrator, "statement_timeout", int(limit * 1000))
    try:
        return refreshing(orchestrator.connection, [view_name("product", contender)])()
    except errors.QueryCanceled:
        return None
    finally:
        configure(orchestrator, "statement_timeout", 0)
