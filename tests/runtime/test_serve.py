"""`idivm serve` keeps deferred views fresh, and outlives what happens to its connections."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from psycopg import sql
from stepping import Session, differences, until

import orchestrator
from orchestrator.catalog.serving import Served
from orchestrator.runtime.freshness import Progress, groups, refresh_at

pytestmark = pytest.mark.integration


@pytest.fixture
def shop(orc):
    orc.execute(
        """
        CREATE TABLE t (id int PRIMARY KEY, n int); CREATE TABLE u (id int PRIMARY KEY, n int);
        CREATE VIEW low WITH (strategy = recompute) AS SELECT sum(n) AS s FROM t;
        CREATE VIEW high AS SELECT s + 1 AS s FROM low;
        CREATE VIEW apart WITH (staleness = '40ms') AS SELECT 100 / n AS q FROM u
        """
    )
    return orc


class Serving:
    """A server of views in a thread, and what it has reported."""

    def __init__(self, dsn):
        self.stop = threading.Event()
        self.events = []
        self.orc = orchestrator.connect(dsn)
        self.thread = threading.Thread(
            target=self.orc.serve,
            args=("80ms",),
            kwargs={"stop": self.stop, "report": self.events.append},
        )
        self.thread.start()

    def seen(self, event, view=None):
        return [e for e in self.events if e.event == event and view in (None, e.view)]

    def end(self):
        self.stop.set()
        self.thread.join(60)
        assert not self.thread.is_alive()
        self.orc.close()


@pytest.fixture
def serve(dsn, shop):
    started = []

    def start():
        started.append(Serving(dsn))
        return started[-1]

    yield start
    for served in started:
        served.end()


def shows(orc, view, *rows):
    return lambda: (
        sorted(orc.connection.execute(sql.SQL("TABLE {}").format(sql.SQL(view)))) == sorted(rows)
    )


def test_changes_are_followed_through_all_views(shop, serve):
    served = serve()
    shop.connection.execute("INSERT INTO t VALUES (1, 5)")
    until(shows(shop, "high", (6,)))
    shop.connection.execute("INSERT INTO u VALUES (1, 5)")
    until(shows(shop, "apart", (20,)))
    until(lambda: served.seen("refreshed", "high") and served.seen("refreshed", "apart"))
    assert served.seen("connected")
    report = served.seen("refreshed", "high")[-1]
    assert report.changed and report.staleness is not None and report.staleness > 0


def test_what_commits_late_is_followed(shop, serve, connect):
    late, prepared = Session(connect()), connect()
    late("INSERT INTO t VALUES (1, 5)")
    prepared.execute("BEGIN")
    prepared.execute("INSERT INTO t VALUES (2, 100)")
    prepared.execute("PREPARE TRANSACTION 'late'")
    serve()
    shop.connection.execute("INSERT INTO t VALUES (3, 1000)")
    until(shows(shop, "low", (1000,)))
    late.commit()
    until(shows(shop, "low", (1005,)))
    prepared.execute("COMMIT PREPARED 'late'")
    until(shows(shop, "low", (1105,)))


def test_without_changes_nothing_is_refreshed(shop, serve):
    served = serve()
    shop.connection.execute("INSERT INTO t VALUES (1, 5)")
    until(shows(shop, "high", (6,)))
    counts = "SELECT sum(refreshes) FROM idivm.watermarks"
    before = shop.connection.execute(counts).fetchone()
    shop.connection.execute("INSERT INTO u VALUES (1, 5)")
    until(shows(shop, "apart", (20,)))
    assert shop.connection.execute(counts).fetchone() == (before[0] + 1,)
    assert not served.seen("failed")


def test_one_that_fails_keeps_nobody_back(shop, serve):
    served = serve()
    shop.connection.execute("INSERT INTO u VALUES (1, 0); INSERT INTO t VALUES (1, 5)")
    until(lambda: served.seen("failed", "apart"))
    until(shows(shop, "high", (6,)))
    assert "division by zero" in served.seen("failed", "apart")[0].message
    shop.connection.execute("UPDATE u SET n = 4")
    until(shows(shop, "apart", (25,)))


def test_views_that_come_go_and_change(shop, serve):
    serve()
    shop.execute("CREATE VIEW more AS SELECT count(*) AS c FROM t")
    shop.connection.execute("INSERT INTO t VALUES (1, 5)")
    until(shows(shop, "more", (1,)))
    shop.execute("DROP VIEW high; ALTER VIEW low SET (maintain = eager)")
    shop.connection.execute("INSERT INTO t VALUES (2, 5)")
    assert shows(shop, "low", (10,))()
    until(shows(shop, "more", (2,)))


def test_lost_connections_are_opened_again(shop, serve):
    served = serve()
    until(lambda: served.seen("connected"))
    for number in (1, 2):
        shop.connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'idivm' AND pid NOT IN (%s, %s) AND datname = current_database()",
            [shop.connection.info.backend_pid, served.orc.connection.info.backend_pid],
        )
        shop.connection.execute(sql.SQL("INSERT INTO t VALUES ({}, 1)").format(number))
        until(shows(shop, "low", (number,)))
        until(lambda: len(served.seen("connected")) > number)  # noqa: B023
    assert served.seen("disconnected")


def test_a_second_one_stands_by(shop, serve):
    first = serve()
    until(lambda: first.seen("connected"))
    second = serve()
    until(lambda: second.seen("standing by"))
    first.end()
    until(lambda: second.seen("connected"))
    shop.connection.execute("INSERT INTO t VALUES (1, 5)")
    until(shows(shop, "high", (6,)))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_ends_when_it_is_told_to(shop, dsn, number):
    command = [
        sys.executable,
        "-m",
        "orchestrator.cli.main",
        "serve",
        "--interval",
        "60ms",
        "--json",
    ]
    process = subprocess.Popen(
        [*command, "--dsn", dsn],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    try:
        shop.connection.execute("INSERT INTO t VALUES (1, 5)")
        lines = []
        while not lines or json.loads(lines[-1]).get("view") != "high":
            lines.append(process.stdout.readline())
        assert shows(shop, "high", (6,))()
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    events = [json.loads(line) for line in (*lines, *out.splitlines())]
    assert (process.returncode, err) == (0, "")
    assert events[0] == {"event": "connected"}
    assert events[-1] == {"event": "stopped"}
    assert {"low", "high"} <= {event.get("view") for event in events}


@pytest.mark.parametrize("maintain", ["deferred", "eager"])
def test_a_function_that_changes_makes_its_views_due(shop, serve, monkeypatch, maintain):
    monkeypatch.setattr("orchestrator.runtime.serve.TIDY", 0.05)
    shop.connection.execute(
        "CREATE FUNCTION f(i int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT i + 1';"
        "INSERT INTO t VALUES (1, 5)"
    )
    shop.create_view("calling", "SELECT f(n) AS y FROM t", maintain=maintain)
    serve()
    until(shows(shop, "low", (5,)))
    for n in (2, 3):
        shop.connection.execute(
            sql.SQL(
                "CREATE OR REPLACE FUNCTION f(i int) RETURNS int LANGUAGE sql IMMUTABLE AS {}"
            ).format(sql.Literal(f"SELECT i + {n}"))
        )
        until(shows(shop, "calling", (5 + n,)))


def test_states_that_were_left_behind_are_computed(shop, serve, monkeypatch):
    monkeypatch.setattr("orchestrator.runtime.serve.TIDY", 0.05)
    shop.execute("CREATE VIEW kinds WITH (strategy = id) AS SELECT count(DISTINCT n) AS c FROM t")
    shop.execute("INSERT INTO t VALUES (77, 7)")
    shop.refresh("kinds")
    shop.execute(
        "UPDATE idivm.watermarks SET content_only = view IN (SELECT id FROM idivm.views WHERE relation = 'kinds'::regclass)"
    )
    serve()
    until(
        lambda: (
            shop.execute("SELECT bool_or(content_only) FROM idivm.watermarks")[0].rows == [(False,)]
        )
    )
    assert differences(shop.connection, "kinds") == []


def test_an_interval_must_be_one(shop):
    with pytest.raises(orchestrator.errors.UsageError, match="not a duration"):
        shop.serve("often")


def served(number, *below):
    return Served(number, f"v{number}", 1.0, False, frozenset(), frozenset(below))


def test_groups_join_what_has_a_view_in_common():
    views = [served(1), served(2), served(3, 1), served(4, 2), served(5, 3, 1, 4, 2), served(6)]
    numbers = [sorted(view.id for view in group) for group in groups(views)]
    assert sorted(numbers) == [[1, 2, 3, 4, 5], [6]]


def test_a_refresh_begins_in_time_and_not_before_a_pause_ends():
    assert refresh_at(served(1), Progress(since=10.0, took=0.2)) == pytest.approx(10.3)
    assert refresh_at(served(1), Progress(since=10.0, not_before=20.0)) == 20.0
