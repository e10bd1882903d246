"""A diff that fits neither in memory nor in an array does not make a refresh fail where its query succeeds."""

from __future__ import annotations

import pytest
from psycopg import sql
from stepping import differences

pytestmark = pytest.mark.integration

ERRORS = {
    "array": ("54000", "array size exceeds the maximum allowed (134217727)"),
    "memory": ("53200", "out of memory"),
    "request": ("XX000", "invalid memory alloc request size 1073741824"),
}


@pytest.fixture(params=["deferred", "eager", "on_commit"])
def mode(request):
    return request.param


def limit_diffs(orc, view, state, message):
    """Have the program of a view fail as PostgreSQL does when a diff is too large, unless it recomputes all."""
    program = sql.Identifier("idivm_state", f"refresh_{view.id}")
    [[arguments]] = orc.connection.execute(
        "SELECT pg_get_function_arguments(p.oid) FROM pg_proc p WHERE p.oid = %s::regproc",
        [program.as_string(None)],
    ).fetchall()
    orc.connection.execute(
        sql.SQL("ALTER FUNCTION {} RENAME TO {}").format(
            program, sql.Identifier(f"whole_{view.id}")
        )
    )
    orc.connection.execute(
        sql.SQL("CREATE FUNCTION {program}({arguments}) LANGUAGE plpgsql AS {body}").format(
            program=program,
            arguments=sql.SQL(arguments),
            body=sql.Literal(
                f"BEGIN IF NOT rebuild THEN RAISE EXCEPTION '{message}' USING ERRCODE = '{state}'; END IF;"
                f" SELECT * INTO changed, kind, marks FROM idivm_state.whole_{view.id}(since, rebuild); END"
            ),
        )
    )


@pytest.mark.parametrize("error", ERRORS)
def test_the_view_is_computed_anew(orc, mode, error):
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, k int, n int)")
    orc.execute("INSERT INTO t SELECT i, i % 3, i FROM generate_series(1, 20) i")
    orc.create_view("v", "SELECT k, sum(n) AS s FROM t GROUP BY k", maintain=mode)
    limit_diffs(orc, orc.view("v"), *ERRORS[error])
    orc.execute("UPDATE t SET n = n + 1; INSERT INTO t VALUES (30, 5, 1)")
    reports = orc.refresh()
    assert differences(orc.connection, "v") == []
    assert all(report.error is None for report in reports)
    assert orc.view("v").error is None
    assert orc.view("v").status == "ready"
    orc.execute("DELETE FROM t WHERE k = 0")
    orc.connection.execute("CALL idivm.refresh_all()")
    assert differences(orc.connection, "v") == []


def test_several_views_and_those_above(orc):
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, k int, n int)")
    orc.create_view("v", "SELECT k, sum(n) AS s FROM t GROUP BY k")
    orc.create_view("above", "SELECT count(*) AS c FROM v WHERE s > 1")
    orc.create_view("beside", "SELECT id FROM t WHERE n > 1")
    limit_diffs(orc, orc.view("v"), *ERRORS["array"])
    orc.execute("INSERT INTO t SELECT i, i % 3, i FROM generate_series(1, 20) i")
    orc.refresh()
    for view in ("v", "above", "beside"):
        assert differences(orc.connection, view) == []


def test_pending_bytes_decide_before_a_diff_is_read(orc, mode):
    """The rows are few, and an array of them would be too large."""
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, w text)")
    orc.create_view("v", "SELECT id, w FROM t", maintain=mode)
    orc.connection.execute(
        "CREATE OR REPLACE FUNCTION idivm.most_diff_bytes() RETURNS bigint LANGUAGE sql RETURN 800000"
    )
    insert = "INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(%s::int, %s) i"
    for first, last, is_large in ((1, 300, False), (301, 1200, True)):
        orc.connection.execute(insert, [first, last])
        orc.refresh()
        assert differences(orc.connection, "v") == []
        last_refresh = orc.connection.execute("SELECT changed, recomputed FROM idivm.watermarks")
        assert last_refresh.fetchall() == [(last - first + 1, is_large)]
