"""A view whose refresh fails stops neither the others nor the record of why it failed."""

import json

import psycopg
import pytest
from psycopg.errors import DivisionByZero, QueryCanceled, SerializationFailure

import orchestrator
from orchestrator.cli.main import main
from orchestrator.errors import IdivmError
from orchestrator.runtime.refresh import RefreshError

pytestmark = pytest.mark.integration

ERRORS = "SELECT v.relation::text, e.sqlstate, e.message FROM idivm.view_errors e JOIN idivm.views v ON v.id = e.view ORDER BY v.id"
BELOW = "it reads public.inverse, which could not be refreshed"
ABOVE = "it reads public.above, which could not be refreshed"


@pytest.fixture
def shop(orc):
    """`inverse` fails once `d` holds 0; `above` and `top` read it; `before` and `after` do not."""
    orc.execute(
        """
        CREATE TABLE d (id int PRIMARY KEY, n int); INSERT INTO d VALUES (1, 1);
        CREATE TABLE t (id int PRIMARY KEY, n int);
        CREATE VIEW before AS SELECT id, n FROM d;
        CREATE VIEW inverse AS SELECT id, 10 / n AS q FROM d;
        CREATE VIEW above AS SELECT t.id, q FROM t JOIN inverse USING (id);
        CREATE VIEW top AS SELECT count(*) FROM above;
        CREATE VIEW after AS SELECT id, n FROM t
        """
    )
    return orc


def break_it(orc):
    orc.execute("INSERT INTO d VALUES (2, 0); INSERT INTO t VALUES (1, 1)")


def mend_it(orc):
    orc.execute("UPDATE d SET n = 5 WHERE id = 2")


def rows(orc, view):
    return sorted(orc.connection.execute(f"TABLE {view}").fetchall())


def assert_others_went_on(orc):
    assert rows(orc, "before") == [(1, 1), (2, 0)]
    assert rows(orc, "after") == [(1, 1)]
    assert rows(orc, "inverse") == [(1, 10)]
    assert rows(orc, "above") == []
    assert orc.connection.execute(ERRORS).fetchall() == [
        ("inverse", "22012", "division by zero"),
        ("above", "55000", BELOW),
        ("top", "55000", ABOVE),
    ]


def test_the_others_are_refreshed_and_the_failing_view_is_named(shop):
    break_it(shop)
    with pytest.raises(RefreshError) as caught:
        shop.refresh()
    assert str(caught.value) == (
        "Could not refresh inverse: division by zero. Could not refresh above: "
        f"{BELOW}. Could not refresh top: {ABOVE}."
    )
    assert caught.value.exit_status == 1
    failed = {report.view: report.error for report in caught.value.reports}
    assert failed == {
        "before": None,
        "inverse": "division by zero",
        "above": BELOW,
        "top": ABOVE,
        "after": None,
    }
    assert_others_went_on(shop)


def test_a_successful_refresh_forgets_the_error(shop):
    break_it(shop)
    with pytest.raises(RefreshError):
        shop.refresh()
    with pytest.raises(RefreshError):
        shop.refresh()
    view = shop.view("inverse")
    assert (view.error, view.pending) == ("division by zero", 1)
    assert view.failed_at is not None
    mend_it(shop)
    shop.refresh("inverse")
    assert shop.view("inverse").error is shop.view("inverse").failed_at is None
    assert shop.view("above").error == BELOW
    shop.refresh()
    assert shop.connection.execute(ERRORS).fetchall() == []
    assert {report.view: report.equal for report in shop.check()} == dict.fromkeys(
        ("before", "inverse", "above", "top", "after"), True
    )


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
def test_in_a_transaction_of_the_caller(shop, connect, level):
    caller = connect()
    warnings = []
    caller.add_notice_handler(lambda notice: warnings.append(notice.message_primary))
    break_it(shop)
    caller.execute(f"BEGIN ISOLATION LEVEL {level}")
    caller.execute("INSERT INTO t VALUES (9, 9)")
    results = caller.execute(
        "SELECT view, error FROM idivm.refresh('before', 'top', 'after')"
    ).fetchall()
    caller.execute("COMMIT")
    assert sorted(results, key=str) == [
        ("above", BELOW),
        ("after", None),
        ("before", None),
        ("inverse", "division by zero"),
        ("top", ABOVE),
    ]
    assert warnings[0] == "inverse could not be refreshed: division by zero"
    assert len(warnings) == 3
    assert rows(shop, "after") == [(1, 1), (9, 9)]
    assert len(shop.connection.execute(ERRORS).fetchall()) == 3


def test_one_view_by_itself(shop, connect):
    """A view that reads tables alone, and that no view reads, is refreshed on a shorter way."""
    shop.execute("DROP VIEW above CASCADE")
    break_it(shop)
    caller = connect()
    query = "SELECT view, changed, error FROM idivm.refresh('inverse')"
    assert caller.execute(query).fetchall() == [("inverse", None, "division by zero")]
    assert caller.execute(ERRORS).fetchall() == [("inverse", "22012", "division by zero")]
    mend_it(shop)
    assert caller.execute(query).fetchall() == [("inverse", 1, None)]
    assert caller.execute(ERRORS).fetchall() == []


def test_an_error_of_which_nothing_is_left_to_do_is_forgotten(shop, connect):
    """What made it fail may be gone without a change that is pending."""
    shop.execute("DROP VIEW above CASCADE; INSERT INTO t VALUES (1, 1)")
    for view in ("inverse", "before"):
        shop.execute(
            "INSERT INTO idivm.view_errors SELECT id, now(), '53100', 'disk full' FROM idivm.views"
            f" WHERE relation = '{view}'::regclass"
        )
    connect().execute("SELECT idivm.refresh('inverse')")
    connect().execute("SELECT idivm.refresh('before', 'after')")
    assert connect().execute(ERRORS).fetchall() == []


def test_the_procedure_keeps_what_went_well_and_then_fails(shop, connect):
    break_it(shop)
    with pytest.raises(DivisionByZero) as caught:
        connect().execute("CALL idivm.refresh_all()")
    assert caught.value.diag.message_primary == (
        "3 views could not be refreshed: inverse (division by zero),"
        f" above ({BELOW}), top ({ABOVE})"
    )
    assert_others_went_on(shop)
    shop.execute("DROP VIEW above CASCADE")
    with pytest.raises(DivisionByZero, match=r"^inverse could not be refreshed: division by zero"):
        connect().execute("CALL idivm.refresh_all('before', 'inverse')")


@pytest.mark.slow
def test_many_views_need_few_subtransactions(orc, connect):
    """Beyond 64 subtransactions of one transaction, every other session's snapshots cost more."""
    orc.execute("CREATE TABLE d (id int PRIMARY KEY, n int); INSERT INTO d VALUES (1, 1)")
    for number in range(35):
        orc.create_view(f"v{number}", f"SELECT id, {number} / n AS q FROM d", strategy="recompute")
    orc.execute("INSERT INTO d VALUES (2, 7)")
    caller = connect()

    def spent(sql):
        before = caller.execute("SELECT pg_current_xact_id()").fetchone()[0]
        caller.execute(sql)
        return int(caller.execute("SELECT pg_current_xact_id()").fetchone()[0]) - int(before) - 1

    # Autovacuum may take some numbers meanwhile, but not one for each view.
    refresh = "SELECT idivm.refresh_views(ARRAY(SELECT id FROM idivm.views))"
    assert spent(refresh) < 35
    # None for views that have nothing to do.
    assert min(spent(refresh) for _ in range(5)) == 0
    orc.execute("INSERT INTO d VALUES (3, 0)")
    with pytest.raises(DivisionByZero, match="35 views could not be refreshed"):
        caller.execute("CALL idivm.refresh_all()")
    orc.execute("DELETE FROM d WHERE id = 3")
    caller.execute("CALL idivm.refresh_all()")
    assert caller.execute(ERRORS).fetchall() == []


@pytest.mark.slow
def test_one_of_many_views_fails(orc, connect):
    orc.execute("CREATE TABLE d (id int PRIMARY KEY, n int); INSERT INTO d VALUES (1, 1)")
    for number in range(35):
        divisor = "n" if number == 20 else "1"
        orc.create_view(f"v{number}", f"SELECT id, n / {divisor} AS q FROM d", strategy="recompute")
    for attempt in range(2):
        orc.execute(f"INSERT INTO d VALUES ({attempt + 2}, 0)")
        with pytest.raises(RefreshError, match=r"^Could not refresh v20: division by zero\.$"):
            orc.refresh()
        pending = {view.name: view.pending for view in orc.views() if view.pending}
        assert pending == {"v20": attempt + 1}


@pytest.mark.parametrize("kept", ["eager", "on_commit"])
def test_views_that_writers_keep_go_on(shop, kept):
    shop.execute(f"CREATE VIEW kept WITH (maintain = {kept}) AS SELECT sum(n) AS s FROM t")
    break_it(shop)
    with pytest.raises(RefreshError):
        shop.refresh()
    assert_others_went_on(shop)
    assert shop.connection.execute("TABLE kept").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("state", "error"),
    [("40001", SerializationFailure), ("40P01", psycopg.errors.DeadlockDetected)],
)
def test_what_the_transaction_has_to_begin_again_for_ends_it(shop, connect, state, error):
    shop.connection.execute(
        "CREATE FUNCTION refuse(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN"
        f" IF n < 0 THEN RAISE EXCEPTION 'again' USING ERRCODE = '{state}'; END IF; RETURN n; END $$"
    )
    shop.execute("CREATE VIEW wary AS SELECT refuse(n) AS n FROM t")
    shop.execute("INSERT INTO t VALUES (1, -1)")
    with pytest.raises(error):
        connect().execute("SELECT idivm.refresh('after', 'wary')")
    with pytest.raises(error):
        connect().execute("SELECT idivm.refresh('wary')")
    assert shop.connection.execute(ERRORS).fetchall() == []
    assert rows(shop, "after") == []


def test_a_cancelled_refresh_ends_at_once(shop, connect):
    shop.connection.execute(
        "CREATE FUNCTION slow(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN"
        " IF n < 0 THEN PERFORM pg_sleep(600); END IF; RETURN n; END $$"
    )
    shop.execute("CREATE VIEW patient AS SELECT slow(n) AS n FROM t; INSERT INTO t VALUES (1, -1)")
    caller = connect()
    caller.execute("SET statement_timeout = '300ms'")
    with pytest.raises(QueryCanceled):
        caller.execute("SELECT idivm.refresh('after', 'patient')")
    assert shop.connection.execute(ERRORS).fetchall() == []
    assert rows(shop, "after") == []


def test_a_content_that_is_gone_is_the_error_of_its_view(shop):
    shop.execute("INSERT INTO t VALUES (1, 1)")
    shop.connection.execute("DROP TABLE idivm_state.before_1 CASCADE")
    with pytest.raises(
        RefreshError, match=r"^Could not refresh \"public\"\.\"before\": the table that holds"
    ):
        shop.refresh()
    assert rows(shop, "after") == [(1, 1)]


def test_check_says_which_view_could_not_be_refreshed(shop):
    break_it(shop)
    reports = {report.view: (report.equal, report.error) for report in shop.check()}
    assert reports == {
        "before": (True, None),
        "inverse": (False, "division by zero"),
        "above": (False, BELOW),
        "top": (False, ABOVE),
        "after": (True, None),
    }


def test_check_says_which_query_fails_and_compares_the_other_views(orc):
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE broken (); INSERT INTO t VALUES (1)"
    )
    orc.connection.execute(
        """
        CREATE FUNCTION same(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
        $$BEGIN IF EXISTS (SELECT FROM public.broken) THEN RAISE 'it is broken'; END IF; RETURN n; END$$
        """
    )
    orc.execute(
        "CREATE VIEW fails AS SELECT id, same(id) AS s FROM t; CREATE VIEW other AS SELECT id FROM t"
    )
    assert all(report.equal for report in orc.check())
    orc.execute("INSERT INTO broken DEFAULT VALUES")
    reports = {report.view: (report.equal, report.error) for report in orc.check()}
    assert reports == {
        "fails": (False, "its query fails: it is broken."),
        "other": (True, None),
    }


def test_a_view_that_cannot_be_planned_anew_keeps_back_no_other(shop, monkeypatch):
    shop.execute(
        "CREATE TABLE k (id int PRIMARY KEY, n int); CREATE VIEW keyed AS SELECT id, n FROM k"
    )
    shop.connection.execute("ALTER TABLE k DROP CONSTRAINT k_pkey")
    shop.connection.execute("ALTER TABLE k ALTER COLUMN id DROP NOT NULL")
    shop.execute("INSERT INTO k VALUES (NULL, NULL); INSERT INTO t VALUES (1, 1)")

    def fail(*_arguments, **_options):
        raise IdivmError("no plan today")

    with monkeypatch.context() as patch:
        patch.setattr("orchestrator.runtime.installation.replanning.plan_view", fail)
        with pytest.raises(RefreshError, match=r"Could not refresh keyed: .*no plan today"):
            shop.refresh()
    assert rows(shop, "after") == [(1, 1)]
    assert "no plan today" in shop.view("keyed").error
    shop.refresh()
    assert shop.view("keyed").error is None


def test_the_command_line(shop, dsn, capsys):
    def idivm(verb, *arguments):
        status = main([verb, "--dsn", dsn, *arguments])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    break_it(shop)
    status, out, errors = idivm("refresh")
    assert status == 1
    assert "before" in out and "after" in out
    assert "Could not refresh inverse: division by zero." in errors
    reports = json.loads(idivm("refresh", "--json")[1])
    assert {report["view"]: report["error"] for report in reports}["inverse"] == "division by zero"
    assert "last error:      division by zero (22012" in idivm("status", "inverse")[1]
    [inverse] = json.loads(idivm("status", "inverse", "--json")[1])
    assert (inverse["error"], inverse["sqlstate"]) == ("division by zero", "22012")
    assert "division by zero" in idivm("list")[1]
    status, out, _ = idivm("check")
    assert status == 1
    assert "inverse: NOT COMPARED, division by zero" in out
    with orchestrator.connect(dsn) as other:
        mend_it(other)
    assert idivm("refresh")[0] == 0
    assert "last error" not in idivm("status", "inverse")[1]
