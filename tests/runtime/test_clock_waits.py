"""When the next row of a view with a temporal filter is due: idivm.status, and the waits of `idivm serve`."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from stepping import until

import orchestrator
from orchestrator.api import Orchestrator
from orchestrator.catalog.serving import served_views
from orchestrator.runtime.serve import Event

BEGIN = datetime(2026, 3, 29, 0, 30, tzinfo=timezone.utc)

TABLES = """
    CREATE TABLE events (id int PRIMARY KEY, size int, at timestamptz, local timestamp, day date);
    CREATE INDEX events_at ON events (at);
    CREATE TABLE time_of_test (now timestamptz NOT NULL);
    INSERT INTO time_of_test VALUES ('2026-03-29 00:30:00+00');
"""

TESTED_CLOCK = """
    CREATE OR REPLACE FUNCTION idivm.clock() RETURNS timestamptz LANGUAGE sql STABLE
        RETURN (SELECT t.now FROM public.time_of_test AS t)
"""

LATELY = "SELECT id, size FROM events WHERE at > now() - interval '1 hour'"


@pytest.fixture
def events(orc: Orchestrator) -> Orchestrator:
    """Events of every ten minutes, from two hours before the time to two hours after it."""
    orc.execute(TABLES)
    orc.execute(TESTED_CLOCK)
    orc.execute(
        "INSERT INTO events SELECT n, n, t, t AT TIME ZONE 'UTC', t::date FROM generate_series(-12, 12) AS n,"
        " LATERAL (SELECT timestamptz '2026-03-29 00:30:00+00' + n * interval '10 min' AS t) AS at"
    )
    return orc


def rows(orc: Orchestrator, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    return orc.connection.execute(query).fetchall()


def move(orc: Orchestrator, time: str) -> None:
    """Move the time of the test."""
    orc.connection.execute("UPDATE time_of_test SET now = %s", [f"2026-03-29 {time}+00"])


def state(orc: Orchestrator, view: str = "v") -> str:
    """Return the state of a view."""
    return str(rows(orc, f"SELECT state FROM idivm.status WHERE view = '{view}'::regclass")[0][0])


def quiet_until(orc: Orchestrator, view: str = "v") -> datetime | None:
    """Return until when no row of a view is due."""
    query = f"SELECT idivm.quiet_until(id) FROM idivm.views WHERE relation = '{view}'::regclass"
    moment = rows(orc, query)[0][0]
    assert moment is None or isinstance(moment, datetime)
    return moment


def test_a_view_is_fresh_until_a_row_is_due(events: Orchestrator) -> None:
    events.create_view("v", LATELY)
    assert state(events) == "fresh"
    move(events, "00:39:59.999999")
    assert state(events) == "fresh"
    assert not events.view("v").clock_moved
    # The row of 23:40 leaves.
    move(events, "00:40:00")
    assert state(events) == "behind"
    assert events.view("v").clock_moved
    # The row of 23:30 does not count at 00:30, and comes back before.
    move(events, "00:29:59.999999")
    assert state(events) == "behind"
    events.refresh()
    assert state(events) == "fresh"
    assert all(report.equal for report in events.check())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "fresh"),
    [
        (LATELY, True),
        ("SELECT id FROM events WHERE at <= now() AND size > 3", True),
        ("SELECT e.id FROM events e LEFT JOIN events f ON e.size = f.size AND f.at > now()", True),
        ("SELECT count(*) FILTER (WHERE at > now() - interval '1 day') AS n FROM events", True),
        (
            "SELECT size % 3 AS s FROM events GROUP BY 1 HAVING max(at) > now() - interval '1 hour'",
            True,
        ),
        ("SELECT id, CASE WHEN at > now() THEN 1 ELSE 2 END AS c FROM events", True),
        ("SELECT id FROM events WHERE at + interval '1 hour' > now()", False),
        ("SELECT id FROM events WHERE local > LOCALTIMESTAMP", False),
        ("SELECT id FROM events WHERE at > now() OR local > LOCALTIMESTAMP", False),
        ("SELECT id FROM (SELECT id, at FROM events LIMIT 9) AS e WHERE at > now()", True),
    ],
)
def test_only_an_index_tells_that_no_row_is_due(
    events: Orchestrator, query: str, fresh: bool
) -> None:
    events.create_view("v", query)
    assert rows(events, "SELECT has_clock FROM idivm.views") == [(True,)]
    move(events, "00:31:00")
    assert state(events) == ("fresh" if fresh else "behind")
    assert (quiet_until(events) is not None) == fresh
    events.execute("DROP INDEX events_at")
    assert state(events) == "behind"
    assert quiet_until(events) is None


def test_nobody_waits_for_what_may_be_due(events: Orchestrator) -> None:
    events.execute("CREATE INDEX ON events (day)")
    events.create_view("v", "SELECT id, day FROM events WHERE day >= CURRENT_DATE - 7")
    # Days pass the view at midnight, but the clock of a time zone may be put back.
    assert quiet_until(events) == BEGIN
    events.create_view("w", LATELY)
    assert quiet_until(events, "w") is not None
    events.execute("INSERT INTO events (id) VALUES (100)")
    assert quiet_until(events, "w") is None
    events.refresh("w")
    assert quiet_until(events, "w") is not None
    events.create_view("over", "SELECT count(*) AS n FROM w")
    assert quiet_until(events, "over") == quiet_until(events, "w")
    move(events, "03:00:00")
    assert quiet_until(events, "over") is None
    events.refresh("w")
    # What the view below has changed is pending.
    assert quiet_until(events, "w") is not None
    assert quiet_until(events, "over") is None


@pytest.mark.parametrize("part", range(3))
def test_a_wait_is_never_too_long(events: Orchestrator, part: int) -> None:
    rng = random.Random(part)
    spans = [timedelta(0), timedelta(minutes=rng.randint(1, 90)), timedelta(seconds=7)]
    bounds = [(span, rng.choice((">", "<=", ">=", "<"))) for span in spans]
    compared = " OR ".join(f"at {sign} now() - interval '{span}'" for span, sign in bounds)
    events.create_view("v", f"SELECT id FROM events WHERE size % 2 = 0 OR {compared}")
    times = [row[0] for row in rows(events, "SELECT at FROM events")]
    for _ in range(12):
        now = BEGIN + rng.randint(-13, 13) * timedelta(minutes=10) + rng.choice(spans)
        now += timedelta(microseconds=rng.choice([-1, 0, 0, 1, 250_000]))
        events.connection.execute("UPDATE time_of_test SET now = %s", [now])
        events.refresh()
        # A row whose time is at the bound already passes it with the next moment, or has passed it.
        passes = [
            time + span
            for time in times
            for span, sign in bounds
            if time + span > now or (time + span == now and sign in (">=", "<"))
        ]
        horizon = now + timedelta(hours=1)
        due = min([horizon, *passes])
        waits = quiet_until(events)
        assert waits is not None
        assert max(now, due - timedelta(milliseconds=11)) <= waits <= due


def test_an_index_is_read_and_not_the_table(events: Orchestrator) -> None:
    events.execute(
        "INSERT INTO events (id, size, at) SELECT n, n, timestamptz '2026-03-28 00:00:00+00' + n * interval '1 s'"
        " FROM generate_series(100, 20000) AS n; ANALYZE events"
    )
    events.create_view("v", f"{LATELY} AND at <= now() + interval '1 hour'")
    move(events, "00:31:00")
    read = (
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'events'"
    )
    with events.connection.transaction():
        [(before,)] = rows(events, read)
        assert rows(events, "SELECT idivm.rows_are_due(id) FROM idivm.views") == [(False,)]
        assert quiet_until(events) is not None
        # About twenty times are tried, each with a row for both bounds, and a row of the clock.
        assert rows(events, read)[0][0] - before < 100


def test_nobody_waits_for_a_locked_table(
    events: Orchestrator, connect: Callable[[], psycopg.Connection[Any]]
) -> None:
    events.create_view("v", LATELY)
    move(events, "00:31:00")
    other = connect()
    other.execute("BEGIN; LOCK TABLE events")
    events.connection.execute("SET statement_timeout = '60s'")
    assert state(events) == "behind"
    assert quiet_until(events) is None
    other.execute("COMMIT")
    assert state(events) == "fresh"


def test_views_above_are_served_as_the_views_that_change_by_themselves(
    events: Orchestrator,
) -> None:
    events.create_view("ages", "SELECT id, now() - at AS age FROM events")
    events.create_view("oldest", "SELECT max(age) AS age FROM ages")
    events.create_view("lately", LATELY)
    events.create_view("n", "SELECT count(*) AS n FROM lately")
    events.create_view("sizes", "SELECT sum(size) AS total FROM events")
    served = {view.name: view for view in served_views(events.connection, 1.0)}
    assert {name for name, view in served.items() if view.time_dependent} == {"ages", "oldest"}
    assert {name for name, view in served.items() if view.clocks} == {"lately", "n"}
    assert len({view.tables for view in served.values()}) == 1


def test_strangers_learn_nothing_of_rows(events: Orchestrator, dsn: str) -> None:
    events.create_view("v", LATELY)
    move(events, "00:31:00")
    role = Identifier(f"stranger_{events.connection.info.dbname}")
    connection = events.connection
    connection.execute(SQL("CREATE ROLE {}").format(role))
    connection.execute(SQL("GRANT USAGE ON SCHEMA idivm TO {}").format(role))
    try:
        connection.execute(SQL("SET SESSION AUTHORIZATION {}").format(role))
        asked = "SELECT idivm.rows_are_due(1), idivm.quiet_until(1)"
        assert connection.execute(asked).fetchone() == (True, None)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT idivm.quiet_at(1, now())")
    finally:
        connection.execute("RESET SESSION AUTHORIZATION")
        connection.execute(SQL("DROP OWNED BY {}").format(role))
        connection.execute(SQL("DROP ROLE {}").format(role))


@pytest.fixture
def serve(dsn: str) -> Iterator[list[Event]]:
    """Serve a database, and collect the events."""
    stop, reported = threading.Event(), list[Event]()
    with orchestrator.connect(dsn) as orc:
        options: dict[str, Any] = {"stop": stop, "report": reported.append}
        thread = threading.Thread(target=orc.serve, args=("80ms",), kwargs=options)
        thread.start()
        yield reported
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.integration
@pytest.mark.parametrize("span", ["1 hour", "1 day"])
def test_serve_refreshes_when_a_row_is_due(
    events: Orchestrator, serve: list[Event], span: str
) -> None:
    events.execute(f"UPDATE events SET at = at - interval '{span}' + interval '1 hour'")
    events.execute("CREATE TABLE other (n int PRIMARY KEY)")
    events.create_view("v", LATELY.replace("1 hour", span))
    events.create_view("over", "SELECT count(*) AS n FROM v")
    events.create_view("numbers", "SELECT sum(n) AS total FROM other")

    def refreshes() -> list[tuple[Any, ...]]:
        counts = "SELECT view, refreshes FROM idivm.watermarks WHERE view IN (SELECT id FROM idivm.views WHERE relation"
        return rows(events, f"{counts} IN ('v'::regclass, 'over'::regclass)) ORDER BY 1")

    def shows(query: str, *wanted: object) -> None:
        until(lambda: rows(events, query) == [wanted])

    shows("TABLE over", 18)
    move(events, "00:45:00")
    shows("TABLE over", 17)
    until(lambda: state(events) == state(events, "over") == "fresh")
    # A refresh that the server chose before the views were fresh ends in this round.
    events.connection.execute("INSERT INTO other VALUES (0)")
    shows("TABLE numbers", 0)
    before = refreshes()
    # Time passes, and no row is due. Whenever the other view follows, the server has looked at all views.
    for number, time in enumerate(("00:46:00", "00:48:00", "00:49:59"), start=1):
        move(events, time)
        events.connection.execute("INSERT INTO other VALUES (%s)", [number])
        shows("TABLE numbers", number * (number + 1) // 2)
    assert refreshes() == before
    assert state(events) == state(events, "over") == "fresh"
    move(events, "00:50:00")
    shows("TABLE over", 16)
    # The clock goes back.
    move(events, "00:25:00")
    shows("TABLE over", 19)
    assert not [event for event in serve if event.event == "failed"]
