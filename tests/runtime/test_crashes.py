"""Whatever is cut short, at a point that a lock holds it at, leaves the old or the new state."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from harness import SURE, TestServer, found_versions
from stepping import differences, until

import orchestrator
from orchestrator.api import Orchestrator
from orchestrator.catalog.objects import orphans
from orchestrator.errors import IdivmError
from orchestrator.runtime.diagnosis.doctor import examine
from orchestrator.runtime.migrate import migrate, shipped

GATE = 4242
"""The advisory lock that the views' queries ask for, so that they stop where it is held."""

TABLES = f"""
    CREATE FUNCTION gate(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock_shared({GATE});
        RETURN n;
    END $$;
    CREATE TABLE t (id int PRIMARY KEY, k int, n int);
    INSERT INTO t SELECT i, i % 5, i FROM generate_series(1, 50) AS i
"""

QUERY = "SELECT k, sum(gate(n)) AS s FROM t GROUP BY k"


@pytest.fixture(scope="module")
def own(scratch: Path) -> Iterator[TestServer]:
    """A server whose crash disturbs nobody."""
    folder = scratch / "crashes"
    version = next(iter(found_versions()))
    server = TestServer(found_versions()[version], folder, SURE)
    yield server
    server.stop()


@pytest.fixture
def database(own: TestServer) -> Iterator[str]:
    with own.database(migrated=True) as dsn:
        yield dsn


def cancel(own: TestServer, pid: int, watcher: psycopg.Connection[Any]) -> None:
    watcher.execute("SELECT pg_cancel_backend(%s)", [pid])


def terminate(own: TestServer, pid: int, watcher: psycopg.Connection[Any]) -> None:
    watcher.execute("SELECT pg_terminate_backend(%s)", [pid])


def kill(own: TestServer, pid: int, watcher: psycopg.Connection[Any]) -> None:
    """A dead backend takes all sessions along, and the server recovers as from a crash."""
    os.kill(pid, signal.SIGKILL)


Attack = Callable[[TestServer, int, "psycopg.Connection[Any]"], None]


@pytest.fixture(params=[cancel, terminate, kill])
def attack(request: pytest.FixtureRequest) -> Attack:
    chosen: Attack = request.param
    return chosen


def cut_short(
    own: TestServer, dsn: str, attack: Attack, hold: str, action: Callable[[Orchestrator], object]
) -> None:
    """Runs an action against a lock that somebody holds, and attacks it while it waits."""
    victim = orchestrator.connect(dsn)
    holder = psycopg.connect(dsn)
    watcher = psycopg.connect(dsn, autocommit=True)
    holder.execute(hold)
    pid = victim.connection.info.backend_pid

    def run() -> None:
        with suppress(IdivmError, psycopg.Error):
            action(victim)

    thread = threading.Thread(target=run)
    thread.start()
    waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = %s AND NOT granted)"
    until(lambda: watcher.execute(waiting, [pid]).fetchone() == (True,))
    attack(own, pid, watcher)
    # Whatever it does to clean up needs no lock of the holder's.
    with suppress(psycopg.Error):
        holder.rollback()
    thread.join(60)
    assert not thread.is_alive()
    if attack is kill:
        # Until the server has noticed, it lets new sessions in that it will end as well.
        until(lambda: not answers(watcher))
    for connection in (victim.connection, holder, watcher):
        with suppress(psycopg.Error):
            connection.close()

    def lets_in() -> bool:
        with suppress(psycopg.Error):
            psycopg.connect(dsn).close()
            return True
        return False

    until(lets_in)


def answers(connection: psycopg.Connection[Any]) -> bool:
    with suppress(psycopg.Error):
        connection.execute("SELECT")
        return True
    return False


def recovered(dsn: str) -> Orchestrator:
    """The database as idivm's next command finds it: nothing left over, every view right."""
    orc = orchestrator.connect(dsn)
    orc.views()
    assert orphans(orc.connection) == []
    orc.refresh()
    for view in orc.views():
        assert differences(orc.connection, view.name) == []
    assert [f for f in examine(orc.connection) if not f.fine] == []
    return orc


def lives_on(orc: Orchestrator) -> None:
    names = [view.name for view in orc.views()]
    orc.execute("UPDATE t SET k = (k + 1) % 5, n = n + 1; DELETE FROM t WHERE id % 10 = 3")
    orc.refresh()
    assert all(differences(orc.connection, name) == [] for name in names)
    for name in reversed(names):
        orc.drop_view(name)
    assert orphans(orc.connection) == []
    orc.create_view("v", QUERY)
    orc.close()


@pytest.mark.parametrize(
    "hold",
    [f"SELECT pg_advisory_xact_lock({GATE})", "UPDATE t SET n = 0 WHERE id = 1"],
    ids=["filling", "installing"],
)
@pytest.mark.parametrize(("strategy", "mode"), [("id", "eager"), ("recompute", "deferred")])
def test_create(
    own: TestServer, database: str, attack: Attack, strategy: str, hold: str, mode: str
) -> None:
    with orchestrator.connect(database) as orc:
        orc.execute(TABLES)
    cut_short(
        own,
        database,
        attack,
        hold,
        lambda o: o.create_view("v", QUERY, strategy=strategy, maintain=mode),
    )
    with recovered(database) as orc:
        assert orc.views() == []
        # The log of what nobody reads is no writer's burden.
        assert orc.connection.execute("SELECT count(*) FROM idivm.sources").fetchone() == (0,)
        lives_on(orc)


def stood_up(database: str, strategy: str) -> None:
    with orchestrator.connect(database) as orc:
        orc.execute(TABLES)
        orc.create_view("v", QUERY, strategy=strategy)
        orc.create_view("above", "SELECT count(*) AS n FROM v WHERE s > 100")
        orc.execute("UPDATE t SET n = n + 1 WHERE id < 20; DELETE FROM t WHERE k = 4")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("hold", "action"),
    [
        (f"SELECT pg_advisory_xact_lock({GATE})", lambda o: o.refresh()),
        (
            f"SELECT pg_advisory_xact_lock({GATE})",
            lambda o: o.connection.execute("CALL idivm.refresh_all()"),
        ),
        (
            "SELECT FROM idivm.watermarks WHERE view = 2 FOR UPDATE",
            lambda o: o.refresh(),
        ),
        (
            "LOCK TABLE idivm.view_sources",
            lambda o: o.connection.execute("SELECT idivm.collect(0)"),
        ),
        ("LOCK TABLE v IN ACCESS SHARE MODE", lambda o: o.drop_view("v", cascade=True)),
        (
            f"SELECT pg_advisory_xact_lock({GATE})",
            lambda o: o.alter_view("above", maintain="eager"),
        ),
        ("LOCK TABLE t IN ROW EXCLUSIVE MODE", lambda o: o.alter_view("above", maintain="eager")),
    ],
    ids=["refresh", "refresh_all", "second view", "collect", "drop", "alter", "alter at the end"],
)
def test_what_is_there_stays_or_goes_as_a_whole(
    own: TestServer, database: str, attack: Attack, hold: str, action: Any
) -> None:
    stood_up(database, "id")
    cut_short(own, database, attack, hold, action)
    with recovered(database) as orc:
        assert [view.name for view in orc.views()] == ["v", "above"]
        lives_on(orc)


def test_a_writer_that_keeps_views(own: TestServer, database: str, attack: Attack) -> None:
    with orchestrator.connect(database) as orc:
        orc.execute(TABLES)
        orc.create_view("v", QUERY, maintain="eager")
        orc.create_view("w", QUERY, strategy="recompute", maintain="on_commit")
    for lock in (f"{GATE}", "idivm.lock_class(), 2"):
        cut_short(
            own,
            database,
            attack,
            f"SELECT pg_advisory_xact_lock({lock})",
            lambda o: o.connection.execute("UPDATE t SET n = n + 1 WHERE id < 9"),
        )
        with recovered(database) as orc:
            assert all(differences(orc.connection, name) == [] for name in ("v", "w"))


@pytest.mark.parametrize("after", [1, 4, 16, 64])
def test_statement_timeout_anywhere(own: TestServer, database: str, after: int) -> None:
    """Each statement of idivm's that takes longer fails; which, the machine decides."""
    stood_up(database, "id")
    with orchestrator.connect(database) as orc:
        orc.execute(f"SET statement_timeout = '{after}ms'")
        for act in (
            lambda: orc.refresh(),
            lambda: orc.create_view("more", QUERY),
            lambda: orc.alter_view("above", maintain="eager"),
            lambda: orc.connection.execute("UPDATE t SET n = n + 1"),
            lambda: orc.drop_view("above"),
        ):
            with suppress(IdivmError, psycopg.Error):
                act()
    with recovered(database) as orc:
        lives_on(orc)


def test_migrate(own: TestServer, attack: Attack) -> None:
    """What changed is applied as a whole or not at all, and the next connection goes on."""
    with own.database(migrated=False) as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            migrate(connection, replace(shipped(), declarations=""))
        holder = psycopg.connect(dsn)
        holder.execute("LOCK TABLE idivm.declarations IN SHARE MODE")
        watcher = psycopg.connect(dsn, autocommit=True)
        victim = psycopg.connect(dsn, autocommit=True)
        pid = victim.info.backend_pid

        def run() -> None:
            with suppress(IdivmError, psycopg.Error):
                migrate(victim)

        thread = threading.Thread(target=run)
        thread.start()
        waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = %s AND NOT granted)"
        until(lambda: watcher.execute(waiting, [pid]).fetchone() == (True,))
        attack(own, pid, watcher)
        thread.join(60)
        if attack is kill:
            until(lambda: not answers(watcher))
        for connection in (holder, watcher, victim):
            with suppress(psycopg.Error):
                connection.close()

        def goes_on() -> bool:
            with suppress(IdivmError, psycopg.Error):
                orchestrator.connect(dsn).close()
                return True
            return False

        until(goes_on)
        with recovered(dsn) as orc:
            orc.execute(TABLES)
            lives_on(orc)


def test_a_transaction_prepared_before_a_crash_lost_its_rows_of_unlogged_tables(own, database):
    with orchestrator.connect(database) as orc:
        orc.execute(
            f"{TABLES}; CREATE UNLOGGED TABLE u (id int PRIMARY KEY, k int); INSERT INTO u VALUES (1, 1)"
        )
        orc.create_view("v", "SELECT k, count(*) AS n FROM u GROUP BY k")
        orc.connection.execute("BEGIN; INSERT INTO u VALUES (2, 1); PREPARE TRANSACTION 'before'")
    cut_short(own, database, kill, "LOCK TABLE t", lambda orc: orc.connection.execute("TABLE t"))
    with orchestrator.connect(database) as orc:
        orc.execute("INSERT INTO u VALUES (3, 1)")
        [report] = orc.refresh()
        assert report.recomputed
        assert orc.connection.execute("TABLE v").fetchall() == [(1, 1)]
        orc.connection.execute("COMMIT PREPARED 'before'")
        orc.refresh()
        assert differences(orc.connection, "v") == []
        assert orc.view("v").status == "ready"
        # From here on, the view follows changes again.
        orc.connection.execute("BEGIN; INSERT INTO u VALUES (4, 1); PREPARE TRANSACTION 'after'")
        orc.execute("INSERT INTO u VALUES (5, 1)")
        [report] = orc.refresh()
        assert not report.recomputed
        orc.connection.execute("COMMIT PREPARED 'after'")
        orc.connection.execute("CALL idivm.refresh_all()")
        assert orc.connection.execute("TABLE v").fetchall() == [(1, 3)]
