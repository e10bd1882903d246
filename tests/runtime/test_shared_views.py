"""Eager views that writers share: nobody waits, every read is current, and writers keep the pending part small."""

from __future__ import annotations

import random
import threading
from typing import Any

import psycopg
import pytest
from bank import CHANGES, TABLES, VIEWS, kind, number_of, wrong
from psycopg import IsolationLevel
from psycopg.sql import SQL, Identifier, Literal
from stepping import Session, differences, until

pytestmark = pytest.mark.integration

SHARED = ("sums", "whole", "visits", "kinds")


@pytest.fixture(params=["plpgsql", pytest.param("c", marks=pytest.mark.slow)])
def capture_form(request):
    return request.param


@pytest.fixture
def bank(orc):
    orc.execute(TABLES)
    for name in SHARED:
        orc.create_view(name, VIEWS[name], maintain="eager")
    return orc


@pytest.fixture
def session(connect):
    return lambda level=None: Session(connect(), level)


def shared(orc: Any) -> set[str]:
    rows = orc.connection.execute(
        "SELECT relation::text FROM idivm.views v WHERE idivm.is_shared(v)"
    )
    return {name for (name,) in rows}


def settle(connection: psycopg.Connection[Any], *names: str) -> None:
    """Write nothing until the contents are current: beside other transactions, a session folds now and then."""

    def settled() -> bool:
        connection.execute("UPDATE teller SET note = note WHERE false")
        connection.execute("UPDATE visit SET what = what WHERE false")
        return {kind(connection, name) for name in names} == {"N"}

    until(settled)


def test_which_views_are_shared(bank):
    """Groups of one table whose sums add up, and its selected rows; not what may fail, a join, a maximum."""
    bank.create_view("largest", "SELECT max(balance) AS m FROM teller", maintain="eager")
    bank.create_view("joined", VIEWS["joined"], maintain="eager")
    bank.create_view("rich", VIEWS["rich"], maintain="eager")
    bank.create_view("alone", VIEWS["sums"], maintain="eager", shared="off")
    bank.create_view("raising", VIEWS["sums"], maintain="eager", on_error="raise")
    bank.create_view("fed", VIEWS["sums"], maintain="eager", feed="on")
    bank.create_view("stored", VIEWS["sums"], maintain="eager", relation="table")
    bank.create_view("above", "SELECT sum(n) AS n FROM alone", maintain="eager")
    assert shared(bank) == set(SHARED)


@pytest.mark.parametrize(
    ("group", "is_shared"),
    [
        ("n % 3", True),
        ("(n + 1) / 10", True),
        ("at::date", True),
        ("date_trunc('month', at)::date", True),
        ("date_trunc('day', at)::date::text", True),
        ("(n * 2)::text || 'x'", True),
        ("n / (n - 5)", False),
        ("n % -1", False),
        ("word::int", False),
        ("(n || word)::bigint", False),
        ("at::text::date", False),
        ("coalesce(word, '1')::numeric", False),
    ],
)
def test_views_over_expressions_that_cannot_fail_are_shared(orc, group, is_shared):
    """Common groups of dashboards, such as days and buckets of numbers, are among them."""
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, n int, at timestamp, word text)")
    orc.create_view("v", f"SELECT {group} AS g, count(*) AS n FROM t GROUP BY 1", maintain="eager")
    assert shared(orc) == ({"v"} if is_shared else set())
    orc.execute(
        "INSERT INTO t SELECT i, i + 5, '2024-02-28'::date + i, i::text FROM generate_series(1, 9) AS i"
    )
    assert differences(orc.connection, "v") == []


def test_every_read_is_current_and_the_content_follows(bank, connect):
    connection = connect(autocommit=True)
    for change in CHANGES:
        connection.execute(change)
        assert wrong(connection, *SHARED) == {}, change
        settle(connection, *shared(bank))
        with connection.transaction():
            connection.execute("UPDATE teller SET note = 'n' || tid % 5, balance = balance + 1")
            assert wrong(connection, *SHARED) == {}, change
    assert all(report.equal for report in bank.check())


@pytest.mark.parametrize("level", [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ])
def test_writers_of_one_group_do_not_wait(bank, session, level):
    """The first to commit leaves the other's change; the second one folds it in, or the next writer does."""
    first, second = session(level), session(level)
    first("UPDATE teller SET balance = balance + 1 WHERE tid = 1")
    second("SET LOCAL lock_timeout = '10s'; UPDATE teller SET balance = balance + 1 WHERE tid = 8")
    for writer in (first, second):
        assert wrong(writer.connection, *SHARED) == {}
    first.commit()
    assert wrong(second.connection, *SHARED) == {}
    assert wrong(bank.connection, *SHARED) == {}
    second.commit()
    assert wrong(bank.connection, *SHARED) == {}
    bank.execute("UPDATE teller SET balance = 2 WHERE tid = 3")
    settle(bank.connection, "sums")
    assert all(report.equal for report in bank.check())


def test_a_fold_leaves_what_its_snapshot_does_not_see(bank, session):
    """A change that commits while a writer folds is not consumed, whatever its statements see."""
    writer, other = session(), session()
    number = number_of(bank.connection, "sums")
    writer("UPDATE teller SET balance = balance + 1 WHERE tid = 1")
    writer(
        "CREATE TEMP TABLE mark ON COMMIT DROP AS SELECT mark FROM idivm.watermarks"
        f" WHERE view = {number};"
        " UPDATE mark SET mark.upto = pg_current_snapshot()"
    )
    writer(f"SELECT pg_advisory_xact_lock(idivm.lock_class(), {number})")
    other("UPDATE teller SET balance = balance + 100 WHERE tid = 8")
    other.commit()
    writer(f"SELECT (r).* FROM mark, idivm.run_program({number}, mark, false, false) AS r")
    writer(
        "UPDATE idivm.watermarks w SET mark.snapshot = (m.mark).upto, mark.own_xid = pg_current_xact_id(),"
        f" mark.own_marks = idivm.own_marks({number}) FROM mark AS m WHERE view = {number}"
    )
    writer("DROP TABLE mark")
    assert wrong(writer.connection, "sums") == {}
    writer.commit()
    assert wrong(bank.connection, "sums") == {}
    settle(bank.connection, "sums")
    assert all(report.equal for report in bank.check())


@pytest.mark.slow
def test_writers_in_opposite_orders_end(bank, session):
    """No views add a deadlock to two transactions that write the same tables in opposite orders."""
    first, second = session(), session()
    first("UPDATE teller SET balance = balance + 1 WHERE tid = 1")
    second("INSERT INTO visit VALUES (2, 'w1')")
    first("SET LOCAL lock_timeout = '10s'; INSERT INTO visit VALUES (2, 'w1')")
    second("SET LOCAL lock_timeout = '10s'; UPDATE teller SET balance = balance + 1 WHERE tid = 8")
    first.commit()
    second.commit()
    assert wrong(bank.connection, *SHARED) == {}


def test_a_large_statement_and_a_truncation(bank, connect):
    """Both are in the content at once, as nobody else writes the table."""
    connection = connect(autocommit=True)
    connection.execute(
        "INSERT INTO teller SELECT g, g % 9, 1, 'n' || g % 3 FROM generate_series(1000, 9000) AS g"
    )
    settle(connection, "sums")
    connection.execute("TRUNCATE teller")
    settle(connection, "sums")
    assert wrong(connection, *SHARED) == {}
    with connection.transaction():
        connection.execute("INSERT INTO teller VALUES (1, 1, 1, 'x'); TRUNCATE teller")
        assert wrong(connection, *SHARED) == {}
        connection.execute("INSERT INTO teller VALUES (2, 1, 1, 'x')")
        assert wrong(connection, *SHARED) == {}
    assert wrong(connection, *SHARED) == {}
    assert all(report.equal for report in bank.check())


def test_a_truncation_beside_a_writer(bank, session):
    """Reads run the query until a refresh recomputes the view; writers wait for nobody."""
    emptier, writer = session(), session()
    emptier("TRUNCATE teller")
    writer("INSERT INTO visit VALUES (2, 'w1')")
    emptier.commit()
    writer("INSERT INTO teller VALUES (1, 1, 1, 'x')")
    bank.execute("DELETE FROM teller WHERE tid = 2; INSERT INTO teller VALUES (3, 1, 1, 'x')")
    assert wrong(bank.connection, *SHARED) == {}
    writer.commit()
    assert wrong(bank.connection, *SHARED) == {}
    bank.refresh()
    settle(bank.connection, "sums")
    assert all(report.equal for report in bank.check())


def test_views_take_turns_below_a_table_of_many(bank, connect):
    """A commit folds four of many views, whichever come next, and all of them once too many rows wait."""
    for number in range(6):
        bank.create_view(f"turn_{number}", VIEWS["sums"], maintain="eager")
    connection = connect(autocommit=True)
    folds = "SELECT sum(refreshes)::integer FROM idivm.watermarks"
    chosen = (
        "SELECT idivm.views_to_fold(ARRAY(SELECT -v.id FROM idivm.views v WHERE idivm.is_shared(v)"
        " AND v.query = (SELECT query FROM idivm.views WHERE relation = 'sums'::regclass)))"
    )
    turns = set()
    for _ in range(10):
        (before,) = connection.execute(folds).fetchone()
        connection.execute("UPDATE teller SET balance = balance + 1 WHERE tid = 1")
        (after,) = connection.execute(folds).fetchone()
        assert after - before <= 4
        (views,) = connection.execute(chosen).fetchone()
        assert len(views) == 4
        turns.update(views)
    assert wrong(connection, *shared(bank)) == {}
    assert len(turns) > 4
    with connection.transaction():
        connection.execute(
            "INSERT INTO teller SELECT g, g % 9, 1, 'n' FROM generate_series(1000, 2500) AS g"
        )
        (views,) = connection.execute(chosen).fetchone()
        assert len(views) == 7
    settle(connection, *(f"turn_{number}" for number in range(6)))
    assert all(report.equal for report in bank.check())


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["COMMIT PREPARED", "ROLLBACK PREPARED"])
def test_a_prepared_transaction_holds_no_view(bank, connect, ending):
    connection = connect(autocommit=True)
    if connection.execute("SHOW max_prepared_transactions").fetchone() == ("0",):
        pytest.skip("the server prepares no transactions")
    name = f"shared_{connection.info.dbname}"
    connection.execute("BEGIN")
    connection.execute("UPDATE teller SET balance = balance + 1 WHERE tid = 1")
    connection.execute(SQL("PREPARE TRANSACTION {}").format(Literal(name)))
    connection.execute("SET lock_timeout = '10s'")
    connection.execute("UPDATE teller SET balance = balance + 1 WHERE tid = 8")
    assert wrong(connection, *SHARED) == {}
    bank.refresh()
    connection.execute(SQL(ending + " {}").format(Literal(name)))
    assert wrong(connection, *SHARED) == {}
    assert all(report.equal for report in bank.check())


@pytest.mark.slow
def test_set_constraints_takes_no_lock_that_lasts(bank, session):
    """A transaction that goes on after it must not keep others from refreshing the view."""
    writer = session()
    writer(
        "CREATE FUNCTION at_once() RETURNS void LANGUAGE plpgsql AS"
        " 'BEGIN SET CONSTRAINTS ALL IMMEDIATE; END'"
    )
    writer.commit()
    for statement in ("SET CONSTRAINTS ALL IMMEDIATE", "SELECT at_once()"):
        writer("UPDATE teller SET balance = balance + 1 WHERE tid = 1")
        writer(statement)
        bank.execute("SET lock_timeout = '10s'")
        bank.refresh()
        writer("UPDATE teller SET balance = balance + 1 WHERE tid = 1")
        writer.commit()
        assert wrong(bank.connection, *SHARED) == {}


def test_a_refresh_within_a_transaction_makes_no_writer_wait(bank, session):
    refresher, writer = session(), session()
    refresher("UPDATE teller SET balance = balance + 1 WHERE tid = 1")
    refresher("SELECT * FROM idivm.refresh('sums')")
    writer("SET LOCAL lock_timeout = '10s'; UPDATE teller SET balance = balance + 1 WHERE tid = 8")
    writer.commit()
    assert wrong(refresher.connection, *SHARED) == {}
    refresher("UPDATE teller SET balance = balance + 1 WHERE tid = 1")
    assert wrong(refresher.connection, *SHARED) == {}
    refresher.commit()
    assert wrong(bank.connection, *SHARED) == {}


@pytest.mark.slow
def test_deferred_and_eager_views_above(bank, connect):
    """A view above reads the stored content, so a refresh brings it up to date first; an eager one ends the sharing."""
    connection = connect(autocommit=True)
    bank.create_view("high", "SELECT count(*) AS n, sum(total) AS s FROM sums")
    for change in CHANGES[:5]:
        connection.execute(change)
        bank.refresh("high")
        assert differences(connection, "high") == []
    bank.create_view("higher", "SELECT max(total) AS m FROM sums", maintain="eager")
    for change in CHANGES[5:]:
        connection.execute(change)
        assert differences(connection, "higher") == [], change
        assert wrong(connection, *SHARED) == {}, change
    bank.execute("DROP VIEW higher")
    connection.execute("INSERT INTO teller VALUES (500, 1, 1, 'x')")
    assert wrong(connection, *SHARED) == {}
    bank.refresh()
    assert differences(connection, "high") == []


@pytest.mark.slow
def test_changes_of_the_mode(bank, connect):
    connection = connect(autocommit=True)
    for options in (
        {"shared": "off"},
        {"maintain": "deferred"},
        {"maintain": "eager", "shared": "auto"},
        {"feed": "on"},
        {"feed": "off"},
        {"on_error": "raise"},
        {"on_error": "continue"},
        {"maintain": "on_read"},
        {"maintain": "eager"},
    ):
        bank.alter_view("sums", **options)
        connection.execute("UPDATE teller SET balance = balance + 1")
        if options.get("maintain") == "deferred":
            bank.refresh()
        assert wrong(connection, "sums") == {}, options
        given = {**bank.view("sums").options}
        is_shared = (
            given["maintain"] == "eager"
            and given.get("shared", "auto") == "auto"
            and given.get("feed", "off") == "off"
            and given.get("on_error", "continue") == "continue"
        )
        assert ("sums" in shared(bank)) == is_shared, options
    assert all(report.equal for report in bank.check())


@pytest.mark.slow
def test_a_paused_view_is_current_and_stays_as_it_is(bank, connect):
    connection = connect(autocommit=True)
    connection.execute("SELECT idivm.pause_view('sums')")
    connection.execute("UPDATE teller SET balance = balance + 1 WHERE tid = 1")
    assert kind(connection, "sums") == "C"
    assert wrong(connection, "sums") == {}
    connection.execute("SELECT idivm.resume_view('sums')")
    connection.execute("UPDATE teller SET balance = balance + 1 WHERE tid = 1")
    settle(connection, "sums")


@pytest.mark.slow
def test_a_table_that_loses_its_key(bank, connect):
    """The plan relies on the key, so reads run the query until the view is planned again."""
    connection = connect(autocommit=True)
    connection.execute("ALTER TABLE teller DROP CONSTRAINT teller_pkey")
    for _ in range(2):
        connection.execute("INSERT INTO teller VALUES (1, 1, 1, 'x'), (1, 1, 1, 'x')")
        assert wrong(connection, *SHARED) == {}
    bank.refresh()
    connection.execute("DELETE FROM teller WHERE tid = 1")
    assert wrong(connection, *SHARED) == {}
    assert all(report.equal for report in bank.check())


def test_a_session_that_leaves_the_view_to_others(bank, connect):
    """Where many write, most transactions leave nothing but their rows in the log."""
    connection = connect(autocommit=True)
    connection.execute("SET idivm.fold_after = '9999999999999'")
    for change in CHANGES[:3]:
        connection.execute(change)
        assert kind(connection, "sums") == "C"
        assert wrong(connection, *SHARED) == {}
    for table in ("writers", "commits"):
        rows = connection.execute(SQL("SELECT count(*) FROM idivm.{}").format(Identifier(table)))
        assert rows.fetchone() == (0,)
    connection.execute("SET idivm.fold_after = ''")
    connection.execute(CHANGES[3])
    connection.execute(CHANGES[4])
    settle(connection, "sums")


@pytest.mark.slow
def test_many_writers_at_once(bank, connect):
    """Writers at all levels, readers, and refreshes: no error but conflicts of the writers' own, and no difference."""
    failures: list[Exception] = []
    connections = [connect(autocommit=True) for _ in range(6)]

    def write(number: int, connection: psycopg.Connection[Any]) -> None:
        choose = random.Random(number)
        levels = [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ]
        connection.isolation_level = levels[number % 2]
        for _ in range(25):
            try:
                with connection.transaction():
                    for _ in range(choose.randint(1, 3)):
                        row = choose.randint(1, 40)
                        connection.execute(
                            "UPDATE teller SET balance = balance + 1, bid = %s WHERE tid = %s",
                            [choose.randint(1, 4), row],
                        )
                    connection.execute("INSERT INTO visit VALUES (2, 'w1')")
                    if choose.random() < 0.3:
                        connection.execute("SELECT * FROM idivm.refresh('visits')")
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                continue
            except psycopg.Error as error:
                failures.append(error)

    def read(connection: psycopg.Connection[Any]) -> None:
        try:
            for _ in range(15):
                assert wrong(connection, "sums", "visits", "kinds") == {}
        except (psycopg.Error, AssertionError) as error:
            failures.append(error)

    threads = [
        threading.Thread(target=write, args=(number, connection))
        for number, connection in enumerate(connections)
    ]
    readers = [threading.Thread(target=read, args=(connect(autocommit=True),)) for _ in range(2)]
    for thread in (*threads, *readers):
        thread.start()
    bank.refresh()
    for thread in (*threads, *readers):
        thread.join()
    assert failures == []
    assert wrong(bank.connection, *SHARED) == {}
    bank.execute("INSERT INTO visit VALUES (2, 'w1'); UPDATE teller SET balance = 0 WHERE tid = 1")
    assert all(report.equal for report in bank.check())
