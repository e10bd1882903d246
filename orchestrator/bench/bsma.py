"""Refresh eight views over a social network while users tweet: figure 10 of papers/idivm.txt.

Each refresh follows 100 updates of tweetsnum and favornum. The tables have the proportions of the
paper's figure 9a and, by default, a hundredth of its size.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.api import Orchestrator, connect
from orchestrator.bench.contenders import (
    AUTO,
    ID,
    RECOMPUTE,
    SDBT_STREAMS,
    SETTLE,
    TUPLE,
    UNMINIMISED,
    Contender,
    Series,
    cold_session,
    create,
    in_turn,
    offered,
    refreshing,
    require_equal,
    require_strategy,
    sdbt_fixed,
    view_name,
)
from orchestrator.bench.measure import (
    COLD_MEMORY,
    STEADY,
    Execution,
    geometric_mean,
    in_c_or_say,
    machine,
    own_server,
    require_durable_commits,
)
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.bench.workload import Workload, enter, vacuum
from orchestrator.errors import UsageError
from orchestrator.server import EmbeddedServer

WORKLOAD = Workload("bsma")
CONTENDERS = (ID, TUPLE, AUTO, UNMINIMISED, sdbt_fixed("users"), SDBT_STREAMS, RECOMPUTE)
USUAL = (ID, TUPLE, AUTO)
"""The default contenders."""

USERS = 1_000_000
"""The users at scale 1, as in the paper; all other sizes follow from this number."""

UPDATES = 100
FEWEST_USERS = 2 * UPDATES

WARM_MEMORY = "1GB"
IDLE = "UPDATE users SET tweetsnum = tweetsnum + 1, favornum = favornum + 1 WHERE uid <= 0"
"""Updates users that nothing else mentions."""

WARM_TIME_AT_LEAST = 1.8
WARM_BUFFERS_AT_LEAST = 2.5
COLD_TIME_AT_LEAST = 5.0


@dataclass(frozen=True)
class Query:
    """A view of figure 9b, with its times from figure 10 in seconds."""

    name: str
    file: str
    id_seconds: float
    tuple_seconds: float
    speedup: int

    @property
    def text(self) -> str:
        """The SQL of the view."""
        return WORKLOAD.text(self.file)


QUERIES = (
    Query("Q7", "q7", 0.07, 2.04, 29),
    Query("Q10", "q10", 0.07, 3.98, 54),
    Query("Q11", "q11", 0.09, 2.26, 26),
    Query("Q15", "q15", 0.73, 3.23, 4),
    Query("Q18", "q18", 0.16, 2.15, 14),
    Query("Q*1", "q_star_1", 14.24, 364.50, 26),
    Query("Q*2", "q_star_2", 0.64, 4.56, 7),
    Query("Q*3", "q_star_3", 0.43, 3.75, 9),
)


@dataclass(frozen=True)
class Measured:
    """The times of the strategies for one view."""

    query: Query
    series: dict[str, Series]
    refused: dict[str, str]
    auto: str | None
    """The strategy that `auto` chooses."""

    def ratio(self, of: str, to: str, *, buffers: bool = False) -> float | None:
        """Return the ratio of the times, or of the pages, of two strategies."""
        if of not in self.series or to not in self.series:
            return None
        item, other = self.series[of], self.series[to]
        return item.times_more_buffers_than(other) if buffers else item.times_slower_than(other)


@dataclass(frozen=True)
class _Bench:
    """The settings of one run of the benchmark, and where to report progress."""

    contenders: tuple[Contender, ...]
    repeat: int
    updates: int
    check: bool
    say: Callable[[str], None]
    rounds: Iterator[int] = field(default_factory=itertools.count)


def run(
    *,
    dsn: str | None = None,
    scale: float = 0.01,
    repeat: int = 5,
    seed: int = 1,
    cold: bool = False,
    strategies: Sequence[str] = (),
    queries: Sequence[str] = (),
    check: bool = False,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Run the benchmark on its own server, or in schema idivm_bench of the database at `dsn`.

    With `cold`, the server has little memory and is restarted before each refresh, and the system's
    file cache is dropped. The session has made its plans, and the updates have read the users.
    """
    users = round(USERS * scale)
    if users < FEWEST_USERS:
        raise UsageError(
            f"The benchmark updates {UPDATES} users, and at this scale there are {users}: "
            f"give --scale {FEWEST_USERS / USERS:.4f} or more."
        )
    if repeat < 1:
        raise UsageError(f"The benchmark needs --repeat of 1 or more, not {repeat}.")
    if unknown := set(queries) - {query.name for query in QUERIES}:
        raise UsageError(
            f"There is no query {min(unknown)!r}; the benchmark has "
            f"{', '.join(query.name for query in QUERIES)}."
        )
    if dsn is not None and cold:
        raise UsageError(
            "A cold run restarts its server: leave --dsn out to measure on a server of its own."
        )
    chosen = [query for query in QUERIES if not queries or query.name in queries]
    settings = {"users": users, "seed": seed}

    def on(at: str, server: EmbeddedServer | None) -> Report:
        with connect(at) as orchestrator:
            require_durable_commits(orchestrator.connection)
            with WORKLOAD.tables(orchestrator, {**settings, "users": FEWEST_USERS}):
                contenders = _usual(orchestrator, strategies)
            bench = _Bench(contenders, repeat, UPDATES, check, say)
            described = machine(orchestrator.connection)
            if server is None:
                with WORKLOAD.tables(orchestrator, settings):
                    measured = [_warm(bench, orchestrator, query) for query in chosen]
            else:
                WORKLOAD.load(orchestrator, settings)
                orchestrator.connection.execute(WORKLOAD.text("hermits").encode())
        if server is not None:
            measured = [_cold(bench, server, query) for query in chosen]
        rows = tuple(row for item in measured for row in _rows(item))
        return Report("bsma, cold" if cold else "bsma", described, rows, _bars(measured, cold))

    if dsn is not None:
        return on(dsn, None)
    memory = COLD_MEMORY if cold else WARM_MEMORY
    with own_server(pg, {**STEADY, "shared_buffers": memory}) as server:
        in_c_or_say(server, "So capture is measured in plpgsql.", say)
        return on(server.up().dsn, server if cold else None)


def _usual(orchestrator: Orchestrator, strategies: Sequence[str]) -> tuple[Contender, ...]:
    """Return the requested contenders that exist; without a request, the default ones.

    If `id` is missing, return all contenders that exist.
    """
    there = offered(orchestrator, CONTENDERS, QUERIES[0].text, strategies)
    usual = tuple(item for item in there if item in USUAL)
    return usual if not strategies and ID in usual else there


def _create(
    bench: _Bench, orchestrator: Orchestrator, query: Query
) -> tuple[list[Contender], dict[str, str], str | None]:
    """Create the views of a query; return the contenders, the refusals and the choice of `auto`.

    If `auto` chooses a strategy that is measured anyway, its view is dropped again.
    """
    bench.say(f"creating {query.name}")
    present, refused = [], {}
    for contender in bench.contenders:
        reason = create(orchestrator, query.file, query.text, contender)
        if reason is None:
            present.append(contender)
        else:
            refused[contender.label] = reason
    auto = None
    if AUTO in present:
        auto = orchestrator.view(view_name(query.file, AUTO)).strategy
        if any(item.strategy == auto for item in present):
            orchestrator.drop_view(view_name(query.file, AUTO))
            present.remove(AUTO)
    vacuum(orchestrator)
    return present, refused, auto


def _finish(
    bench: _Bench, orchestrator: Orchestrator, query: Query, present: Sequence[Contender]
) -> None:
    views = {view_name(query.file, each): each for each in present}
    if bench.check:
        require_equal(orchestrator, list(views))
    for view, item in views.items():
        require_strategy(orchestrator, view, item)
        orchestrator.drop_view(view)


def _update(bench: _Bench, orchestrator: Orchestrator) -> None:
    orchestrator.connection.execute(
        WORKLOAD.text("change").encode(), {"round": next(bench.rounds), "d": bench.updates}
    )


def _warm(bench: _Bench, orchestrator: Orchestrator, query: Query) -> Measured:
    """Refresh the views of a query in turn, in one session, with all data in memory."""
    present, refused, auto = _create(bench, orchestrator, query)
    views = {item.label: view_name(query.file, item) for item in present}

    def next_round() -> None:
        bench.say(f"refreshing {query.name}")
        orchestrator.refresh(*views.values())
        _update(bench, orchestrator)

    sides = {k: refreshing(orchestrator.connection, [v]) for k, v in views.items()}
    series = in_turn(sides, next_round, bench.repeat, SETTLE)
    _finish(bench, orchestrator, query, present)
    return _measured(query, series, refused, auto, present)


def _cold(bench: _Bench, server: EmbeddedServer, query: Query) -> Measured:
    """Refresh the views of a query in turn, each on a restarted server."""
    with connect(server.up().dsn) as orchestrator:
        enter(orchestrator)
        present, refused, auto = _create(bench, orchestrator, query)

    def side(contender: Contender) -> Callable[[], Execution]:
        return lambda: _cold_refresh(bench, server, query, contender)

    series = in_turn({item.label: side(item) for item in present}, lambda: None, bench.repeat, 0)
    with connect(server.up().dsn) as orchestrator:
        enter(orchestrator)
        _finish(bench, orchestrator, query, present)
    return _measured(query, series, refused, auto, present)


def _cold_refresh(
    bench: _Bench, server: EmbeddedServer, query: Query, contender: Contender
) -> Execution:
    bench.say(f"refreshing {query.name} by {contender.label}, cold")
    view = view_name(query.file, contender)
    with cold_session(server, view, IDLE) as orchestrator:
        _update(bench, orchestrator)
        return refreshing(orchestrator.connection, [view])()


def _measured(
    query: Query,
    series: dict[str, Series],
    refused: dict[str, str],
    auto: str | None,
    present: Sequence[Contender],
) -> Measured:
    measured = Measured(query, series, refused, auto)
    same = next((item.label for item in present if item.strategy == auto), None)
    if auto is None or AUTO in present or same is None:
        return measured
    return replace(measured, series={**series, AUTO.label: series[same]})


def _rows(measured: Measured) -> Iterator[dict[str, Any]]:
    for label, series in measured.series.items():
        yield {
            "view": measured.query.name,
            "strategy": label,
            "ms": series.milliseconds,
            "from": min(series.times),
            "to": max(series.times),
            "buffers": series.buffers,
            "not in memory": series.read,
            "time / id": measured.ratio(label, ID.label),
            "buffers / id": measured.ratio(label, ID.label, buffers=True),
            "paper": measured.query.speedup if label == TUPLE.label else None,
            "note": f"takes {measured.auto}" if label == AUTO.label else "",
        }
    for label, reason in measured.refused.items():
        empty = dict.fromkeys(("ms", "from", "to", "buffers", "not in memory"))
        ratios = dict.fromkeys(("time / id", "buffers / id", "paper"))
        yield {
            "view": measured.query.name,
            "strategy": label,
            **empty,
            **ratios,
            "note": reason,
        }


def _bars(measurements: Sequence[Measured], cold: bool) -> tuple[Bar, ...]:
    """Return the bars for the ratios of tuple to ID."""
    labels = {label for item in measurements for label in (*item.series, *item.refused)}
    if not {ID.label, TUPLE.label} <= labels:
        return tuple(_minimisation(measurements))
    both = [item for item in measurements if {ID.label, TUPLE.label} <= set(item.series)]
    bars = [Bar("views that both id and tuple maintain", len(both), "=", len(measurements))]
    if not both:
        return tuple(bars)
    papers = geometric_mean([item.query.speedup for item in both])

    def mean(*, buffers: bool) -> float:
        ratios = [item.ratio(TUPLE.label, ID.label, buffers=buffers) for item in both]
        return geometric_mean([ratio for ratio in ratios if ratio is not None])

    name = f"tuple / id, time, geometric mean (the paper: {papers:.0f})"
    limit = COLD_TIME_AT_LEAST if cold else WARM_TIME_AT_LEAST
    bars.append(Bar(f"{name}, {'cold' if cold else 'warm'}", mean(buffers=False), ">=", limit))
    if not cold:
        bars.append(
            Bar(
                "tuple / id, buffers, geometric mean, warm",
                mean(buffers=True),
                ">=",
                WARM_BUFFERS_AT_LEAST,
            )
        )
    auto = [item.ratio(TUPLE.label, AUTO.label) for item in both]
    if known := [ratio for ratio in auto if ratio is not None]:
        bars.append(Bar("tuple / auto, time, smallest", min(known), ">=", 1.0))
    return (*bars, *_minimisation(measurements))


def _minimisation(measurements: Sequence[Measured]) -> Iterator[Bar]:
    ratios = [item.ratio(UNMINIMISED.label, ID.label, buffers=True) for item in measurements]
    if known := [ratio for ratio in ratios if ratio is not None]:
        name = "share of the buffers that minimisation saves, geometric mean"
        yield Bar(name, 1 - 1 / geometric_mean(known), ">=", 0.0)
