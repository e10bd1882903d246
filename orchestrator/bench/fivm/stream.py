"""Replay a data set as a stream of batches, and measure sides along it (papers/fivm.txt, section 9).

The tables begin empty. Batches arrive in each table in turn, as in the paper, until all rows are
there. Every side refreshes its views after each batch, in turn with the others. So all sides have
seen the same rows, and their times can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg import errors, sql

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import Series, refreshing, require_equal, row
from orchestrator.bench.measure import Execution
from orchestrator.bench.workload import configure, vacuum

BATCH = 1_000
LEAST_BATCHES = 20
POINTS = 10
"""The parts of a stream whose throughput is reported."""

ALONG, WHOLE, STORED = "along the stream", "the whole stream", "stored at the end"
"""The last words of the names of rows: one part of a stream, all of it, and the space it takes."""


@dataclass(frozen=True)
class Side:
    """Views that are refreshed after each batch, and what is read from them."""

    label: str
    views: tuple[str, ...]
    read: Callable[[], Execution] | None = None
    """Reads the result after each `interval` batches, as part of the measured time."""
    eager: bool = True
    """Whether to refresh after each batch, instead of before each read only."""


@dataclass
class Window:
    """The measurements of a part of the stream."""

    rows: int = 0
    """The rows of this part."""
    arrived: int = 0
    """All rows that have arrived at its end."""
    runs: dict[str, list[Execution]] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)
    """The bytes that each side has stored."""


@dataclass(frozen=True)
class Replayed:
    """The measurements of all parts of a stream."""

    windows: tuple[Window, ...]

    def total(self, side: str, before: int | None = None) -> Execution:
        """Return what a side took, until `before` rows had arrived."""
        runs = (
            run
            for window in self.windows
            if before is None or window.arrived <= before
            for run in window.runs.get(side, ())
        )
        return added(list(runs))

    def arrived(self, side: str) -> int:
        """Return how many rows a side has seen before its time was up."""
        return max((w.arrived for w in self.windows if side in w.stored), default=0)


class Stream:
    """The rows of tables, which arrive again in batches, in the order of their columns."""

    def __init__(
        self,
        orchestrator: Orchestrator,
        tables: Sequence[str],
        *,
        size: int | None = None,
        sort: bool = True,
    ) -> None:
        """Put the rows of the tables aside; without `sort`, they keep the order of the table.

        Batches have 1,000 rows, or fewer if there are few rows, unless `size` is given.
        """
        self._orchestrator = orchestrator
        self._left: dict[str, int] = {}
        execute = orchestrator.connection.execute
        for table in tables:
            names = {"table": sql.Identifier(table), "aside": sql.Identifier(f"arriving_{table}")}
            order = sql.SQL("ORDER BY t") if sort else sql.SQL("ORDER BY ctid")
            execute(
                sql.SQL(
                    "CREATE TABLE {aside} AS SELECT row_number() OVER ({order}) AS arrival, t AS entry"
                    " FROM {table} AS t"
                ).format(order=order, **names)
            )
            execute(sql.SQL("CREATE INDEX ON {aside} (arrival)").format(**names))
            counted = execute(sql.SQL("SELECT count(*) FROM {aside}").format(**names)).fetchone()
            assert counted is not None
            self._left[table] = counted[0]
            execute(sql.SQL("TRUNCATE {table}").format(**names))
        self.rows = sum(self._left.values())
        self._size = size or min(BATCH, max(1, self.rows // LEAST_BATCHES))

    def batches(self) -> Iterator[int]:
        """Insert batches into each table in turn; yield the number of rows of each batch."""
        first = dict.fromkeys(self._left, 1)
        while any(self._left.values()):
            for table, left in self._left.items():
                taken = min(self._size, left)
                if not taken:
                    continue
                self._orchestrator.connection.execute(
                    sql.SQL(
                        "INSERT INTO {} SELECT (entry).* FROM {} WHERE arrival BETWEEN {} AND {}"
                    ).format(
                        sql.Identifier(table),
                        sql.Identifier(f"arriving_{table}"),
                        sql.Literal(first[table]),
                        sql.Literal(first[table] + taken - 1),
                    )
                )
                first[table] += taken
                self._left[table] -= taken
                yield taken


def replay(
    orchestrator: Orchestrator,
    stream: Stream,
    sides: Sequence[Side],
    *,
    limit: float,
    interval: int = 1,
    points: int = POINTS,
    say: Callable[[str], None] = lambda text: None,
) -> Replayed:
    """Measure every side after each batch, until it has taken `limit` seconds.

    A side that takes longer is dropped, and the stream goes on without it. In the end, the content
    of all views is compared with their queries.
    """
    connection = orchestrator.connection
    refresh = {s.label: refreshing(connection, s.views) for s in sides if s.views}
    left = {side.label: side for side in sides}
    taken = dict.fromkeys(left, 0.0)
    windows: list[Window] = []
    window, arrived = Window(), 0
    for number, rows in enumerate(stream.batches(), 1):
        arrived += rows
        window.rows += rows
        asked = number % interval == 0
        for label in _turned(list(left), number):
            side = left[label]
            configure(orchestrator, "statement_timeout", _milliseconds(limit - taken[label]))
            actions = [refresh[label]] if side.views and (side.eager or asked) else []
            actions += [side.read] if side.read is not None and asked else []
            try:
                runs = [action() for action in actions]
            except errors.QueryCanceled:
                runs, taken[label] = [], limit
            finally:
                configure(orchestrator, "statement_timeout", 0)
            window.runs.setdefault(label, []).extend(runs)
            taken[label] += sum(run.milliseconds for run in runs) / 1000
            if taken[label] >= limit:
                say(f"{label} has taken {limit:g} seconds")
                window.runs.pop(label)
                for view in left.pop(label).views:
                    orchestrator.drop_view(view)
        if arrived * points >= stream.rows * (len(windows) + 1) or arrived == stream.rows:
            say(f"{arrived:,} of {stream.rows:,} rows have arrived")
            window.arrived = arrived
            window.stored = {label: stored(orchestrator, s.views) for label, s in left.items()}
            windows.append(window)
            window = Window()
            # PostgreSQL's autovacuum does this between the batches of a real stream.
            vacuum(orchestrator)
    views = [view for side in left.values() for view in side.views]
    orchestrator.refresh(*views)
    require_equal(orchestrator, views)
    return Replayed(tuple(windows))


def along(name: str, replayed: Replayed, sides: Sequence[Side]) -> list[dict[str, Any]]:
    """Return a row for each part of the stream and each side: throughput and stored bytes."""
    return [
        row(
            f"{name}, {ALONG}",
            window.arrived,
            side.label,
            Series((added(window.runs[side.label]),)),
            stored=window.stored[side.label],
            batch=window.rows,
        )
        for window in replayed.windows
        for side in sides
        if window.runs.get(side.label) and side.label in window.stored
    ]


def whole(
    name: str,
    replayed: Replayed,
    sides: Sequence[Side],
    base: str,
    paper: Mapping[str, float],
    space: Mapping[str, float] | None = None,
) -> list[dict[str, Any]]:
    """Return rows of the whole stream, with each side's ratios to `base`, here and in the paper.

    `paper` and `space` have the paper's ratios of throughput and of memory. A side whose time was
    up is compared for as far as it came.
    """
    result = []
    least = replayed.windows[-1]
    for side in sides:
        arrived = replayed.arrived(side.label)
        label = side.label
        if arrived < least.arrived:
            label += f", stopped after {arrived:,} rows"
        total = replayed.total(side.label, arrived)
        series = Series((total,)) if total.milliseconds else None
        line = row(f"{name}, {WHOLE}", arrived, label, series, batch=arrived)
        other = replayed.total(base, arrived)
        beside = side.label != base and series is not None and other.milliseconds > 0
        ratio = _rounded(total.milliseconds / other.milliseconds) if beside else None
        result.append(line | {"ratio": ratio, "paper": paper.get(side.label)})
    ours = least.stored.get(base)
    for side in sides:
        if space is None or side.label not in least.stored:
            continue
        size = least.stored[side.label]
        line = row(f"{name}, {STORED}", least.arrived, side.label, None, stored=size)
        ratio = _rounded(size / ours) if ours and side.label != base else None
        result.append(line | {"ratio": ratio, "paper": space.get(side.label)})
    return result


def stored(orchestrator: Orchestrator, views: Sequence[str]) -> int:
    """Return the bytes of the views' tables, including indexes."""
    ids = [orchestrator.view(view).id for view in views]
    answer = orchestrator.connection.execute(
        "SELECT coalesce(sum(idivm.state_bytes(id)), 0)::bigint FROM unnest(%s::integer[]) AS id",
        [ids],
    ).fetchone()
    assert answer is not None
    return int(answer[0])


def added(runs: Sequence[Execution]) -> Execution:
    """Return the sums of the figures of several runs."""
    return Execution(
        sum(run.milliseconds for run in runs),
        sum(run.buffers for run in runs),
        sum(run.dirtied for run in runs),
        sum(run.wal_records for run in runs),
        sum(run.wal_bytes for run in runs),
        sum(run.read for run in runs),
    )


def _turned(labels: list[str], number: int) -> list[str]:
    """Return the labels in another order each time, so that no side is always the first."""
    first = number % len(labels) if labels else 0
    return labels[first:] + labels[:first]


def _rounded(ratio: float) -> float:
    return float(f"{ratio:.3g}")


def _milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))
