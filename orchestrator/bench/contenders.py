"""The strategies that a benchmark compares, and how it measures their refreshes."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg import Connection, sql

from orchestrator.api import Orchestrator, connect
from orchestrator.bench.measure import Execution, Paired, explained, restart_cold
from orchestrator.bench.workload import SCHEMA, enter
from orchestrator.errors import DatabaseError, UnsupportedError, UsageError
from orchestrator.server import EmbeddedServer

SETTLE = 6
"""Warm-up refreshes of a session, because PostgreSQL keeps a plan after five executions."""


@dataclass(frozen=True)
class Contender:
    """A strategy with its options, under its name in the paper."""

    label: str
    strategy: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def suffix(self) -> str:
        """The suffix of the names of its views."""
        return "_" + re.sub(r"\W", "_", self.label.lower())


ID = Contender("id", "id")
UNMINIMISED = Contender("id-unminimised", "id", (("minimise", "off"),))
TUPLE = Contender("tuple", "tuple")
AUTO = Contender("auto", "auto")
RECOMPUTE = Contender("recompute", "recompute")
TREE = Contender("viewtree", "viewtree")
SDBT_STREAMS = Contender("SDBT-streams", "recursive")


def sdbt_fixed(table: str) -> Contender:
    """Return DBToaster's views for the case that only one table changes."""
    return Contender("SDBT-fixed", "recursive", (("updatable", table),))


def view_name(name: str, contender: Contender) -> str:
    """Return the name of a contender's view."""
    return f"{SCHEMA}.{name}{contender.suffix}"


def offered(
    orchestrator: Orchestrator, contenders: Sequence[Contender], query: str, wanted: Sequence[str]
) -> tuple[Contender, ...]:
    """Return the contenders that this version of idivm supports; it tries each on a small view.

    If the user names a strategy that is not supported, that is an error.
    """
    known = {name for item in contenders for name in (item.label, item.strategy)}
    for name in wanted:
        if name not in known:
            raise UsageError(
                f"There is no strategy {name!r} to measure; choose from {', '.join(sorted(known))}."
            )
    result = []
    for contender in contenders:
        named = contender.label in wanted or contender.strategy in set(wanted) - {
            o.label for o in contenders
        }
        if wanted and not named:
            continue
        refused = create(orchestrator, "probe", query, contender)
        if refused is None:
            orchestrator.drop_view(view_name("probe", contender))
            result.append(contender)
        elif contender.label in wanted:
            raise UsageError(f"{contender.label} cannot be measured: {refused}")
    if not result:
        raise UsageError(f"None of {', '.join(wanted)} can be measured by this version of idivm.")
    return tuple(result)


def create(orchestrator: Orchestrator, name: str, query: str, contender: Contender) -> str | None:
    """Create a contender's view; return the reason if the strategy cannot maintain the query."""
    full = view_name(name, contender)
    options: dict[str, Any] = {"strategy": contender.strategy, **dict(contender.options)}
    try:
        orchestrator.create_view(full, query, **options)
    except (UnsupportedError, UsageError) as error:
        return str(error)
    require_strategy(orchestrator, full, contender)
    return None


def require(orchestrator: Orchestrator, name: str, query: str, contender: Contender) -> str:
    """Create a contender's view and return its name; raise an error if the strategy refuses."""
    refused = create(orchestrator, name, query, contender)
    if refused is not None:
        raise UsageError(f"{contender.label} cannot be measured: {refused}")
    return view_name(name, contender)


def require_strategy(orchestrator: Orchestrator, view: str, contender: Contender) -> None:
    """Raise an error if another strategy maintains the view."""
    taken = orchestrator.view(view).strategy
    if taken != contender.strategy and contender != AUTO:
        raise DatabaseError(
            f"{view} was to be maintained by {contender.strategy} and is maintained by {taken}: "
            "its measurements would say nothing."
        )


def require_equal(orchestrator: Orchestrator, views: Sequence[str]) -> None:
    """Raise an error if a view differs from its query, because its measurements would be worthless."""
    for report in orchestrator.check(*views):
        if not report.equal:
            raise DatabaseError(
                f"{report.view} is not what its query answers ({report.missing} rows missing, "
                f"{report.surplus} too many): its measurements would say nothing."
            )


@dataclass(frozen=True)
class Series:
    """The measured runs of one side; runs with the same number are neighbors in time."""

    runs: tuple[Execution, ...]

    @property
    def times(self) -> tuple[float, ...]:
        """The milliseconds in the server."""
        return tuple(run.milliseconds for run in self.runs)

    @property
    def milliseconds(self) -> float:
        """The median time."""
        return statistics.median(self.times)

    @property
    def buffers(self) -> float:
        """The median number of pages touched."""
        return statistics.median(run.buffers for run in self.runs)

    @property
    def read(self) -> float:
        """The median number of pages that were not in PostgreSQL's memory."""
        return statistics.median(run.read for run in self.runs)

    def times_slower_than(self, other: Series) -> float:
        """Return the ratio of the times, from pairs of runs if both sides were measured in turn."""
        if len(self.runs) == len(other.runs):
            return Paired(other.times, self.times).ratio
        return self.milliseconds / other.milliseconds

    def times_more_buffers_than(self, other: Series) -> float:
        """Return the ratio of the pages touched."""
        return self.buffers / other.buffers


def refreshing(connection: Connection[Any], views: Sequence[str]) -> Callable[[], Execution]:
    """Return a function that refreshes views and measures that inside the server."""
    names = sql.SQL(", ").join(map(sql.Literal, views))
    return statement(connection, sql.SQL("SELECT * FROM idivm.refresh({})").format(names))


def statement(connection: Connection[Any], text: sql.Composable) -> Callable[[], Execution]:
    """Return a function that executes a statement and measures it."""
    return lambda: explained(connection, text.as_string(connection))


@contextmanager
def cold_session(server: EmbeddedServer, view: str, idle: str) -> Iterator[Orchestrator]:
    """Yield a session of a restarted server that has made its plans, and whose caches are empty.

    The statement `idle` changes rows that the view does not show, so it brings no data into memory.
    In the end, all views are refreshed.
    """
    with connect(restart_cold(server)) as orchestrator:
        enter(orchestrator)
        refresh = refreshing(orchestrator.connection, [view])
        for _ in range(SETTLE):
            orchestrator.connection.execute(idle.encode())
            refresh()
        yield orchestrator
        orchestrator.refresh()


def in_turn(
    sides: Mapping[str, Callable[[], Execution]],
    before_each_round: Callable[[], None],
    repeat: int,
    warm_up: int,
) -> dict[str, Series]:
    """Measure every side once a round; each round begins with the next side.

    >>> order = []
    >>> def side(name):
    ...     return lambda: order.append(name) or Execution(1.0, 2, 0, 0, 0, 0)
    >>> measured = in_turn({"a": side("a"), "b": side("b")}, lambda: None, repeat=2, warm_up=0)
    >>> order, measured["a"].times
    (['a', 'b', 'b', 'a'], (1.0, 1.0))
    """
    if not sides:
        return {}
    labels = list(sides)
    runs: dict[str, list[Execution]] = {label: [] for label in labels}
    for number in range(warm_up + repeat):
        before_each_round()
        first = (number - warm_up) % len(labels)
        for label in labels[first:] + labels[:first]:
            run = sides[label]()
            if number >= warm_up:
                runs[label].append(run)
    return {label: Series(tuple(measured)) for label, measured in runs.items()}


def row(
    name: str,
    size: int,
    side: str,
    series: Series | None,
    *,
    stored: int | None = None,
    batch: int | None = None,
    rounds: float | None = None,
) -> dict[str, Any]:
    """Return the row of one side in a report of several measurements.

    >>> row("sum", 10, "tuple", Series((Execution(4.0, 2, 0, 0, 0, 0),)), batch=1000)["rows/s"]
    250000
    """
    milliseconds = None if series is None else round(series.milliseconds, 3)
    return {
        "name": name,
        "rows": size,
        "side": side,
        "milliseconds": milliseconds,
        "buffers": None if series is None else round(series.buffers),
        "stored kB": None if stored is None else round(stored / 1024),
        "rows/s": round(batch / milliseconds * 1000) if batch and milliseconds else None,
        "rounds": rounds,
    }
