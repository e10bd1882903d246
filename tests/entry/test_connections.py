"""The Python interface over connections of others: nothing of theirs changes, whatever state they are in."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, namedtuple_row
from psycopg.types.json import set_json_loads
from psycopg_pool import ConnectionPool
from stepping import until

import idivm
from orchestrator.api import Orchestrator
from orchestrator.errors import DatabaseError, IdivmError, ServerError, UsageError

TOTALS = "SELECT k, sum(n) AS s FROM shop.t GROUP BY k"


@pytest.fixture
def shop(dsn: str) -> str:
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "CREATE SCHEMA shop; CREATE TABLE shop.t (id int PRIMARY KEY, k text, n int);"
            "INSERT INTO shop.t SELECT i, chr(97 + i % 3), i FROM generate_series(1, 9) AS i"
        )
    return dsn


def state_of(connection: psycopg.Connection[Any]) -> tuple[Any, ...]:
    """Everything of a connection that idivm must leave as it is."""
    with connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
        before = connection.info.transaction_status
        path = cursor.execute(
            "SELECT current_setting('search_path'), '{\"a\": 1}'::jsonb"
        ).fetchone()
        if before == TransactionStatus.IDLE and not connection.autocommit:
            connection.rollback()
    return (
        path,
        connection.autocommit,
        connection.row_factory,
        connection.isolation_level,
        connection.prepare_threshold,
        connection.cursor_factory,
        connection.info.encoding,
        connection.info.transaction_status,
        connection.adapters,
        connection.pgconn.notice_handler,
    )


def django(dsn: str) -> psycopg.Connection[Any]:
    """A connection as Django's: jsonb as text, client-side parameters, a schema of its own."""
    connection: psycopg.Connection[Any] = psycopg.connect(
        dsn, cursor_factory=psycopg.ClientCursor, prepare_threshold=None, autocommit=True
    )
    set_json_loads(lambda text: text, connection)
    connection.execute("SET search_path = shop")
    return connection


CONNECTIONS = {
    "django": django,
    "dict_row": lambda dsn: psycopg.connect(dsn, row_factory=dict_row),
    "namedtuple_row": lambda dsn: psycopg.connect(dsn, row_factory=namedtuple_row, autocommit=True),
    "latin1": lambda dsn: psycopg.connect(dsn, client_encoding="latin1", prepare_threshold=0),
}


@pytest.mark.parametrize("kind", CONNECTIONS)
def test_a_connection_of_somebody_else_stays_as_it_is(shop: str, kind: str) -> None:
    with CONNECTIONS[kind](shop) as connection:
        theirs: list[str] = []
        connection.add_notice_handler(lambda notice: theirs.append(str(notice.message_primary)))
        before = state_of(connection)
        orchestrator = Orchestrator(connection)
        notices: list[str] = []
        orchestrator.on_notice = notices.append
        created = orchestrator.create_view("shop.v", TOTALS, maintain="deferred")
        assert (created.maintain, created.strategy) == ("deferred", "id")
        orchestrator.execute(
            "UPDATE shop.t SET n = n + 1 WHERE id = 3; DO 'BEGIN RAISE NOTICE ''é''; END'"
        )
        [report] = orchestrator.refresh()
        assert report.changed == 1
        assert sorted(orchestrator.execute("TABLE shop.v")[0].rows) == [
            ("a", 19),
            ("b", 12),
            ("c", 15),
        ]
        assert [view.name for view in orchestrator.views()] == [created.name]
        assert all(report.equal for report in orchestrator.check())
        assert "strategy" in json.dumps(orchestrator.explain("shop.v").to_json())
        assert state_of(connection) == before
        connection.execute("DO 'BEGIN RAISE NOTICE ''theirs''; END'")
        assert ("é" in notices, theirs[-1], "theirs" in notices) == (True, "theirs", False)
        orchestrator.drop_view("shop.v")
        orchestrator.close()
        assert not connection.closed


def test_a_transaction_of_somebody_else_holds_everything(shop: str) -> None:
    with psycopg.connect(shop, row_factory=dict_row) as connection:
        orchestrator = Orchestrator(connection)
        orchestrator.create_view("shop.planned", TOTALS)
        connection.execute("SET search_path = shop")
        connection.commit()
        connection.execute("UPDATE t SET n = n + 1 WHERE id = 3")
        before = state_of(connection)
        assert connection.info.transaction_status == TransactionStatus.INTRANS
        view = orchestrator.create_view("v", TOTALS, columns=["letter", "sum"], maintain="eager")
        assert (view.name, view.status, view.maintain) == ("v", "not planned", "eager")
        assert orchestrator.view("planned").pending == 1
        assert {report.view: report.changed for report in orchestrator.refresh()} == {
            "planned": 1,
            "v": 0,
        }
        assert orchestrator.execute("SELECT * FROM v WHERE letter = 'a'")[0].rows == [("a", 19)]
        assert orchestrator.alter_view("v", maintain="deferred").maintain == "deferred"
        assert orchestrator.create_view("v", TOTALS, replace=True).status == "not planned"
        orchestrator.alter_view("planned", log_limit="5MB")
        orchestrator.drop_view("planned")
        assert state_of(connection) == before
        connection.rollback()
        assert [view.name for view in orchestrator.views()] == ["planned"]
        assert orchestrator.unplanned_views() == []
        with connection.transaction():
            orchestrator.execute("CREATE VIEW shop.v AS SELECT id FROM shop.t")
            with pytest.raises(DatabaseError, match="does not exist"):
                orchestrator.create_view("w", "SELECT a FROM nowhere")
            assert connection.info.transaction_status == TransactionStatus.INTRANS
        [report] = orchestrator.plan()
        assert report.strategy == "id"


ODD = {
    "constraint_exclusion": "on",
    "check_function_bodies": "off",
    "client_min_messages": "info",
    "plan_cache_mode": "force_custom_plan",
    "enable_seqscan": "off",
    "enable_nestloop": "off",
    "enable_indexscan": "off",
    "extra_float_digits": "0",
    "join_collapse_limit": "3",
    "max_parallel_workers_per_gather": "1",
    "lock_timeout": "17s",
    "row_security": "off",
}
"""Settings that idivm changes for statements of its own."""


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("accelerate", ["on", "off"])
def test_the_settings_of_a_transaction_stay_as_they_are(
    shop: str, level: str, accelerate: str
) -> None:
    query = "SELECT name, setting FROM pg_settings WHERE name <> 'default_text_search_config'"
    with psycopg.connect(shop, autocommit=True) as own:
        orc = Orchestrator(own)
        own.execute(
            "CREATE FUNCTION shop.twice(n int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 2 * n';"
            "CREATE VIEW shop.plain AS SELECT k, shop.twice(n) AS n FROM shop.t"
        )
        orc.execute("CREATE VIEW shop.late AS SELECT k, sum(n) AS s FROM shop.plain GROUP BY k")
        orc.execute(
            "CREATE VIEW shop.high WITH (maintain = eager) AS SELECT max(n) FROM shop.plain"
        )
        own.execute(f"SET idivm.accelerate = {accelerate}")
        for broken in (False, True):
            own.execute(f"BEGIN ISOLATION LEVEL {level}")
            for name, value in ODD.items():
                own.execute(f"SET LOCAL {name} = '{value}'")  # type: ignore[arg-type]
            if broken:
                own.execute("ALTER TABLE shop.t DROP CONSTRAINT t_pkey")
            before = own.execute(query).fetchall()
            for act in (
                lambda: own.execute("UPDATE shop.t SET n = n + 1"),
                lambda: own.execute("SELECT * FROM idivm.refresh('shop.late')"),
                lambda: orc.refresh("shop.late"),
                lambda: orc.explain("shop.late"),
                lambda: orc.doctor(contents=False),
            ):
                with suppress(IdivmError):
                    act()
                assert own.info.transaction_status == TransactionStatus.INTRANS
                assert set(own.execute(query).fetchall()) ^ set(before) == set()
            own.execute("ROLLBACK")


def test_a_connection_of_a_pool_goes_back_in_working_order(shop: str) -> None:
    with ConnectionPool(shop, min_size=1, max_size=1, kwargs={"row_factory": dict_row}) as pool:
        for number in range(2):
            with pool.connection() as connection, Orchestrator(connection) as orchestrator:
                orchestrator.create_view(f"shop.v{number}", TOTALS)
        with pool.connection() as connection:
            row = connection.execute("SELECT count(*) AS views FROM idivm.views").fetchone()
            assert row == {"views": 2}


def test_a_database_without_a_catalog_says_what_to_do(plain_dsn: str) -> None:
    with psycopg.connect(plain_dsn) as connection:
        connection.execute("CREATE TABLE t (a int)")
        orchestrator = Orchestrator(connection)
        with pytest.raises(UsageError, match="idivm init"):
            orchestrator.views()
        # The open transaction does not hold the installation up.
        orchestrator.prepare()
        assert orchestrator.create_view("v", "SELECT a FROM t").status == "not planned"
        connection.commit()
        orchestrator.prepare()
        assert orchestrator.plan()[0].strategy == "id"


def test_what_is_no_connection_of_psycopg_is_refused() -> None:
    with pytest.raises(UsageError, match="psycopg 3"):
        Orchestrator(object())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"mysql.*PostgreSQL"):
        idivm.connect("mysql+pymysql://me@here/db")


def test_a_view_in_another_thread_is_cancelled(shop: str) -> None:
    slow = "SELECT k, count(*) AS c FROM shop.t, generate_series(1, 200000000) GROUP BY k"
    with idivm.connect(shop) as orchestrator, psycopg.connect(shop, autocommit=True) as watcher:
        raised: list[BaseException] = []

        def create() -> None:
            try:
                orchestrator.create_view("shop.slow", slow)
            except idivm.IdivmError as error:
                raised.append(error)

        thread = threading.Thread(target=create)
        thread.start()
        busy = "SELECT FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'DO %%' AND pid <> pg_backend_pid()"
        until(lambda: watcher.execute(busy).fetchone() is not None)
        orchestrator.cancel()
        thread.join()
        assert isinstance(raised[0], idivm.CancelledError)
        assert orchestrator.views() == []


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def test_the_asynchronous_interface(shop: str, loop: asyncio.AbstractEventLoop) -> None:
    async def work() -> None:
        async with await idivm.AsyncOrchestrator.connect(shop) as own:
            view = await own.create_view("shop.v", TOTALS, maintain="eager")
            assert view.strategy == "id"
            rows = [row async for row in own.enumerate("shop.v", {"k": "a"})]
            assert rows == [("a", 18)]
            together = await asyncio.gather(own.check(), own.views(), own.explain("shop.v"))
            assert together[0][0].equal
            slow = own.execute("SELECT pg_sleep(600)")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(slow, 0.2)
            assert len(await own.views()) == 1
        async with await psycopg.AsyncConnection.connect(shop, row_factory=dict_row) as theirs:
            async with theirs.transaction():
                lent = idivm.AsyncOrchestrator(theirs)
                assert (await lent.create_view("shop.w", TOTALS)).status == "not planned"
            cursor = await theirs.execute("SELECT count(*) AS views FROM idivm.unplanned_views")
            assert await cursor.fetchone() == {"views": 1}

    loop.run_until_complete(work())


def test_results_logs_and_progress_are_for_people(
    shop: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "idivm")
    with idivm.connect(shop) as orchestrator:
        stages: list[idivm.Progress] = []
        orchestrator.on_progress = stages.append
        view = orchestrator.create_view("shop.v", TOTALS)
        assert [progress.stage for progress in stages] == [
            "analyze",
            "capture",
            "compute",
            "index",
            "publish",
        ]
        assert [progress.fraction for progress in stages] == [0.0, 0.2, 0.4, 0.6, 0.8]
        assert caplog.messages[:2] == ["v: analyze", "v: capture"]
        assert repr(view).startswith("ViewInfo('shop.v', maintain='deferred', strategy='id'")
        many = orchestrator.execute("SELECT i, repeat('<x', i) FROM generate_series(1, 99) AS i")[0]
        explanation = orchestrator.explain("shop.v")
        for result in (view, many, explanation, *orchestrator.refresh(), *orchestrator.check()):
            lines = repr(result).splitlines()
            assert len(lines) <= 24
            assert all(len(line) <= 250 for line in lines)
        assert "... 79 more rows" in repr(many)
        assert "<x" not in many._repr_html_()
        assert TOTALS in view._repr_html_()
        assert "strategy id" in explanation._repr_html_()
        orchestrator.execute("DO 'BEGIN RAISE WARNING ''careful''; END'")
        assert caplog.records[-1].levelname == "WARNING"


def test_a_lost_connection_is_a_sentence(shop: str) -> None:
    with psycopg.connect(shop) as connection:
        orchestrator = Orchestrator(connection)
    with pytest.raises(ServerError, match="closed"):
        orchestrator.views()
