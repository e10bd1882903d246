"""Run path queries over more and more copies of a skewed graph (papers/fivm.txt, section 9.5).

The edges come in batches. A round inserts the next batch into every copy, with a refresh after each
insert. The result is the number of rounds in a given time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from time import monotonic
from typing import Any

from psycopg import errors, sql

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import (
    SDBT_STREAMS,
    TREE,
    TUPLE,
    Contender,
    Series,
    create,
    refreshing,
    row,
    view_name,
)
from orchestrator.bench.measure import Execution
from orchestrator.bench.report import Bar
from orchestrator.bench.workload import Workload, configure, vacuum

PATHS = Workload("paths")
CONTENDERS = (TREE, TUPLE, SDBT_STREAMS)
LENGTHS = tuple(range(2, 21))
BATCH = 1_000
VERTICES, SKEW = 20_000, 3
"""A vertex number is `VERTICES` times u to the power of `SKEW`, for u between 0 and 1."""
GROWTH = 4
"""The assumed exponent with which the compilation of a baseline grows with the number of copies."""


@dataclass(frozen=True)
class Rounds:
    """The batches that a strategy completed."""

    batches: int
    tables: int
    runs: tuple[Execution, ...]

    @property
    def number(self) -> float:
        """The number of rounds, including the completed part of the last round."""
        return round(self.batches / self.tables, 2)


def measure(
    orchestrator: Orchestrator,
    lengths: Sequence[int],
    seconds: float,
    limit: float,
    seed: int,
    say: Callable[[str], None],
) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Measure every length by every strategy, each from empty tables for `seconds` of refreshes."""
    result: list[dict[str, Any]] = []
    least: dict[str, float] = {}
    compiled: dict[str, tuple[int, float]] = {}
    for length in sorted(lengths):
        ours = 0.0
        for item in CONTENDERS:
            say(f"a path of {length} by {item.label}")
            before = compiled.get(item.label)
            outcome: Rounds | str
            expected = before[1] * (length / before[0]) ** GROWTH if before else 0
            if item is not TREE and expected > limit:
                outcome = f"not created in {limit:g} s"
            else:
                started = monotonic()
                with PATHS.tables(orchestrator, {"tables": length}):
                    refused = create(orchestrator, "path", query(length), item)
                    compiled[item.label] = (length, monotonic() - started)
                    outcome = refused or _rounds(orchestrator, item, length, seconds, seed)
            name = f"path of {length}, {seconds:g} s"
            if isinstance(outcome, str):
                result.append(row(name, 0, f"{item.label}, {outcome}", None, rounds=0.0))
                continue
            rows = outcome.batches * BATCH
            series = Series(outcome.runs) if outcome.runs else None
            result.append(row(name, rows, item.label, series, rounds=outcome.number))
            if item is TREE:
                ours = outcome.number
            else:
                times = ours / (max(outcome.batches, 1) / outcome.tables)
                least[item.label] = min(times, least.get(item.label, times))
    return result, [
        Bar(f"paths, least times the rounds of {label}", round(times, 2), ">", 1)
        for label, times in least.items()
    ]


def query(length: int) -> str:
    """Return a query for the ends of paths and the sums of the products of their weights.

    >>> query(2)
    'SELECT e1.a, e2.b, sum(e1.w * e2.w) AS total FROM e1 JOIN e2 ON e2.a = e1.b GROUP BY e1.a, e2.b'
    """
    tables = range(1, length + 1)
    product = " * ".join(f"e{n}.w" for n in tables)
    source = " ".join(f"JOIN e{n} ON e{n}.a = e{n - 1}.b" for n in tables[1:])
    ends = f"e1.a, e{length}.b"
    select = f"SELECT {ends}, sum({product}) AS total"
    return f"{select} FROM e1 {source} GROUP BY {ends}"


def _rounds(
    orchestrator: Orchestrator, contender: Contender, tables: int, seconds: float, seed: int
) -> Rounds:
    """Run batches until the time is up; the interrupted batch does not count."""
    connection = orchestrator.connection
    view = view_name("path", contender)
    refresh = refreshing(connection, [view])
    vacuum(orchestrator)
    batch = sql.SQL(PATHS.text("change"))
    runs: list[Execution] = []
    left = seconds * 1000
    for number in count():
        first = number // tables * BATCH
        connection.execute(
            batch.format(
                table=sql.Identifier(f"e{number % tables + 1}"),
                first=sql.Literal(first),
                last=sql.Literal(first + BATCH - 1),
                seed=sql.Literal(seed),
                skew=sql.Literal(SKEW),
                vertices=sql.Literal(VERTICES),
            )
        )
        configure(orchestrator, "statement_timeout", max(1, int(left)))
        try:
            runs.append(refresh())
        except errors.QueryCanceled:
            break
        finally:
            configure(orchestrator, "statement_timeout", 0)
        left -= runs[-1].milliseconds
        if left <= 0:
            runs.pop()
            break
    else:
        raise AssertionError
    return Rounds(len(runs), tables, tuple(runs))
