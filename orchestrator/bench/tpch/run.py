"""The 22 queries of TPC-H as views while all eight tables change.

With `check`, every view is compared with its query after every round of changes. Otherwise, each
refresh is measured in turn with the query itself and with REFRESH MATERIALIZED VIEW of the same
text. With `minimisation`, the comparison includes the same view without minimization (pass 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from orchestrator.api import Orchestrator, connect
from orchestrator.bench.contenders import (
    AUTO,
    SETTLE,
    Series,
    in_turn,
    refreshing,
    require_equal,
    statement,
    view_name,
)
from orchestrator.bench.measure import (
    STEADY,
    geometric_mean,
    in_c_or_say,
    machine,
    own_server,
    require_durable_commits,
)
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.bench.tpch.data import change, workload
from orchestrator.bench.workload import Workload, vacuum
from orchestrator.errors import UnsupportedError, UsageError
from orchestrator.runtime.diagnosis.comparison import CheckReport

QUERIES = tuple(f"Q{number}" for number in range(1, 23))
RECOMPUTE = "recompute"
"""The strategy that recomputes a whole view."""
REFUSED = "refused"
"""Takes the place of a strategy if the view cannot be created."""

MINIMISED = ("id", "tuple")
"""The strategies whose scripts pass 4 minimizes."""

CHANGE = 0.001
CHECKED_CHANGE = 0.01
"""The shares of all rows that a round changes, when measuring and when checking."""

ROUNDS = 20
MEMORY = "1GB"

RECOMPUTED_AT_MOST = 2
TIMES_FASTER_AT_LEAST = 10.0
TIMES_SLOWER_AT_MOST = 1.1

REFRESH, QUERY, MATERIALIZED = "refresh", "query", "materialized"
UNMINIMISED = "unminimised"
"""The refresh of the same view without pass 4 of papers/idivm.txt."""


@dataclass(frozen=True)
class View:
    """The maintenance of one query."""

    query: str
    strategy: str
    reason: str
    """Why the whole view is recomputed or refused; empty otherwise."""

    @property
    def created(self) -> bool:
        """Whether the view exists."""
        return self.strategy != REFUSED

    @property
    def recomputed(self) -> bool:
        """Whether each refresh computes the whole query."""
        return self.strategy == RECOMPUTE


@dataclass(frozen=True)
class Measured:
    """The measurements of a refresh and of its alternatives."""

    view: View
    series: Mapping[str, Series]

    def times_faster(self, than: str = MATERIALIZED) -> float:
        """Return the ratio of the time of an alternative to that of a refresh."""
        return self.series[than].times_slower_than(self.series[REFRESH])

    def times_fewer_buffers(self, than: str = MATERIALIZED) -> float:
        """Return the ratio of the pages that an alternative touches to those of a refresh."""
        pages = max(self.series[REFRESH].buffers, 1)
        return self.series[than].buffers / pages

    @property
    def saved(self) -> float | None:
        """The share of the pages that minimization saves, if that was measured."""
        if UNMINIMISED not in self.series:
            return None
        return 1 - 1 / self.times_fewer_buffers(UNMINIMISED)


def run(
    *,
    dsn: str | None = None,
    scale: float = 0.1,
    rounds: int = ROUNDS,
    share: float | None = None,
    queries: Sequence[str] = (),
    check: bool = False,
    maintain: str = "deferred",
    strategy: str = "auto",
    minimisation: bool = False,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Measure or compare on its own server, or in schema idivm_bench of the database at `dsn`."""
    if rounds < 1:
        raise UsageError(f"The benchmark needs --rounds of 1 or more, not {rounds}.")
    if share is not None and not 0 < share <= 1:
        raise UsageError("--change is a part of all rows: give more than 0% and at most 100%.")
    if unknown := set(queries) - set(QUERIES):
        raise UsageError(
            f"There is no query {min(unknown)!r}; the benchmark has {QUERIES[0]} to {QUERIES[-1]}."
        )
    chosen = [query for query in QUERIES if not queries or query in queries]
    if share is None:
        share = CHECKED_CHANGE if check else CHANGE

    def on(at: str) -> Report:
        with connect(at) as orchestrator:
            if not check:
                require_durable_commits(orchestrator.connection)
            described = machine(orchestrator.connection)
            with workload(scale).tables(orchestrator, {}):
                views = []
                for query in chosen:
                    say(f"creating {query}")
                    views.append(_create(orchestrator, query, maintain, strategy))
                if check:
                    vacuum(orchestrator)
                    return _checked(orchestrator, described, views, rounds, share, say)
                unminimised = [
                    view.query
                    for view in views
                    if minimisation
                    and view.strategy in MINIMISED
                    # Use the same strategy, whatever the cost model says about the longer script.
                    and _create(orchestrator, view.query, maintain, view.strategy, "off").created
                ]
                vacuum(orchestrator)
                return _timed(orchestrator, described, views, unminimised, rounds, share, say)

    if dsn is not None:
        return on(dsn)
    with own_server(pg, {**STEADY, "shared_buffers": MEMORY}) as server:
        in_c_or_say(server, "So capture is measured in plpgsql.", say)
        return on(server.up().dsn)


def _name(query: str, minimise: str = "on") -> str:
    return view_name(query.lower() if minimise == "on" else f"{query.lower()}_{UNMINIMISED}", AUTO)


def _text(query: str) -> str:
    return Workload("tpch").text(query.lower())


def _create(
    orchestrator: Orchestrator, query: str, maintain: Any, strategy: Any, minimise: Any = "on"
) -> View:
    try:
        view = orchestrator.create_view(
            _name(query, minimise),
            _text(query),
            maintain=maintain,
            strategy=strategy,
            minimise=minimise,
            create_indexes="on",
        )
    except UnsupportedError as error:
        return View(query, REFUSED, str(error))
    reasons = [reason.because for reason in view.plan.evidence.reasons if not reason.taken]
    recomputed = view.strategy == RECOMPUTE
    return View(query, view.strategy, reasons[0] if recomputed and reasons else "")


def _checked(
    orchestrator: Orchestrator,
    described: dict[str, str],
    views: Sequence[View],
    rounds: int,
    share: float,
    say: Callable[[str], None],
) -> Report:
    """Compare every view with its query after every round."""
    different: dict[str, list[tuple[int, CheckReport]]] = {item.query: [] for item in views}
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        change(orchestrator, number, share)
        for view in filter(_is_created, views):
            [report] = orchestrator.check(_name(view.query))
            if not report.equal:
                different[view.query].append((number, report))
    rows = tuple(
        {
            "view": item.query,
            "strategy": item.strategy,
            "rounds": rounds,
            "different": len(different[item.query]),
            "note": item.reason or _first(different[item.query]),
        }
        for item in views
    )
    wrong = {number for differences in different.values() for number, _ in differences}
    bars = (
        *_created(views),
        Bar(
            "rounds after which every view is its query's answer", rounds - len(wrong), "=", rounds
        ),
    )
    return Report("tpch, checked", described, rows, bars)


def _first(different: Sequence[tuple[int, CheckReport]]) -> str:
    if not different:
        return ""
    number, report = different[0]
    return f"round {number}: {report.missing} rows missing, {report.surplus} too many"


def _timed(
    orchestrator: Orchestrator,
    described: dict[str, str],
    views: Sequence[View],
    unminimised: Sequence[str],
    rounds: int,
    share: float,
    say: Callable[[str], None],
) -> Report:
    """Measure the views in turn with their alternatives, after each round of changes."""
    connection = orchestrator.connection
    sides = {}
    there = list(filter(_is_created, views))
    for item in there:
        rival = sql.Identifier(f"{item.query.lower()}_{MATERIALIZED}")
        # The query comes from a file of the workload.
        text = sql.SQL(_text(item.query))
        say(f"materializing {item.query}")
        connection.execute(sql.SQL("CREATE MATERIALIZED VIEW {} AS {}").format(rival, text))
        sides[item.query, REFRESH] = refreshing(connection, [_name(item.query)])
        sides[item.query, QUERY] = statement(connection, text)
        recomputed = sql.SQL("REFRESH MATERIALIZED VIEW {}").format(rival)
        sides[item.query, MATERIALIZED] = statement(connection, recomputed)
        if item.query in unminimised:
            sides[item.query, UNMINIMISED] = refreshing(connection, [_name(item.query, "off")])
    labels = {f"{query} {side}": run for (query, side), run in sides.items()}
    for number in range(SETTLE):
        say(f"settling, {number + 1} of {SETTLE}")
        change(orchestrator, number, share)
        orchestrator.refresh()
    numbers = iter(range(SETTLE, SETTLE + rounds))

    def next_round() -> None:
        number = next(numbers)
        say(f"round {number + 1 - SETTLE} of {rounds}")
        orchestrator.refresh()
        change(orchestrator, number, share)

    series = in_turn(labels, next_round, rounds, 0)
    require_equal(orchestrator, [_name(each.query) for each in there])
    require_equal(orchestrator, [_name(query, "off") for query in unminimised])
    measureds = [
        Measured(each, {s: series[f"{query} {s}"] for query, s in sides if query == each.query})
        for each in there
    ]
    rows = (*map(_row, measureds), *(_empty(view) for view in views if not view.created))
    return Report("tpch", described, rows, (*_created(views), *_bars(measureds)))


def _row(measured: Measured) -> dict[str, Any]:
    refresh = measured.series[REFRESH]
    return {
        "view": measured.view.query,
        "strategy": measured.view.strategy,
        "ms": refresh.milliseconds,
        "from": min(refresh.times),
        "to": max(refresh.times),
        "query ms": measured.series[QUERY].milliseconds,
        "materialized ms": measured.series[MATERIALIZED].milliseconds,
        "query / refresh": measured.times_faster(QUERY),
        "materialized / refresh": measured.times_faster(),
        "buffers": refresh.buffers,
        "materialized buffers": measured.series[MATERIALIZED].buffers,
        "buffers / refresh": measured.times_fewer_buffers(),
        "minimisation saves": measured.saved,
        "note": measured.view.reason,
    }


def _empty(view: View) -> dict[str, Any]:
    """Return a row in the form of `_row` for a view that was refused."""
    names = ("ms", "from", "to", "query ms", "materialized ms", "query / refresh")
    rest = ("materialized / refresh", "buffers", "materialized buffers", "buffers / refresh")
    empty = dict.fromkeys((*names, *rest, "minimisation saves"))
    return {"view": view.query, "strategy": view.strategy, **empty, "note": view.reason}


def _is_created(view: View) -> bool:
    return view.created


def _created(views: Sequence[View]) -> Iterator[Bar]:
    yield Bar("views created", sum(view.created for view in views), "=", len(views))
    yield Bar(
        "views that are recomputed whole",
        sum(view.recomputed for view in views),
        "<=",
        RECOMPUTED_AT_MOST,
    )


def _bars(measureds: Sequence[Measured]) -> Iterator[Bar]:
    """Yield limits on the ratio of REFRESH MATERIALIZED VIEW to a refresh."""
    if not measureds:
        return
    faster = [item.times_faster() for item in measureds]
    yield Bar(
        "recomputation / refresh, time, geometric mean",
        geometric_mean(faster),
        ">=",
        TIMES_FASTER_AT_LEAST,
    )
    slowest = max(1 / times for times in faster)
    yield Bar("refresh / recomputation, time, largest", slowest, "<=", TIMES_SLOWER_AT_MOST)
    if more := [
        item.times_fewer_buffers(UNMINIMISED) for item in measureds if item.saved is not None
    ]:
        name = "share of the buffers that minimisation saves, geometric mean"
        yield Bar(name, 1 - 1 / geometric_mean(more), ">=", 0.0)
