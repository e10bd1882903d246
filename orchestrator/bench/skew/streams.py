"""A Zipf graph whose edges come and go at random: measure sustained changes a second, and batches.

Each change inserts an edge by the distribution of the graph, or deletes a random edge. The changes
are measured in consecutive windows, which show whether a strategy falls behind for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from math import ceil
from random import Random
from typing import Any

from psycopg import sql

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import (
    AUTO,
    TUPLE,
    Contender,
    in_turn,
    refreshing,
    require,
    require_equal,
)
from orchestrator.bench.report import Bar
from orchestrator.bench.skew import slopes
from orchestrator.bench.workload import Workload, vacuum
from orchestrator.errors import DatabaseError

GRAPH = Workload("graph")
NAME = "stream"
SIZES = (1_000_000,)
SKEW = Contender("skew 1/2", "skew", (("epsilon", "1/2"),))
SIDES = (TUPLE, SKEW, AUTO)
"""The sides, without a view tree, whose stored join is nearly quadratic on such a graph."""
TABLES = {"r": ("a", "b"), "s": ("b", "c"), "t": ("c", "a")}
WINDOWS = 10
LONGER = 5
"""A window has this many times `updates` changes, because only a few of them are expensive."""
WORK_MEM = "SET work_mem = '256MB'"
"""Memory for visiting all paths of two edges, as computing without parts does, without the disk."""
BATCH = 10_000
BATCHES = 3
CHECKED = 200_000
"""Up to this size, each view is also compared with its query, which is nearly quadratic."""
RATE_AT_LEAST = 1
BATCH_AT_LEAST = 10

Growth = dict[str, Any]


class Changes:
    """Edges that come and go while the size of the graph stays the same."""

    def __init__(self, orchestrator: Orchestrator, size: int, seed: int) -> None:
        """Start with a graph that was created with this size."""
        self.connection = orchestrator.connection
        self.rng = Random(seed)
        self.rows = size // 3
        self.leaving = {table: self._leaving(table) for table in TABLES}

    def _leaving(self, table: str) -> Iterator[tuple[int, int]]:
        """Return all edges once, in random order."""
        rows = self.connection.execute(
            sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))
        ).fetchall()
        self.rng.shuffle(rows)
        return iter(rows)

    def change_edge(self) -> None:
        """Insert or delete an edge."""
        table = self.rng.choice(list(TABLES))
        self._delete(table, 1) if self.rng.random() < 0.5 else self._insert(table, 1)

    def batch(self, size: int) -> None:
        """Insert and delete the same number of edges in each table."""
        share = ceil(size / 2 / len(TABLES))
        for table in TABLES:
            self._delete(table, share)
            self._insert(table, share)

    def _delete(self, table: str, number: int) -> None:
        edges = list(islice(self.leaving[table], number))
        if self._change(table, edges, "DELETE FROM {table} USING {edges} WHERE {same}") < number:
            raise DatabaseError("The edges to delete have run out: give fewer --updates.")

    def _insert(self, table: str, number: int) -> None:
        insert = "INSERT INTO {table} SELECT * FROM {edges} ON CONFLICT DO NOTHING"
        while number:
            number -= self._change(
                table, [(self._end(), self._end()) for _ in range(number)], insert
            )

    def _end(self) -> int:
        return int(self.rows ** self.rng.random())

    def _change(self, table: str, edges: Sequence[tuple[int, int]], text: str) -> int:
        same = (
            sql.SQL("{}.{} = e.{}").format(*map(sql.Identifier, (table, name, end)))
            for name, end in zip(TABLES[table], "xy", strict=True)
        )
        statement = sql.SQL(text).format(
            table=sql.Identifier(table),
            edges=sql.SQL("unnest(%s::bigint[], %s::bigint[]) AS e (x, y)"),
            same=sql.SQL(" AND ").join(same),
        )
        ends = [[edge[end] for edge in edges] for end in (0, 1)]
        return self.connection.execute(statement, ends).rowcount


def measured(
    orchestrator: Orchestrator, size: int, updates: int, seed: int, say: Callable[[str], None]
) -> Iterator[Growth]:
    """Yield a row of the report for each side and window."""
    # Load some more edges, because some of the random edges are equal.
    with GRAPH.tables(orchestrator, {"rows": size * 6 // 5, "zipf": 1, "seed": seed}):
        names = {}
        orchestrator.connection.execute(WORK_MEM)
        for item in SIDES:
            say(f"a stream over {size:,} rows: creating {item.label}")
            names[item.label] = require(orchestrator, "v", GRAPH.text("triangles"), item)
        orchestrator.connection.execute("RESET work_mem")
        vacuum(orchestrator)
        changes = Changes(orchestrator, size, seed)
        refreshes = {
            label: refreshing(orchestrator.connection, [view]) for label, view in names.items()
        }
        result: list[Growth] = []
        number = LONGER * updates
        for window in range(1, WINDOWS + 1):
            say(f"a stream over {size:,} rows: window {window}, {number} changes")
            series = in_turn(refreshes, changes.change_edge, number, 30 if window == 1 else 0)
            result += (
                {
                    "graph": NAME,
                    "rows": size,
                    "side": label,
                    "strategy": orchestrator.view(names[label]).strategy,
                    "window": window,
                    "changes/s": round(number / sum(runs.times) * 1000, 1),
                    "ms": round(sum(runs.times) / number, 3),
                    "buffers": round(sum(run.buffers for run in runs.runs) / number, 1),
                }
                for label, runs in series.items()
            )
        _require_same(orchestrator, names)
        say(f"a stream over {size:,} rows: batches of {BATCH:,} changes")
        # After this many changes, the query is recomputed without parts, which takes minutes.
        del refreshes[TUPLE.label]
        batches = in_turn(refreshes, lambda: changes.batch(BATCH), BATCHES, 1)
        _require_same(orchestrator, {label: names[label] for label in refreshes})
        if size <= CHECKED:
            require_equal(orchestrator, list(names.values()))
        for row in result:
            runs = batches.get(row["side"])
            yield row | {
                "ms of a batch": runs and round(runs.milliseconds, 1),
                "buffers of a batch": runs and round(runs.buffers),
                "stored": slopes.stored(orchestrator, names[row["side"]]),
            }


def _require_same(orchestrator: Orchestrator, names: Mapping[str, str]) -> None:
    """Raise an error if the strategies have different results."""
    counts = {
        label: orchestrator.connection.execute(
            sql.SQL("SELECT n FROM {}").format(sql.Identifier(*view.split(".")))
        ).fetchone()
        for label, view in names.items()
    }
    if len(set(counts.values())) > 1:
        raise DatabaseError(f"The counts differ, {counts}: their measurements would say nothing.")


def bars(rows: Sequence[Growth]) -> Iterator[Bar]:
    """Yield bars on the changes a second of `auto` in its worst window, and on batches."""
    for size in dict.fromkeys(row["rows"] for row in rows):
        of_size = [row for row in rows if row["rows"] == size]
        rates = {(row["side"], row["window"]): row["changes/s"] for row in of_size}
        least = min(rates[AUTO.label, n] / rates[TUPLE.label, n] for _, n in rates)
        yield Bar(
            f"stream of {size:,} rows, {AUTO.label}, least times the changes a second of tuple",
            round(least, 2),
            ">=",
            RATE_AT_LEAST,
        )
        for label in (SKEW.label, AUTO.label):
            own = [row for row in of_size if row["side"] == label]
            if label == AUTO.label and own[0]["strategy"] != SKEW.strategy:
                continue
            single = sum(row["ms"] for row in own) / len(own)
            yield Bar(
                f"stream of {size:,} rows, {label}, times {BATCH:,} changes cost a batch of them",
                round(BATCH * single / own[0]["ms of a batch"], 1),
                ">=",
                BATCH_AT_LEAST,
            )
