"""Measure one view: every change, every strategy that accepts the view, and recomputing the query."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.sql import SQL, Literal

from orchestrator.api import Orchestrator
from orchestrator.bench.auto.changes import (
    TRANSACTIONS,
    Change,
    Table,
    changes_of,
    describe,
    make,
)
from orchestrator.bench.auto.recomputed import recomputing
from orchestrator.bench.auto.suites import MISSING, OFF, Suite, View
from orchestrator.bench.contenders import (
    AUTO,
    ID,
    RECOMPUTE,
    SDBT_STREAMS,
    TREE,
    TUPLE,
    Contender,
    create,
    refreshing,
    view_name,
)
from orchestrator.bench.measure import Execution
from orchestrator.bench.workload import SCHEMA, configure
from orchestrator.deltascript.plan import CACHE
from orchestrator.errors import DatabaseError, IdivmError, UsageError

UNCACHED = Contender("id-uncached", "id", (("cache", "off"),))
SKEW = Contender("skew", "skew")
CONTENDERS = (AUTO, ID, UNCACHED, TUPLE, SDBT_STREAMS, TREE, SKEW, RECOMPUTE)
QUICK_CONTENDERS = (AUTO, ID, UNCACHED, TUPLE, TREE, RECOMPUTE)
RECOMPUTED = "recomputed"
"""The side that runs the query into a temporary table and applies the difference."""

CREATION = 6
"""The creation of a view may take this many times the limit of a refresh."""

TRANSACTION_ROUNDS = 6
"""Rounds of transactions. The first one includes the first refresh; the last one counts."""

_NAME = "measured"


@dataclass
class Cell:
    """The measurements of one change of one view: the milliseconds of each side, in every pass."""

    suite: str
    view: str
    statistics: str
    change: Change
    rows: int
    taken: str
    """The strategy that `auto` chose, as of the last pass."""
    beside: str | None
    times: dict[str, list[float]] = field(default_factory=dict)
    buffers: dict[str, int] = field(default_factory=dict)
    """The pages that each side touched in the last pass."""
    query: float = 0.0
    """The milliseconds of the query alone, in the last pass."""
    cut: set[str] = field(default_factory=set)
    """The sides that the limit stopped; they count as the limit."""

    def record(self, side: str, run: Execution | None, limit: float) -> None:
        """Add a run, or the limit if the limit stopped the run."""
        if run is None:
            self.cut.add(side)
        else:
            self.buffers[side] = run.buffers
        self.times.setdefault(side, []).append(limit * 1000 if run is None else run.milliseconds)


@dataclass
class Bench:
    """The settings of a run: database, sizes, contenders, limits, and where to report progress."""

    orchestrator: Orchestrator
    sizes: Sequence[str]
    contenders: Sequence[Contender]
    limit: float
    """The seconds that a refresh or the query may take."""
    passes: int
    quick: bool
    """Whether only the first pass measures deletes and inserts."""
    say: Callable[[str], None]
    failures: dict[str, str] = field(default_factory=dict)
    """Why a view could not be measured, or how its content is wrong, by suite and view."""

    def cells(self, suite: Suite, view: View, statistics: str) -> list[Cell]:
        """Measure every change of a view; return nothing if that fails or if no table changes."""
        name = f"{suite.name}: {view.name}"
        self.say(f"{name}, creating")
        subject = _Subject(self, suite, view)
        try:
            refused = subject.create()
            cells = [] if refused else subject.measure(statistics)
            if refused:
                self.failures[name] = refused
            return cells
        except (psycopg.Error, IdivmError) as error:
            self.failures[name] = str(error)
            return []
        finally:
            configure(self.orchestrator, "statement_timeout", 0)
            subject.drop()


@dataclass
class _Subject:
    """One measured query: a view for each contender, and the rows that are recomputed by hand."""

    bench: Bench
    suite: Suite
    view: View
    sides: dict[str, Contender] = field(default_factory=dict)
    recompute: Callable[[], Execution] | None = None
    query: Callable[[], float] = lambda: 0.0
    stopped: set[str] = field(default_factory=set)

    def create(self) -> str | None:
        """Create the view of each contender; return why `auto` refused the query, if it did."""
        orchestrator = self.bench.orchestrator
        configure(orchestrator, "statement_timeout", int(self.bench.limit * CREATION * 1000))
        refused = [self._create(contender) for contender in self.bench.contenders]
        try:
            self.recompute, self.query = recomputing(orchestrator.connection, self.view.query)
        except psycopg.errors.QueryCanceled:
            self.recompute = None
        finally:
            configure(orchestrator, "statement_timeout", 0)
        return refused[0]

    def _create(self, contender: Contender) -> str | None:
        orchestrator = self.bench.orchestrator
        try:
            refused = create(orchestrator, _NAME, self.view.query, contender)
        except (DatabaseError, psycopg.Error) as error:
            refused = str(error)
            self._drop(contender)
        if refused is None and contender == UNCACHED and not self._has_cache():
            self._drop(contender)
        elif refused is None:
            self.sides[contender.label] = contender
        return refused

    def _has_cache(self) -> bool:
        """Return whether the strategy `id` caches the input of an aggregation."""
        if ID.label not in self.sides:
            return False
        program = self.bench.orchestrator.view(view_name(_NAME, ID)).plan.program
        return any(state.role == CACHE for state in program.states)

    def _drop(self, contender: Contender) -> None:
        try:
            self.bench.orchestrator.drop_view(view_name(_NAME, contender), if_exists=True)
        except (UsageError, DatabaseError):
            return

    def drop(self) -> None:
        """Drop the views of all contenders."""
        for contender in self.sides.values():
            self._drop(contender)

    def measure(self, statistics: str) -> list[Cell]:
        """Measure every change in every pass."""
        orchestrator = self.bench.orchestrator
        table = self._table()
        if self.suite.transactions is not None:
            changes = [Change(TRANSACTIONS, "8")]
            passes = TRANSACTION_ROUNDS
        elif table is not None:
            changes = changes_of(table, self.bench.sizes)
            passes = self.bench.passes
        else:
            return []
        cells = [
            Cell(
                self.suite.name,
                self.view.name,
                statistics,
                change,
                8 if table is None else table.count(change.size),
                "",
                self.view.beside,
            )
            for change in changes
        ]
        for number in range(passes):
            for place, cell in enumerate(cells):
                if number and self.bench.quick and cell.change.kind in ("delete", "insert"):
                    continue
                self.bench.say(f"{self.suite.name}: {self.view.name}, {cell.change}")
                self._change(table, cell.change, number * len(cells) + place)
                self._refresh_below()
                self._run(cell, number + place)
            # Plans that contradict the measurements are made again here.
            orchestrator.refresh(*(view_name(_NAME, side) for side in self.sides.values()))
        taken = orchestrator.view(view_name(_NAME, AUTO)).plan.program.variant
        for cell in cells:
            cell.taken = taken
        [report] = orchestrator.check(view_name(_NAME, AUTO))
        if not report.equal:
            name = f"{self.suite.name}: {self.view.name}"
            self.bench.failures[name] = f"{report.missing} rows missing, {report.surplus} too many"
        return cells

    def _table(self) -> Table | None:
        """Return the table that changes; return None if transactions change all tables."""
        if self.suite.transactions is not None:
            return None
        orchestrator = self.bench.orchestrator
        sources = orchestrator.view(view_name(_NAME, AUTO)).sources
        names = {name.rpartition(".")[2] for name in sources}
        wanted = [self.view.changes] if self.view.changes else list(self.suite.updates)
        below = {view.name for view in self.suite.below}
        if names and names <= below and not self.view.changes:
            [below_view] = [view for view in self.suite.below if view.name in names]
            names = {name for name in self.suite.updates if name in below_view.query}
        tables = [describe(orchestrator, name) for name in wanted if name in names]
        return max(tables, key=lambda table: table.rows, default=None)

    def _change(self, table: Table | None, change: Change, number: int) -> None:
        orchestrator = self.bench.orchestrator
        if table is None:
            assert self.suite.transactions is not None
            configure(orchestrator, "bench.round", number)
            orchestrator.connection.execute(self.suite.transactions.encode())
            return
        make(orchestrator, table, change, self.suite.updates[table.name], number)

    def _refresh_below(self) -> None:
        for view in self.suite.below:
            self.bench.orchestrator.refresh(view.name)

    def _run(self, cell: Cell, number: int) -> None:
        """Measure every side once, in a different order each time."""
        connection = self.bench.orchestrator.connection
        runs: dict[str, Callable[[], Execution]] = {
            label: refreshing(connection, [view_name(_NAME, contender)])
            for label, contender in self.sides.items()
        }
        if self.recompute is not None:
            runs[RECOMPUTED] = self.recompute
        labels = list(runs)
        # With a fixed order, a side would always follow the same side and find the same pages in
        # the caches.
        random.Random(number).shuffle(labels)
        limit = self.bench.limit
        for label in labels:
            cell.record(label, self._limited(label, runs[label]), limit)
            if label == RECOMPUTED:
                cell.query = limit * 1000 if RECOMPUTED in cell.cut else self.query()
        if self.recompute is None:
            cell.record(RECOMPUTED, None, limit)
            cell.query = limit * 1000

    def _limited(self, label: str, run: Callable[[], Execution]) -> Execution | None:
        """Run one side; if the limit stops it, create its view again."""
        orchestrator = self.bench.orchestrator
        configure(orchestrator, "statement_timeout", int(self.bench.limit * 1000))
        try:
            return run()
        except psycopg.errors.QueryCanceled:
            configure(orchestrator, "statement_timeout", int(self.bench.limit * CREATION * 1000))
            if label == RECOMPUTED:
                self.recompute = None
            else:
                contender = self.sides.pop(label)
                self._drop(contender)
                # A strategy that was stopped twice is no longer measured; `auto` always is.
                if contender == AUTO or label not in self.stopped:
                    self._create(contender)
                self.stopped.add(label)
            return None
        finally:
            configure(orchestrator, "statement_timeout", 0)


def load(orchestrator: Orchestrator, suite: Suite) -> None:
    """Finish the tables of a suite: run its further statements and create the views below."""
    for statement in suite.also:
        orchestrator.connection.execute(statement.encode())
    for view in suite.below:
        orchestrator.create_view(view.name, view.query)


def distort(superuser_dsn: str, statistics: str) -> None:
    """Delete PostgreSQL's statistics of the tables, or make them wrong by a factor of 100."""
    with psycopg.connect(superuser_dsn) as connection:
        for statement in _DISTORTIONS.get(statistics, ()):
            connection.execute(SQL(statement).format(Literal(SCHEMA)))


_DISTORTIONS = {
    MISSING: (
        "DELETE FROM pg_statistic WHERE starelid IN"
        " (SELECT oid FROM pg_class WHERE relnamespace = to_regnamespace({}))",
        "UPDATE pg_class SET reltuples = -1, relpages = 0"
        " WHERE relnamespace = to_regnamespace({}) AND relkind IN ('r', 'p')",
    ),
    OFF: (
        "UPDATE pg_class SET reltuples = reltuples / 100"
        " WHERE relnamespace = to_regnamespace({}) AND relkind IN ('r', 'p')",
    ),
}


def sides_of(cell: Cell) -> dict[str, Any]:
    """Return the milliseconds of each side."""
    return {side: _least_time(times) for side, times in cell.times.items()}


def _least_time(times: Sequence[float]) -> float:
    """Return the least time after the first pass, because disturbances only make a run longer.

    >>> _least_time([9.0, 2.0, 3.0]), _least_time([9.0])
    (2.0, 9.0)
    """
    return min(times[1:] or times)
