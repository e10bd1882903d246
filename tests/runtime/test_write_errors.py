"""A view that cannot follow a write does not refuse it: the view stays as it was, and says why."""

import pytest
from psycopg.errors import (
    DivisionByZero,
    LockNotAvailable,
    QueryCanceled,
    SerializationFailure,
)
from stepping import differences

from orchestrator.errors import DatabaseError, IdivmError

pytestmark = pytest.mark.integration

MODES = ("eager", "on_commit")


@pytest.fixture(params=MODES)
def inverse(request, orc):
    """A view whose query fails on a zero, one above it, and one that has nothing to do with it."""
    orc.execute("CREATE TABLE d (id int PRIMARY KEY, n int); INSERT INTO d VALUES (1, 1)")
    orc.create_view("inverse", "SELECT id, 10 / n AS q FROM d", maintain=request.param)
    orc.create_view("above", "SELECT sum(q) AS q FROM inverse", maintain=request.param)
    orc.create_view("plain", "SELECT id, n FROM d", maintain=request.param)
    return orc


def content(orc, view):
    return sorted(orc.connection.execute(f"TABLE {view}").fetchall())


def errors(orc):
    return {view.name: (view.sqlstate, view.error) for view in orc.views() if view.error}


def due_again(orc):
    """Has the next write try again, as it does when a minute has passed."""
    orc.connection.execute("UPDATE idivm.view_errors SET at = at - interval '1 hour'")


def test_the_write_stands_and_the_view_says_why(inverse, connect):
    writer, warnings = connect(), []
    writer.add_notice_handler(lambda notice: warnings.append(notice.message_primary))
    writer.execute("INSERT INTO d VALUES (2, 0)")
    assert content(inverse, "plain") == [(1, 1), (2, 0)]
    assert content(inverse, "inverse") == [(1, 10)]
    assert content(inverse, "above") == [(10,)]
    assert errors(inverse) == {
        "inverse": ("22012", "division by zero"),
        "above": ("55000", "it reads public.inverse, which could not be refreshed"),
    }
    (warning,) = warnings
    assert "inverse could not follow this change, and stays as it was: division by zero" in warning
    assert inverse.view("inverse").failed_at is not None
    # Others follow, and are not told again.
    writer.execute("INSERT INTO d VALUES (3, 5)")
    assert (content(inverse, "plain")[-1], content(inverse, "inverse")) == ((3, 5), [(1, 10)])
    assert len(warnings) == 1
    with pytest.raises(IdivmError, match="division by zero"):
        inverse.refresh("inverse")


def test_a_write_heals_it(inverse, connect):
    writer = connect()
    writer.execute("INSERT INTO d VALUES (2, 0)")
    writer.execute("UPDATE d SET n = 5 WHERE id = 2")
    assert content(inverse, "inverse") == [(1, 10)]
    due_again(inverse)
    writer.execute("INSERT INTO d VALUES (3, 2)")
    assert content(inverse, "inverse") == [(1, 10), (2, 2), (3, 5)]
    assert (content(inverse, "above"), errors(inverse)) == ([(17,)], {})


def test_a_refresh_heals_it(inverse, connect):
    connect().execute(
        "INSERT INTO d VALUES (2, 0); DELETE FROM d WHERE n = 0; INSERT INTO d VALUES (3, 2)"
    )
    inverse.refresh()
    assert (content(inverse, "inverse"), content(inverse, "above")) == ([(1, 10), (3, 5)], [(15,)])
    assert errors(inverse) == {}
    assert all(report.equal for report in inverse.check())


def test_the_locks_of_a_view_that_failed_are_held_to_the_end(inverse, connect):
    first, second = connect(autocommit=False), connect()
    first.execute("INSERT INTO d VALUES (2, 0)")
    if inverse.view("inverse").maintain == "on_commit":
        first.execute("SET CONSTRAINTS ALL IMMEDIATE")
    (number,) = first.execute("SELECT id FROM idivm.views WHERE name LIKE '%inverse%'").fetchone()
    held = "SELECT pg_try_advisory_xact_lock(idivm.lock_class(), %s)"
    assert second.execute(held, [number]).fetchone() == (False,)
    first.commit()
    assert second.execute(held, [number]).fetchone() == (True,)


def test_savepoints_and_rollbacks_take_the_mark_back(inverse, connect):
    writer = connect()
    with writer.transaction():
        writer.execute(
            "SAVEPOINT here; INSERT INTO d VALUES (2, 0); ROLLBACK TO here; INSERT INTO d VALUES (3, 2)"
        )
    assert (content(inverse, "inverse"), errors(inverse)) == ([(1, 10), (3, 5)], {})


@pytest.mark.parametrize("mode", MODES)
def test_a_view_may_ask_to_refuse_the_write(orc, connect, mode):
    orc.execute("CREATE TABLE d (n int); INSERT INTO d VALUES (1)")
    orc.execute(
        f"CREATE VIEW inverse WITH (maintain = {mode}, on_error = raise) AS SELECT 10 / n AS q FROM d"
    )
    writer = connect()
    with pytest.raises(DivisionByZero):
        writer.execute("INSERT INTO d VALUES (0)")
    assert (content(orc, "d"), content(orc, "inverse")) == ([(1,)], [(10,)])
    orc.execute("ALTER VIEW inverse SET (on_error = continue)")
    writer.execute("INSERT INTO d VALUES (0)")
    assert "inverse" in errors(orc)
    orc.execute("DELETE FROM d WHERE n = 0")
    orc.execute("ALTER VIEW inverse SET (on_error = raise)")
    orc.refresh()
    with pytest.raises(DatabaseError, match="division by zero"):
        orc.execute("INSERT INTO d VALUES (0)")


def test_an_unknown_choice_is_refused(orc):
    orc.execute("CREATE TABLE d (n int)")
    with pytest.raises(IdivmError, match="on_error"):
        orc.execute("CREATE VIEW v WITH (on_error = ignore) AS SELECT n FROM d")


RAISING = """
    CREATE TABLE d (id int PRIMARY KEY, n int);
    CREATE FUNCTION raising(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
    BEGIN
        IF n = 0 THEN
            {}
        END IF;
        RETURN n;
    END $$;
    CREATE VIEW v WITH (maintain = eager) AS SELECT id, raising(n) AS n FROM d
"""

ENDING = {
    SerializationFailure: "RAISE serialization_failure;",
    LockNotAvailable: "RAISE lock_not_available;",
    QueryCanceled: "RAISE query_canceled;",
}


@pytest.mark.parametrize("error", ENDING)
def test_what_asks_to_run_the_transaction_again_reaches_the_writer(orc, connect, error):
    orc.execute(RAISING.format(ENDING[error]))
    writer = connect()
    with pytest.raises(error):
        writer.execute("INSERT INTO d VALUES (1, 0)")
    assert errors(orc) == {}
    writer.execute("INSERT INTO d VALUES (1, 1)")
    assert content(orc, "v") == [(1, 1)]


def test_a_timeout_ends_the_write(orc, connect):
    orc.execute(RAISING.format("PERFORM pg_sleep(1000);"))
    writer = connect()
    writer.execute("SET statement_timeout = '100ms'")
    with pytest.raises(QueryCanceled):
        writer.execute("INSERT INTO d VALUES (1, 0)")
    assert errors(orc) == {}


@pytest.mark.parametrize("mode", MODES)
def test_a_view_that_fails_may_not_keep_the_log_for_ever(orc, connect, mode):
    orc.execute("CREATE TABLE d (id int PRIMARY KEY, n int)")
    orc.execute(
        f"CREATE VIEW inverse WITH (maintain = {mode}, log_limit = '8kB', on_log_limit = rebuild)"
        " AS SELECT id, 10 / n AS q FROM d"
    )
    writer = connect()
    writer.execute("INSERT INTO d VALUES (0, 0)")
    writer.execute("INSERT INTO d SELECT i, i FROM generate_series(10, 2000) AS i")
    assert writer.execute("SELECT name FROM idivm.over_log_limit()").fetchall() == [
        ("public.inverse",)
    ]
    writer.execute("DELETE FROM d WHERE n = 0")
    assert writer.execute("SELECT idivm.collect(0) > 0").fetchone() == (True,)
    orc.refresh()
    assert differences(writer, "inverse") == []
    assert errors(orc) == {}
