"""Cancels that arrive early or late: sessions keep no locks, and threads end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from interrupting import interrupted
from psycopg import Connection
from psycopg.errors import QueryCanceled
from stepping import until

import orchestrator
from orchestrator.api import Orchestrator
from orchestrator.catalog import streams
from orchestrator.catalog.loads import LOCK_CLASS
from orchestrator.errors import CancelledError
from orchestrator.runtime.serve import Server
from orchestrator.session_locks import session_lock

pytestmark = pytest.mark.integration

KEY = "7001, %s::integer"


class Hasty(Connection[Any]):
    """A connection on which a cancel arrives with each statement that contains `at`, once."""

    at = ""
    is_late = False

    def execute(self, query: Any, *args: Any, **options: Any) -> Any:
        text = query if isinstance(query, str) else query.as_string(self)
        if not self.at or self.at not in text:
            return super().execute(query, *args, **options)
        self.at = ""
        if self.is_late:
            super().execute(query, *args, **options)
        raise QueryCanceled("canceling statement due to user request")


@pytest.fixture
def hasty(dsn: str) -> Any:
    with Hasty.connect(dsn, autocommit=True) as connection:
        yield connection


def advisory(connection: Connection[Any], lock_class: int = 7001) -> list[Any]:
    return connection.execute(
        "SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND classid = %s::oid", [lock_class]
    ).fetchall()


def test_a_cancel_does_not_keep_a_lock(hasty: Hasty) -> None:
    hasty.at = "pg_advisory_unlock"
    with session_lock(hasty, KEY, [1]):
        assert advisory(hasty) == [(1,)]
    assert advisory(hasty) == []


@pytest.mark.parametrize("wait", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_a_cancel_while_the_lock_is_taken(hasty: Hasty, late: bool, wait: bool) -> None:
    notices = []
    hasty.add_notice_handler(notices.append)
    hasty.at, hasty.is_late = "advisory_lock", late
    with pytest.raises(QueryCanceled), session_lock(hasty, KEY, [-1], wait=wait):
        pass
    assert advisory(hasty) == []
    assert notices == []


@pytest.mark.parametrize(
    "at", ["pg_advisory_lock", "SELECT batch", "DELETE FROM idivm.streams", "pg_advisory_unlock"]
)
@pytest.mark.parametrize("late", [False, True])
def test_a_cancel_does_not_keep_a_stream(hasty: Hasty, at: str, late: bool) -> None:
    """Neither while a stream is started, nor while it is removed."""
    hasty.execute("CREATE TABLE t (id int)")
    [relation] = hasty.execute("SELECT 't'::regclass::oid").fetchone() or ()
    hasty.at, hasty.is_late = at, late
    for _ in range(2):
        with suppress(QueryCanceled), streams.started(hasty, "s", relation, "files"):
            assert len(advisory(hasty, LOCK_CLASS)) == 1
        assert advisory(hasty, LOCK_CLASS) == []
    with suppress(QueryCanceled):
        streams.remove(hasty, "s")
    assert advisory(hasty, LOCK_CLASS) == []


class Deaf(Connection[Any]):
    """A connection whose first cancel arrives between two statements."""

    cancels = 0

    def cancel(self) -> None:
        self.cancels += 1
        if self.cancels > 1:
            super().cancel()


def test_serve_ends_though_a_cancel_came_too_early(dsn: str) -> None:
    """Its worker waits for a lock that nobody gives back."""
    with orchestrator.connect(dsn) as orc, psycopg.connect(dsn) as other:
        orc.execute(
            "CREATE TABLE t (id int PRIMARY KEY); CREATE VIEW v AS SELECT count(*) AS n FROM t"
        )
        orc.execute("INSERT INTO t VALUES (1)")
        other.execute("SELECT idivm.lock_views(ARRAY(SELECT id FROM idivm.views))")
        stop = threading.Event()
        server = Server(
            lambda: Deaf.connect(dsn, autocommit=True),
            lambda connection: None,
            lambda connection: [],
            lambda event: None,
            0.05,
            stop,
        )
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        until(
            lambda: orc.connection.execute(
                "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()"
            ).fetchone()
        )
        stop.set()
        thread.join(30)
        assert not thread.is_alive()


TABLE = "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1)"
SOON = "SELECT idivm.create_view('{}', 'SELECT n, count(*) AS c FROM t GROUP BY n')"
VIEW = "CREATE VIEW {} AS SELECT n, count(*) AS c FROM t GROUP BY n"
REPLACED = [VIEW.format(name).replace("VIEW", "OR REPLACE VIEW") for name in "ab"]

WHOLE: dict[str, tuple[list[str], str, Callable[[Orchestrator], object]]] = {
    "plan": ([SOON.format("a"), SOON.format("b")], "CREATE VIEW", lambda orc: orc.plan()),
    "refresh": ([SOON.format("a"), SOON.format("b")], "CREATE VIEW", lambda orc: orc.refresh()),
    "doctor": (
        [VIEW.format("a"), VIEW.format("b"), "DELETE FROM idivm.watermarks"],
        "UPDATE idivm.views SET strategy",
        lambda orc: orc.doctor(),
    ),
    "script": ([], "ANALYZE", lambda orc: orc.execute("; ".join(REPLACED))),
    "restore": (
        [VIEW.format("a"), VIEW.format("b"), "DROP TABLE t CASCADE", TABLE],
        "CREATE VIEW",
        lambda orc: orc.restore(),
    ),
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("late", [False, True])
def test_a_cancel_ends_the_whole_call(orc: Orchestrator, name: str, late: bool) -> None:
    """It reaches a statement of the first view, or comes between two statements."""
    before, seen, act = WHOLE[name]
    orc.execute(TABLE)
    for statement in before:
        orc.execute(statement)

    def has_come(_: int, text: str) -> bool:
        if orc.connection.is_cancelled or seen not in text:
            return False
        orc.connection.is_cancelled = True
        return not late

    with pytest.raises(CancelledError), interrupted(has_come):
        act(orc)
    assert len(orc.views()) <= (2 if name == "doctor" else 1)
    act(orc)
    assert [report.equal for report in orc.check()] == [True, True]
