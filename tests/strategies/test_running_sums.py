"""Running counts and sums behind a change move by the same amount, by one update in place."""

from __future__ import annotations

import pytest
from costs import measured

from orchestrator.deltascript.plan import Apply

CREATE = (
    "CREATE TABLE t (id int PRIMARY KEY, g int, at int NOT NULL, n int, d numeric(8, 2), x numeric(8, 2) NOT NULL);"
    "INSERT INTO t SELECT i, nullif(i % 3, 2), i / 2 % 40, nullif(i % 4, 1), nullif(i, 7) / 7.0, i / 3.0"
    " FROM generate_series(1, 200) AS i; ANALYZE t"
)

VIEWS = {
    "sums": "SELECT id, sum(n) OVER w AS n, sum(d) OVER w AS d, sum(x) OVER w AS x FROM t"
    " WINDOW w AS (PARTITION BY g ORDER BY at)",
    "counts": "SELECT id, count(n) OVER w AS n, count(*) FILTER (WHERE n > 1) OVER w AS f, rank() OVER w AS r,"
    " sum(n) FILTER (WHERE n > 1) OVER w AS s FROM t WINDOW w AS (PARTITION BY g ORDER BY at DESC)",
    "whole": "SELECT id, sum(n) OVER (ORDER BY at, id) AS n, row_number() OVER (ORDER BY at, id) AS r FROM t",
}

CHANGES = (
    "UPDATE t SET n = n + 1, d = d - 1, x = x * 2 WHERE id = 30",
    "UPDATE t SET n = NULL, d = NULL WHERE at < 3",
    "UPDATE t SET n = 5, d = 0 WHERE id = 3",
    "INSERT INTO t SELECT i, i % 2, -i, NULL, NULL, 0 FROM generate_series(1001, 1004) AS i",
    "UPDATE t SET n = 0, d = 0.5 WHERE id = 1002",
    "DELETE FROM t WHERE id IN (1001, 1002, 40, 41)",
    "UPDATE t SET d = 'NaN', x = 'NaN' WHERE id = 50",
    "UPDATE t SET x = 3, d = NULL, at = at + 5, g = 1 WHERE id IN (50, 51, 53)",
    "UPDATE t SET n = NULL, d = NULL WHERE g = 0 AND id < 150",
    "UPDATE t SET g = NULL, n = 1 WHERE id BETWEEN 100 AND 110",
    "DELETE FROM t WHERE g IS NULL AND n IS NOT NULL AND at < 30",
)


@pytest.mark.parametrize("strategy", ["id", "tuple"])
def test_the_rows_behind_a_change_move(orc, strategy):
    orc.execute(CREATE)
    for name, query in VIEWS.items():
        orc.create_view(name, query, strategy=strategy)
        assert any(step.bounded for step in _applied(orc, name)), name
    orc.create_view("above", "SELECT id, n + x AS nx FROM sums WHERE n > 3", strategy=strategy)
    for change in CHANGES:
        orc.execute(change)
        orc.refresh()
        assert all(report.equal for report in orc.check()), change


def test_a_sum_of_any_scale_is_recomputed_up_to_the_end(orc):
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, d numeric); INSERT INTO t VALUES (1, 1.00), (2, 2)"
    )
    orc.create_view("v", "SELECT id, sum(d) OVER (ORDER BY id) AS d FROM t", strategy="id")
    assert not any(step.bounded for step in _applied(orc, "v"))


def test_the_rows_behind_a_change_are_updated_in_place(orc):
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, g int, v int);"
        "INSERT INTO t SELECT i, i % 4, i FROM generate_series(1, 8000) AS i; ANALYZE t"
    )
    orc.create_view("v", "SELECT id, sum(v) OVER (PARTITION BY g ORDER BY id) AS s FROM t")
    measured(orc, row_seconds=1, access_seconds=1e-9)
    for change, behind in (
        ("UPDATE t SET v = v + 1 WHERE id = 4000", 1000),
        ("DELETE FROM t WHERE id = 3000", 1250),
        ("INSERT INTO t VALUES (3000, 0, 7)", 1250),
        ("UPDATE t SET v = v + 1 WHERE id = 7800", 50),
    ):
        with orc.connection.transaction():
            before = _counted(orc)
            orc.execute(change)
            orc.connection.execute("SELECT * FROM idivm.refresh('v')")
            updated, in_place, read = (n - m for n, m in zip(_counted(orc), before, strict=True))
        assert behind <= updated <= behind + 2, change
        assert in_place >= 0.8 * updated - 2, change
        assert read <= 2 * behind + 20, change
    assert all(report.equal for report in orc.check())


def _applied(orc, name):
    return [step for step in orc.view(name).plan.program.script if isinstance(step, Apply)]


def _counted(orc):
    return orc.connection.execute(
        "SELECT n_tup_upd, n_tup_hot_upd, seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables"
        " WHERE schemaname = 'idivm_state' AND relname ~ '^v_[0-9]+$'"
    ).fetchone()


def test_no_index_extends_the_key(orc):
    """Each row of a window would be written into the index, and the key alone finds the row."""
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, g int, v int NOT NULL)")
    orc.create_view(
        "v", "SELECT id, rank() OVER (PARTITION BY g ORDER BY v) AS r FROM t", strategy="id"
    )
    indexes = orc.execute(
        "SELECT substring(indexdef, '\\(.*') FROM pg_indexes WHERE schemaname = 'idivm_state' ORDER BY 1"
    )[0].rows
    assert indexes == [("(g, v)",), ("(id)",)]


def test_a_row_that_moves_and_changes_otherwise_too(orc):
    """An expression reads both: one over two windows, whose lower one moves rows, and one beside a changed column."""
    orc.execute(
        "CREATE TABLE t (k int PRIMARY KEY, n int NOT NULL, x int);"
        "INSERT INTO t SELECT i, i % 3, i FROM generate_series(2, 9) AS i"
    )
    orc.create_view(
        "stacked",
        "SELECT k, a + s AS x FROM (SELECT k, rank() OVER (ORDER BY n, k) AS a, sum(n) OVER (ORDER BY k) AS s"
        " FROM t) AS q",
        strategy="id",
    )
    orc.create_view("beside", "SELECT k, x + sum(n) OVER (ORDER BY k) AS x FROM t", strategy="id")
    for change in (
        "INSERT INTO t VALUES (1, 1, 1)",
        "UPDATE t SET x = x + 1 WHERE k = 7; UPDATE t SET n = n + 2 WHERE k = 3",
        "DELETE FROM t WHERE k = 2; UPDATE t SET x = 0 WHERE k > 5",
    ):
        orc.execute(change)
        orc.refresh()
        assert all(report.equal for report in orc.check()), change
