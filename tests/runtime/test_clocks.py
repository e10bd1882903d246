"""Temporal filters: rows come and go because the time moves, by every strategy and with a controlled clock."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import psycopg
import pytest

from orchestrator.api import Orchestrator
from orchestrator.errors import UnsupportedError

Connect = Callable[..., "psycopg.Connection[Any]"]

TABLES = """
    CREATE TABLE places (place int PRIMARY KEY, region text NOT NULL);
    CREATE TABLE events (id int PRIMARY KEY, place int NOT NULL, size int, at timestamptz, day date, local timestamp);
    INSERT INTO places SELECT n, 'region ' || n % 3 FROM generate_series(0, 9) AS n;
    CREATE INDEX ON events (at);
    CREATE TABLE time_of_test (now timestamptz NOT NULL);
    INSERT INTO time_of_test VALUES ('2026-03-29 00:30:00+00');
"""

TESTED_CLOCK = """
    CREATE OR REPLACE FUNCTION idivm.clock() RETURNS timestamptz LANGUAGE sql STABLE
        RETURN (SELECT t.now FROM public.time_of_test AS t)
"""

STRATEGIES: tuple[Literal["id", "tuple", "recursive"], ...] = ("id", "tuple", "recursive")

QUERIES = {
    "window": "SELECT id, size FROM events WHERE at > now() - interval '1 hour'",
    "both_bounds": "SELECT id, size FROM events WHERE at > now() - interval '1 hour' AND at <= now()",
    "groups": "SELECT place, count(*) AS n, sum(size) AS total FROM events"
    " WHERE at >= transaction_timestamp() - interval '1 day' GROUP BY place",
    "joined": "SELECT region, count(*) AS n, max(size) AS most FROM events JOIN places USING (place)"
    " WHERE at > CURRENT_TIMESTAMP - interval '1 hour' GROUP BY region",
    "today": "SELECT place, count(*) AS n FROM events WHERE at::date = CURRENT_DATE GROUP BY place",
    "dates": "SELECT id, day FROM events WHERE day >= CURRENT_DATE - 7 AND day < now()",
    "months": "SELECT id FROM events WHERE at > date_trunc('month', now()) - interval '1 month'",
    "local": "SELECT id FROM events WHERE local > LOCALTIMESTAMP - interval '1 day'",
    "either": "SELECT id FROM events WHERE at > now() - interval '1 hour' OR size IS NULL",
    "having": "SELECT place, max(at) AS last FROM events GROUP BY place HAVING max(at) > now() - interval '1 hour'",
    "exists": "SELECT place FROM places p WHERE EXISTS (SELECT FROM events e WHERE e.place = p.place"
    " AND e.at > now() - interval '1 hour')",
    "missing": "SELECT place FROM places p WHERE NOT EXISTS (SELECT FROM events e WHERE e.place = p.place"
    " AND now() - interval '1 hour' < e.at)",
    "outer": "SELECT p.place, e.id FROM places p LEFT JOIN events e ON e.place = p.place"
    " AND e.at > now() - interval '1 hour'",
    "twice": "SELECT a.id, b.id AS other FROM events a JOIN events b ON a.place = b.place AND a.id < b.id"
    " WHERE a.at > now() - interval '1 hour' AND b.at > now() - interval '2 hours'",
    "filtered": "SELECT place, count(*) FILTER (WHERE at > now() - interval '1 hour') AS n,"
    " sum(size) FILTER (WHERE at > now() - interval '1 day' AND size > 2) AS total, max(size) AS most"
    " FROM events GROUP BY place",
    "filtered_branch": "SELECT sum(branch) FILTER (WHERE at > now() - interval '1 day') AS total, max(branch) AS most"
    " FROM (SELECT at, size AS branch FROM events) AS e",
    "filtered_whole": "SELECT count(*) FILTER (WHERE at > now() - interval '1 hour') AS n FROM events",
    "filtered_join": "SELECT region, avg(size) FILTER (WHERE at > now() OR size IS NULL) AS a, count(*) AS n"
    " FROM events JOIN places USING (place) GROUP BY region HAVING count(*) > 1",
    "case": "SELECT id, CASE WHEN at > now() THEN 'later' WHEN at > now() - interval '1 day' THEN 'new'"
    " ELSE 'old' END AS age FROM events",
    "case_groups": "SELECT at > now() - interval '1 hour' AS lately, place, count(*) AS n FROM events GROUP BY 1, 2",
    "case_sum": "SELECT place, sum(CASE WHEN at > now() - interval '1 day' THEN size ELSE -1 END) AS balance,"
    " max(size) FILTER (WHERE day < CURRENT_DATE) AS most FROM events GROUP BY place",
    "union": "SELECT id FROM events WHERE at > now() UNION ALL SELECT id FROM events WHERE at <= now() - interval '1 day'",
}


TREES = {
    "groups": QUERIES["groups"],
    "rows": QUERIES["both_bounds"],
    "dates": QUERIES["dates"],
    "joined": "SELECT region, count(*) AS n, sum(size) AS total FROM events JOIN places USING (place)"
    " WHERE at > CURRENT_TIMESTAMP - interval '1 hour' AND region <> 'region 2' GROUP BY region",
    "twice": "SELECT a.place, count(*) AS n, sum(a.size * b.size) AS s FROM events a JOIN events b ON a.place = b.place"
    " WHERE a.at > now() - interval '1 hour' AND b.at > now() - interval '1 hour' AND b.day <= CURRENT_DATE"
    " GROUP BY a.place",
    "filtered": "SELECT place, count(*) FILTER (WHERE at > now() - interval '1 hour') AS n, sum(size) AS total"
    " FROM events GROUP BY place HAVING count(*) > 1",
    "triangles": "SELECT count(*) AS n FROM events a, events b, events c WHERE a.place = b.size AND b.place = c.size"
    " AND c.place = a.size AND a.at > now() - interval '1 day' AND b.at <= now()",
    "paths": "SELECT region, sum(a.size) AS s FROM events a, places p, events b WHERE a.place = p.place"
    " AND p.place = b.size AND (a.at > now() - interval '1 day' OR a.size = 1) GROUP BY region",
}
"""Queries that view trees maintain, over all rows and over heavy and light parts."""


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["viewtree", "skew"])
def test_view_trees_follow_the_time(
    orc: Orchestrator, strategy: Literal["viewtree", "skew"]
) -> None:
    prepare(orc)
    for name, query in TREES.items():
        assert orc.create_view(name, query, strategy=strategy).strategy == strategy
    if strategy == "viewtree":
        # The content of a skew view is a query, whose changes no view above can follow.
        orc.create_view("upper", "SELECT sum(n) AS n FROM joined", strategy=strategy)
    rng = random.Random(7)
    for _ in range(10):
        change(orc, rng)
        orc.refresh()
        for name, query in TREES.items():
            right = at_the_time(query)
            different = (
                f"(TABLE {name} EXCEPT ALL ({right})) UNION ALL (({right}) EXCEPT ALL TABLE {name})"
            )
            assert rows(orc, f"SELECT d::text FROM ({different}) AS d") == [], name
    assert all(report.equal for report in orc.check())
    assert rows(orc, "SELECT bool_or(recomputed) FROM idivm.history") == [(False,)]


@pytest.mark.slow
def test_a_tree_over_several_tables_at_once_is_refused(orc: Orchestrator) -> None:
    """Only one table can be filtered by its leaf."""
    prepare(orc)
    query = (
        "SELECT count(*) AS n FROM events a JOIN events b ON a.place = b.place"
        " WHERE a.at > now() OR b.at > now()"
    )
    with pytest.raises(UnsupportedError, match="connected by more than equality"):
        orc.create_view("v", query, strategy="viewtree")
    assert orc.create_view("v", query).strategy != "recompute"


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_content_follows_the_time(orc: Orchestrator, part: int, whole: bool) -> None:
    prepare(orc)
    rng = random.Random(part)
    zone = rng.choice(["Europe/Berlin", "America/New_York", "UTC", "Australia/Lord_Howe"])
    orc.execute(f"SET TimeZone = '{zone}'")
    names: dict[str, str] = {}
    for number, query in enumerate(QUERIES):
        if not whole and (part + number) % 3:
            continue
        strategy = STRATEGIES[(part + number) % len(STRATEGIES)]
        orc.create_view(f"{query}_{strategy}", QUERIES[query], strategy=strategy)
        orc.create_view(f"{query}_auto", QUERIES[query])
        names |= {f"{query}_{strategy}": query, f"{query}_auto": query}
    clocks = "SELECT bool_and(has_clock) FROM idivm.views"
    assert rows(orc, clocks) == [(True,)]
    for step in range(8):
        # The time zone at the creation counts, and not that of the session that refreshes.
        orc.execute("SET TimeZone = 'Asia/Kolkata'")
        change(orc, rng)
        orc.refresh()
        orc.execute(f"SET TimeZone = '{zone}'")
        for name, query in names.items():
            right = at_the_time(QUERIES[query])
            different = (
                f"(TABLE {name} EXCEPT ALL ({right})) UNION ALL (({right}) EXCEPT ALL TABLE {name})"
            )
            assert rows(orc, f"SELECT d::text FROM ({different}) AS d") == [], (
                part,
                zone,
                step,
                name,
            )
    assert all(report.equal for report in orc.check())


def test_a_temporal_view_is_explained(orc: Orchestrator) -> None:
    prepare(orc)
    orc.create_view("recent", QUERIES["window"])
    explained = orc.explain("recent")
    assert "the current time (one (key), e1)" in explained.plan
    assert "a change of one row of events" in explained.summary
    assert set(explained.graphs) >= {"plan"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "strategy"),
    [
        *((QUERIES[name], "id") for name in ("both_bounds", "filtered", "case")),
        *((TREES["joined"], strategy) for strategy in ("viewtree", "skew")),
    ],
)
def test_rows_that_turn_are_looked_up(
    orc: Orchestrator, query: str, strategy: Literal["id", "viewtree", "skew"]
) -> None:
    """The planner does not know how few rows are between two bounds, and would read the whole content."""
    prepare(orc)
    orc.execute(
        "INSERT INTO events SELECT n, n % 10, n % 9, timestamptz '2026-03-29 00:00:00+00' + n * interval '1 s'"
        " FROM generate_series(1, 20000) AS n; ANALYZE events"
    )
    orc.create_view("v", query, strategy=strategy)
    orc.execute("UPDATE time_of_test SET now = '2026-03-29 02:00:10+00'")
    orc.refresh()
    orc.execute("UPDATE time_of_test SET now = '2026-03-29 02:00:20+00'")
    read = (
        "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_all_tables"
        " WHERE schemaname = 'idivm_state' OR relname = 'events'"
    )
    with orc.connection.transaction():
        [(before,)] = rows(orc, read)
        orc.connection.execute("SELECT * FROM idivm.refresh('v')")
        assert rows(orc, read)[0][0] - before < 500
    assert all(report.equal for report in orc.check())


def test_only_rows_that_come_and_go_are_changed(orc: Orchestrator) -> None:
    prepare(orc)
    orc.execute(
        "INSERT INTO events SELECT n, 1, n, timestamptz '2026-03-29 00:00:00+00' + n * interval '1 s'"
        " FROM generate_series(1, 5000) AS n; ANALYZE events"
    )
    orc.create_view("recent", QUERIES["window"])
    orc.execute("UPDATE time_of_test SET now = '2026-03-29 01:00:10+00'")
    [refreshed] = orc.refresh("recent")
    assert refreshed.changed == 10
    assert rows(orc, "SELECT recomputed FROM idivm.history WHERE view = 'recent'::regclass") == [
        (False,)
    ]


def test_a_view_says_as_of_when_it_is_right(orc: Orchestrator) -> None:
    prepare(orc)
    orc.execute("INSERT INTO events (id, place, at) VALUES (1, 1, '2026-03-28 23:30:30+00')")
    orc.create_view("recent", QUERIES["window"])
    orc.create_view("daily", QUERIES["today"])
    orc.execute("UPDATE time_of_test SET now = '2026-03-29 00:31:00+00'")
    assert states(orc) == {"daily": "fresh", "recent": "behind"}
    assert rows(orc, "SELECT idivm.as_of('recent')::text") == [("2026-03-29 00:30:00+00",)]
    assert rows(
        orc,
        "SELECT fresh_as_of = idivm.as_of('recent') FROM idivm.status WHERE view = 'recent'::regclass",
    ) == [(True,)]
    assert all(report.equal for report in orc.check())
    orc.refresh()
    assert states(orc) == {"daily": "fresh", "recent": "fresh"}
    assert rows(orc, "SELECT idivm.as_of('recent')::text") == [("2026-03-29 00:31:00+00",)]


def test_content_is_the_answer_of_the_refreshing_transaction(
    orc: Orchestrator, connect: Connect
) -> None:
    orc.execute(TABLES)
    orc.execute(
        "INSERT INTO events SELECT n, 1, n, now() - n * interval '1 s' FROM generate_series(1, 100) AS n"
    )
    query = "SELECT id FROM events WHERE at > now() - interval '50 s'"
    orc.create_view("recent", query)
    connection = connect()
    with connection.transaction():
        connection.execute("DELETE FROM events WHERE id % 7 = 0")
        for _ in range(2):
            connection.execute("SELECT * FROM idivm.refresh('recent')").fetchall()
            content = connection.execute("SELECT id FROM recent").fetchall()
            assert Counter(content) == Counter(connection.execute(query).fetchall())
            connection.execute("INSERT INTO events SELECT max(id) + 1, 1, 1, now() FROM events")
    assert all(report.equal for report in orc.check())


def test_a_view_over_a_window_follows(orc: Orchestrator) -> None:
    prepare(orc)
    orc.create_view(
        "recent", "SELECT id, place, size FROM events WHERE at > now() - interval '1 hour'"
    )
    orc.create_view("busy", "SELECT place, count(*) AS n FROM recent GROUP BY place")
    rng = random.Random(3)
    for _ in range(6):
        change(orc, rng)
        orc.refresh("busy")
        assert all(report.equal for report in orc.check())


@pytest.mark.parametrize("mode", ["eager", "on_commit"])
def test_writers_cannot_maintain_a_temporal_filter(
    orc: Orchestrator, mode: Literal["eager", "on_commit"]
) -> None:
    prepare(orc)
    with pytest.raises(UnsupportedError, match=f"leave out maintain = {mode}, and refresh it"):
        orc.create_view("recent", QUERIES["window"], maintain=mode)
    assert rows(
        orc, "SELECT count(*) FROM pg_class WHERE relnamespace = 'idivm_def'::regnamespace"
    ) == [(0,)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, now() - at AS age FROM events",
        "SELECT id FROM events WHERE now() - at < interval '1 hour'",
        "SELECT id FROM events WHERE extract(epoch FROM now() - at) < size",
        "SELECT p.place FROM places p LEFT JOIN events e ON p.place > extract(hour FROM now())",
        "SELECT count(*) FILTER (WHERE at <> now()) AS n FROM events",
    ],
)
def test_other_uses_of_the_time_are_recomputed(orc: Orchestrator, query: str) -> None:
    orc.execute(TABLES)
    view = orc.create_view("v", query)
    assert view.strategy == "recompute"
    reasons = [reason.because for reason in view.plan.evidence.reasons]
    assert any("the current time outside a comparison" in reason for reason in reasons)
    assert all(report.equal for report in orc.check())


@pytest.mark.parametrize("negation", ["", "NOT "])
def test_a_time_in_a_subquery_may_belong_to_the_rows_outside(
    orc: Orchestrator, negation: str
) -> None:
    """An event that is too old has no partner."""
    orc.execute(TABLES)
    orc.execute(
        "INSERT INTO events (id, place, at) VALUES (1, 1, now()), (2, 1, now() - interval '1 day'), (3, 99, now())"
    )
    condition = (
        "EXISTS (SELECT FROM places p WHERE p.place = e.place AND e.at > now() - interval '1 hour')"
    )
    orc.create_view("v", f"SELECT id FROM events e WHERE {negation}{condition}")
    assert rows(orc, "SELECT id FROM v ORDER BY id") == ([(2,), (3,)] if negation else [(1,)])


def test_a_time_that_nothing_reads_needs_no_clock(orc: Orchestrator) -> None:
    prepare(orc)
    query = (
        "WITH unread AS (SELECT id FROM events WHERE at > now()) SELECT place, region FROM places"
    )
    view = orc.create_view("v", query, maintain="eager")
    assert view.strategy != "recompute"
    assert rows(orc, "SELECT has_clock FROM idivm.views") == [(False,)]
    orc.execute("DELETE FROM places WHERE place > 3")
    assert rows(orc, "SELECT count(*) FROM v") == [(4,)]
    assert all(report.equal for report in orc.check())


def test_dropping_a_view_drops_its_clock(orc: Orchestrator) -> None:
    prepare(orc)
    objects = (
        "SELECT count(*) FROM pg_class WHERE relnamespace IN ('idivm_def'::regnamespace, 'idivm_log'::regnamespace)"
        " UNION ALL SELECT count(*) FROM pg_proc WHERE pronamespace = 'idivm_state'::regnamespace"
    )
    before = rows(orc, objects)
    orc.create_view("recent", QUERIES["window"])
    orc.drop_view("recent")
    assert rows(orc, objects) == before


def prepare(orc: Orchestrator) -> None:
    """Create the tables, and let idivm take the time from one of them."""
    orc.execute(TABLES)
    orc.execute(TESTED_CLOCK)


def rows(orc: Orchestrator, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    return orc.connection.execute(query).fetchall()


def states(orc: Orchestrator) -> dict[str, str]:
    """Return the states of all views."""
    return dict(rows(orc, "SELECT view::text, state FROM idivm.status ORDER BY 1"))


def at_the_time(query: str) -> str:
    """Return a query with the time of the test in place of the current time."""
    now = "(SELECT now FROM time_of_test)"
    for written, value in {
        "transaction_timestamp()": now,
        "CURRENT_TIMESTAMP": now,
        "LOCALTIMESTAMP": f"{now}::timestamp",
        "CURRENT_DATE": f"{now}::date",
        "now()": now,
    }.items():
        query = query.replace(written, value)
    return query


def change(orc: Orchestrator, rng: random.Random) -> None:
    """Change some rows, and move the time: a little, over a jump, into the past, or not at all."""
    step = rng.choice(
        ["1 second", "5 minutes", "1 hour", "1 day", "40 days", "-1 hour", "-3 days", "0"]
    )
    orc.execute(f"UPDATE time_of_test SET now = now + interval '{step}'")
    seconds = "least(greatest((random() - 0.5) ^ 3 * 2000000, -300000), 300000)"
    moment = f"(SELECT now FROM time_of_test) + {seconds} * interval '1 s'"
    orc.execute(f"SELECT setseed({rng.random()})")
    orc.execute(
        f"INSERT INTO events SELECT n, n % 10, nullif(n % 5, 0), t, t::date, t AT TIME ZONE 'UTC'"
        f" FROM generate_series(1, 20) AS g, LATERAL (SELECT g + (SELECT coalesce(max(id), 0) FROM events) AS n,"
        f" CASE g WHEN 1 THEN NULL WHEN 2 THEN 'infinity' WHEN 3 THEN '-infinity' ELSE {moment} + g * interval '0' END AS t) AS new"
    )
    orc.execute(f"DELETE FROM events WHERE id % 11 = {rng.randrange(11)}")
    orc.execute(f"UPDATE events SET at = {moment} WHERE id % 13 = {rng.randrange(13)}")
    orc.execute(f"UPDATE events SET size = size + 1 WHERE id % 7 = {rng.randrange(7)}")
    if rng.random() < 0.3:
        orc.execute(f"UPDATE events SET place = (place + 1) % 10 WHERE id % 5 = {rng.randrange(5)}")
