"""An operation that is interrupted leaves its session as it was, and nothing that keeps others from working."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from interrupting import When, after, interrupted
from psycopg import errors
from psycopg.errors import QueryCanceled

from orchestrator.api import Orchestrator, connect
from orchestrator.errors import CancelledError, IdivmError, is_interruption

pytestmark = pytest.mark.integration

TABLES = """
CREATE TABLE t (id int PRIMARY KEY, k int, n int); INSERT INTO t SELECT i, i % 5, i FROM generate_series(1, 30) AS i;
CREATE TABLE u (id int PRIMARY KEY, k int, m int); INSERT INTO u SELECT i, i % 5, i FROM generate_series(1, 10) AS i
"""
SUMS = "SELECT k, sum(n) AS s FROM t GROUP BY k"
JOIN = "SELECT t.id, t.n, u.m FROM t JOIN u USING (k)"
TOWER = f"CREATE VIEW v AS {SUMS}; CREATE VIEW w AS SELECT count(*) AS c FROM v WHERE s > 9; CREATE VIEW j AS {JOIN}"
WAITING = f"SELECT idivm.create_view('p', '{SUMS}')"

STEP = 30
"""Each run interrupts one of so many statements, other ones each day."""


@pytest.fixture
def client(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A user's connection with settings of its own."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA own; SET search_path = public, own; SET work_mem = '5MB'")
        connection.execute("SET datestyle = 'German'; SET client_encoding = LATIN1")
        yield connection


def state_of(connection: psycopg.Connection[Any]) -> Any:
    """Everything of a session that an operation must leave as it was."""
    status = connection.info.transaction_status
    settings = connection.execute(
        "SELECT array_agg((name, setting) ORDER BY name) FROM pg_settings WHERE name NOT LIKE '%.%'"
    ).fetchone()
    locks = connection.execute(
        "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'"
    ).fetchone()
    return status, settings, locks


Act = Callable[[Orchestrator], object]


def creates(**options: Any) -> Act:
    return lambda orc: orc.create_view("x", JOIN, replace=True, **options)


def drops(orc: Orchestrator) -> None:
    orc.drop_view("x", if_exists=True)


def changes(orc: Orchestrator) -> None:
    orc.execute("UPDATE t SET n = n + 1 WHERE id < 5")


def waits(orc: Orchestrator) -> None:
    orc.drop_view("p", if_exists=True)
    orc.execute(WAITING)


OPERATIONS: dict[str, tuple[Act, Act]] = {
    "create deferred": (creates(), drops),
    "create eager": (creates(maintain="eager"), drops),
    "create on_read": (creates(maintain="on_read"), drops),
    "replace": (
        lambda orc: orc.create_view("v", f"{SUMS} HAVING sum(n) > 5", replace=True),
        lambda orc: orc.create_view("v", SUMS, replace=True),
    ),
    "alter": (
        lambda orc: orc.alter_view("j", maintain="eager"),
        lambda orc: orc.alter_view("j", maintain="deferred"),
    ),
    "drop": (
        lambda orc: orc.drop_view("x", if_exists=True),
        lambda orc: orc.create_view("x", JOIN, replace=True),
    ),
    "refresh": (lambda orc: orc.refresh(), changes),
    "check": (lambda orc: orc.check(), changes),
    "plan": (lambda orc: orc.plan(), waits),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("kind", [QueryCanceled, KeyboardInterrupt])
def test_any_statement(
    client: psycopg.Connection[Any], part: int, kind: type[BaseException], name: str
) -> None:
    orc = Orchestrator(client)
    orc.execute(TABLES)
    orc.execute(TOWER)
    act, prepare = OPERATIONS[name]
    before = state_of(client)
    at = 1 + part % STEP
    while True:
        prepare(orc)
        with (
            interrupted(lambda number, _, at=at: number == at, kind) as moment,
            suppress(IdivmError, KeyboardInterrupt),
        ):
            act(orc)
        assert state_of(client) == before, at
        client.execute("UPDATE t SET n = n + 1 WHERE id = 7; UPDATE u SET m = m + 1 WHERE id = 3")
        act(orc)
        assert [view.name for view in orc.unplanned_views()] == []
        assert all(report.equal for report in orc.check()), at
        if not moment.has_come:
            break
        at += STEP


@pytest.mark.parametrize("command", ["COMMIT", "ROLLBACK"])
def test_a_cancel_that_meets_the_end_of_a_transaction(orc: Orchestrator, command: str) -> None:
    before = state_of(orc.connection)
    with (
        pytest.raises(QueryCanceled),
        interrupted(lambda _, text: text == command),
        orc.connection.transaction(),
    ):
        if command == "ROLLBACK":
            raise QueryCanceled
    assert state_of(orc.connection) == before


def test_a_cancel_while_a_view_is_planned_leads_to_no_other_plan(orc: Orchestrator) -> None:
    orc.execute(TABLES)
    with pytest.raises(CancelledError), interrupted(lambda _, text: "pg_typeof" in text):
        orc.create_view("v", SUMS)
    assert orc.views() == []


def test_a_view_whose_tables_take_long_to_analyze(orc: Orchestrator) -> None:
    heard: list[str] = []
    orc.on_notice = heard.append
    orc.execute(TABLES)
    with interrupted(lambda _, text: text.startswith("ANALYZE")):
        orc.create_view("v", SUMS)
    assert heard == [
        "v was created, but its tables were not analyzed: canceling statement due to user request."
    ]
    assert [report.equal for report in orc.check()] == [True]


def test_a_cancel_is_no_refusal_of_a_view(orc: Orchestrator) -> None:
    """`idivm serve` tries a refused view again only after five minutes."""
    orc.execute(TABLES)
    orc.execute(WAITING)
    with interrupted(lambda _, text: text.startswith("CREATE VIEW")):
        [report] = orc.plan()
    assert "canceling statement" in (report.refusal or "")
    assert [view.refusal for view in orc.unplanned_views()] == [None]


@pytest.mark.parametrize(
    ("when", "kind"),
    [
        (lambda _, text: text.startswith("CREATE UNLOGGED TABLE"), QueryCanceled),
        (after("INSERT INTO idivm.loads", "COMMIT"), KeyboardInterrupt),
    ],
    ids=["staging", "begun"],
)
def test_an_interrupted_load_is_no_running_load(
    orc: Orchestrator, dsn: str, tmp_path: Path, when: When, kind: type[BaseException]
) -> None:
    orc.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE VIEW v AS SELECT count(*) FROM t")
    file = tmp_path / "rows.csv"
    file.write_text("id\n1\n2\n")
    before = state_of(orc.connection)
    with pytest.raises((CancelledError, KeyboardInterrupt)), interrupted(when, kind):
        orc.load(file, "t")
    assert state_of(orc.connection) == before
    with connect(dsn) as other:
        assert other.load(file, "t").tables[0].loaded == 2
        assert [report.equal for report in other.check()] == [True]


@pytest.mark.parametrize(
    ("name", "new"),
    [("create deferred", {"x"}), ("create eager", {"x"}), ("replace", set()), ("plan", {"p"})],
)
def test_an_interruption_just_after_the_publication_comes_too_late(
    orc: Orchestrator, name: str, new: set[str]
) -> None:
    """Ctrl-C meets a COMMIT that waits, for example for a standby, and takes effect nevertheless."""
    orc.execute(TABLES)
    orc.execute(TOWER)
    act, prepare = OPERATIONS[name]
    prepare(orc)
    with (
        pytest.raises(KeyboardInterrupt),
        interrupted(after("SET status = 'ready'", "COMMIT"), KeyboardInterrupt),
    ):
        act(orc)
    assert {view.name for view in orc.views()} == {"v", "w", "j"} | new
    orc.execute("UPDATE t SET n = n + 1")
    assert all(report.equal for report in orc.check())


@pytest.mark.parametrize(
    ("error", "interrupts"),
    [
        (errors.QueryCanceled, True),
        (errors.AdminShutdown, True),
        (errors.SerializationFailure, True),
        (errors.DeadlockDetected, True),
        (errors.LockNotAvailable, True),
        (errors.DivisionByZero, False),
        (errors.ObjectInUse, False),
    ],
)
def test_errors_that_no_view_causes(error: type[psycopg.Error], interrupts: bool) -> None:
    assert is_interruption(error()) is interrupts
    sentence = IdivmError("It failed.")
    sentence.__cause__ = error()
    assert is_interruption(sentence) is interrupts
