"""Refreshing in several sessions: one snapshot, one commit, the same results and errors."""

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from orchestrator.errors import IdivmError, UsageError
from orchestrator.runtime.refresh import RefreshError
from orchestrator.runtime.side_by_side import groups

pytestmark = pytest.mark.integration

SLOW = """
    CREATE FUNCTION slow(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock_shared(42);
        RETURN n;
    END $$;
"""


@pytest.fixture
def shop(orc):
    """Three tables, views over each, and a view over two of them and over a view."""
    orc.execute(
        """
        CREATE TABLE a (id int PRIMARY KEY, g int, n int);
        CREATE TABLE b (id int PRIMARY KEY, g int, n int);
        CREATE TABLE c (id int PRIMARY KEY, g int, n int);
        INSERT INTO a SELECT i, i % 3, i FROM generate_series(1, 30) AS i;
        INSERT INTO b TABLE a;
        INSERT INTO c TABLE a;
        CREATE VIEW in_a AS SELECT g, sum(n) AS total FROM a GROUP BY g;
        CREATE VIEW in_b AS SELECT g, sum(n) AS total FROM b GROUP BY g;
        CREATE VIEW over_b AS SELECT count(*) AS n FROM in_b WHERE total > 100;
        CREATE VIEW in_c AS SELECT g, sum(n) AS total FROM c GROUP BY g
        """
    )
    return orc


def value(orc, query, *values):
    return orc.connection.execute(query, values).fetchone()[0]


def wait_until(orc, condition):
    while not value(orc, f"SELECT {condition}"):
        pass


WAITS_FOR_42 = (
    "EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND NOT granted)"
)
ONE_IS_DONE = "EXISTS (SELECT FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE 'SELECT view FROM%')"


@pytest.mark.parametrize("reads", [[(2, ()), (1, ())], [(1, ()), (2, ()), (3, (1, 2)), (4, ())]])
def test_views_that_read_each_other_are_in_one_group(reads):
    grouped = groups(reads)
    assert sorted(map(sorted, grouped)) == ([[1], [2]] if len(reads) == 2 else [[1, 2, 3], [4]])


def test_several_sessions_refresh_in_one_snapshot(shop):
    shop.execute(
        "UPDATE a SET n = n + 100; UPDATE b SET n = n + 100; UPDATE c SET n = 0 WHERE id = 1"
    )
    reports = shop.refresh(jobs=3)
    assert [(r.view, r.changed) for r in reports] == [
        ("in_b", 3),
        ("in_a", 3),
        ("over_b", 0),
        ("in_c", 1),
    ]
    assert (
        value(
            shop,
            "SELECT count(DISTINCT (mark).snapshot::text) FROM idivm.watermarks WHERE refreshes > 0",
        )
        == 1
    )
    assert all(report.equal for report in shop.check())
    assert [r.changed for r in shop.refresh(jobs=3)] == [0, 0, 0, 0]


def test_readers_see_no_view_before_all_are_refreshed(shop, connect):
    shop.execute(SLOW + "CREATE VIEW late AS SELECT id, slow(n) AS n FROM c")
    shop.execute("UPDATE a SET n = 7; UPDATE c SET n = 7")
    with ThreadPoolExecutor(1) as pool, connect() as holder:
        holder.execute("SELECT pg_advisory_lock(42)")
        watcher = connect()
        refreshed = pool.submit(shop.refresh, jobs=2)
        while not (
            watcher.execute(f"SELECT {WAITS_FOR_42}").fetchone()[0]
            and watcher.execute(f"SELECT {ONE_IS_DONE}").fetchone()[0]
        ):
            pass
        assert watcher.execute("SELECT sum(total) FROM in_a").fetchone()[0] == 465
        holder.execute("SELECT pg_advisory_unlock(42)")
        assert {r.view for r in refreshed.result() if r.changed} == {"in_a", "in_c", "late"}
        assert watcher.execute("SELECT sum(total) FROM in_a").fetchone()[0] == 210
        watcher.close()


def test_a_view_that_fails_leaves_the_others_refreshed(shop):
    shop.execute("CREATE VIEW ratio AS SELECT id, 100 / n AS r FROM c")
    shop.execute("UPDATE a SET n = 7; UPDATE b SET n = 7; UPDATE c SET n = 0")
    with pytest.raises(RefreshError, match="Could not refresh ratio: division by zero"):
        shop.refresh(jobs=2)
    assert value(shop, "SELECT sum(total) FROM in_a") == 210
    assert value(shop, "SELECT sum(total) FROM in_b") == 210
    shop.execute("UPDATE c SET n = 1")
    assert {r.view for r in shop.refresh(jobs=2) if r.changed} >= {"ratio"}
    assert all(report.equal for report in shop.check())


def test_sessions_that_wait_for_each_other_give_way_to_one(shop):
    # Whoever calls it first holds the lock until its transaction ends, which waits for the others.
    shop.execute(SLOW.replace("_shared", ""))
    shop.execute(
        "CREATE VIEW x AS SELECT id, slow(n) AS n FROM a; CREATE VIEW y AS SELECT id, slow(n) AS n FROM b"
    )
    shop.execute("UPDATE a SET n = 7; UPDATE b SET n = 7; UPDATE c SET n = 7")
    assert {r.view for r in shop.refresh(jobs=3) if r.changed} == {
        "in_a",
        "in_b",
        "in_c",
        "x",
        "y",
        "over_b",
    }
    assert all(report.equal for report in shop.check())


def test_a_conflict_repeats_the_whole_refresh(shop, connect, monkeypatch):
    from orchestrator.runtime import side_by_side

    shop.execute("UPDATE a SET n = 7; UPDATE b SET n = 7")
    opened = side_by_side.Sessions.open
    calls = []

    def meanwhile(self, *arguments):
        calls.append(1)
        if len(calls) == 1:
            with connect() as other:
                other.execute("SELECT idivm.refresh('in_a')")
        return opened(self, *arguments)

    monkeypatch.setattr(side_by_side.Sessions, "open", meanwhile)
    shop.refresh(jobs=2)
    assert value(shop, "SELECT sum(total) FROM in_b") == 210
    assert all(report.equal for report in shop.check())


def test_a_cancelled_refresh_changes_nothing(shop, connect):
    shop.execute(SLOW + "CREATE VIEW late AS SELECT id, slow(n) AS n FROM c")
    shop.execute("UPDATE a SET n = 7; UPDATE c SET n = 7")
    with ThreadPoolExecutor(1) as pool, connect() as holder:
        holder.execute("SELECT pg_advisory_lock(42)")
        refreshed = pool.submit(shop.refresh, jobs=2)
        while not holder.execute(f"SELECT {WAITS_FOR_42}").fetchone()[0]:
            pass
        shop.cancel()
        with pytest.raises(IdivmError):
            refreshed.result()
    assert value(shop, "SELECT sum(total) FROM in_a") == 465
    assert shop.refresh(jobs=2)
    assert all(report.equal for report in shop.check())


def test_workers_act_as_the_role_of_the_session(shop):
    shop.execute("CREATE ROLE worker_role")
    try:
        shop.execute("SET ROLE worker_role")
        with pytest.raises(IdivmError):
            shop.refresh(jobs=2)
    finally:
        shop.execute("RESET ROLE; DROP ROLE worker_role")


def test_a_transaction_has_one_session(shop):
    with pytest.raises(UsageError, match="several jobs"), shop.connection.transaction():
        shop.refresh(jobs=2)
    with pytest.raises(UsageError, match="at least 1 job"):
        shop.refresh(jobs=0)


def test_one_group_needs_no_other_session(shop, monkeypatch):
    monkeypatch.setattr(shop, "_open_like", lambda: pytest.fail("a session was opened"))
    shop.execute("UPDATE b SET n = 7")
    assert {r.view for r in shop.refresh(jobs=4) if r.changed} == {"in_b", "over_b"}


def test_sessions_are_kept_for_the_next_refresh(shop):
    for _ in range(2):
        shop.execute("UPDATE a SET n = n + 1; UPDATE b SET n = n + 1")
        shop.refresh(jobs=2)
    assert len(shop._workers) == 2
    shop._workers[0].close()
    value(shop, "SELECT pg_terminate_backend(%s)", shop._workers[1].info.backend_pid)
    shop.execute("UPDATE a SET n = n + 1; UPDATE b SET n = n + 1")
    shop.refresh(jobs=2)
    assert all(report.equal for report in shop.check())
    shop.close()
    assert all(worker.closed for worker in shop._workers)


def test_without_room_for_sessions_one_does_the_work(shop, monkeypatch):
    def full():
        raise psycopg.OperationalError("sorry, too many clients already")

    monkeypatch.setattr(shop, "_open_like", full)
    shop.execute("UPDATE a SET n = 7; UPDATE b SET n = 7")
    assert {r.view for r in shop.refresh(jobs=4) if r.changed} == {"in_a", "in_b", "over_b"}


def test_serve_keeps_many_views_fresh_with_few_workers(shop):
    stop = threading.Event()
    seen = set()

    def heard(event):
        seen.add(event.view)
        if {"in_a", "in_b", "in_c"} <= seen:
            stop.set()

    shop.execute("UPDATE a SET n = 7; UPDATE b SET n = 7; UPDATE c SET n = 7")
    shop.serve("50ms", workers=1, stop=stop, report=heard)
    assert all(report.equal for report in shop.check())
