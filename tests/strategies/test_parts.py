"""What is computed again when parts of a result change, and what is not."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.integration

TABLE = """
CREATE TABLE t (id int PRIMARY KEY, k int, v int);
INSERT INTO t SELECT g, g % 10, g FROM generate_series(1, 2000) AS g
"""


READ = """
SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = 't'
"""


def refreshed_by(orc, view: str, change: str) -> tuple[int, int]:
    """How many rows of the view a change rewrites, and how many of the table its refresh reads."""
    orc.execute(change)
    ask = orc.connection.execute
    with orc.connection.transaction():
        (before,) = ask(READ).fetchone()
        (changed,) = ask("SELECT changed FROM idivm.refresh(%s)", [view]).fetchone()
        (after,) = ask(READ).fetchone()
    assert orc.check(view)[0].equal
    return changed, after - before


def test_first_rows_are_kept_with_a_reserve(orc):
    orc.execute(TABLE)
    orc.create_view("v", "SELECT id, v FROM t ORDER BY v DESC LIMIT 3 OFFSET 1", strategy="id")
    assert refreshed_by(orc, "v", "DELETE FROM t WHERE id = 2000") == (2, 0)
    assert refreshed_by(orc, "v", "INSERT INTO t VALUES (3000, 1, 5000)") == (2, 0)
    assert refreshed_by(orc, "v", "UPDATE t SET v = v - 1000 WHERE id = 1999") == (2, 0)
    assert refreshed_by(orc, "v", "INSERT INTO t VALUES (-1, 1, -1)") == (0, 0)
    # All of the beginning and its reserve go: the table is read once more.
    changed, read = refreshed_by(orc, "v", "DELETE FROM t WHERE v > 1500")
    assert changed == 6 and read >= 1000
    assert refreshed_by(orc, "v", "DELETE FROM t WHERE v > 1400") == (6, 0)


def test_a_table_smaller_than_the_limit_is_known_whole(orc):
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 2)")
    orc.create_view("v", "SELECT id FROM t ORDER BY v LIMIT 5", strategy="id")
    assert refreshed_by(orc, "v", "INSERT INTO t VALUES (3, 9), (4, 0)") == (2, 0)
    assert refreshed_by(orc, "v", "DELETE FROM t WHERE id = 1") == (1, 0)
    assert refreshed_by(orc, "v", "DELETE FROM t") == (3, 0)
    assert refreshed_by(orc, "v", "INSERT INTO t VALUES (5, NULL)") == (1, 0)


def test_only_rows_that_differ_are_rewritten_in_a_partition(orc):
    orc.execute(TABLE)
    orc.create_view(
        "v",
        "SELECT id, row_number() OVER (PARTITION BY k ORDER BY v) AS n, max(v) OVER (PARTITION BY k) AS m FROM t",
        strategy="id",
    )
    changed, _ = refreshed_by(orc, "v", "DELETE FROM t WHERE id = 1991")
    assert changed == 1 + 199
    changed, _ = refreshed_by(orc, "v", "UPDATE t SET v = 1499 WHERE id = 1502")
    assert changed == 1
    changed, _ = refreshed_by(orc, "v", "UPDATE t SET k = 3 WHERE id = 2")
    assert changed == 200 + 200


def test_rows_that_keep_a_partner_are_not_rewritten(orc):
    orc.execute(TABLE)
    orc.execute("CREATE TABLE s (id int PRIMARY KEY, k int); INSERT INTO s VALUES (1, 1), (2, 1)")
    for name, test in (("some", "EXISTS"), ("none", "NOT EXISTS")):
        query = f"SELECT id FROM t WHERE {test} (SELECT FROM s WHERE s.k = t.k)"
        orc.create_view(name, query, strategy="id")
    assert refreshed_by(orc, "some", "DELETE FROM s WHERE id = 1")[0] == 0
    assert refreshed_by(orc, "none", "INSERT INTO s VALUES (3, 1)")[0] == 0
    assert refreshed_by(orc, "none", "DELETE FROM s; INSERT INTO s VALUES (4, 2)")[0] == 400
    assert refreshed_by(orc, "some", "UPDATE t SET v = 0 WHERE k = 2")[0] == 400


@pytest.mark.slow
def test_only_rows_that_a_total_turned_come_or_go(orc):
    orc.execute(TABLE)
    query = "SELECT id, v FROM t WHERE v {} (SELECT avg(v) FROM t)"
    for name, sign in (
        ("more", ">"),
        ("most", ">="),
        ("less", "<"),
        ("least", "<="),
        ("same", "="),
    ):
        orc.create_view(name, query.format(sign), strategy="id")
    for change in (
        "INSERT INTO t VALUES (4000, 1, 5003)",
        "INSERT INTO t VALUES (4001, 1, -3000)",
        "UPDATE t SET v = v + 1 WHERE id < 900",
        "UPDATE t SET v = 2001 - v",
        "DELETE FROM t WHERE id <> 7",
        "DELETE FROM t",
        "INSERT INTO t VALUES (1, 1, 1), (2, 1, NULL)",
        "INSERT INTO t VALUES (3, 1, 3)",
    ):
        orc.execute(change)
        assert {report.view for report in orc.check() if not report.equal} == set(), change


def test_rows_that_a_total_turned_are_looked_up_between_it_and_what_it_was(orc):
    orc.execute(TABLE)
    orc.execute("CREATE TABLE s (id int PRIMARY KEY, w int); ANALYZE t")
    orc.create_view(
        "v",
        "SELECT id, v FROM t WHERE v > (SELECT max(w) FROM s)",
        strategy="id",
        create_indexes="on",
    )
    for change, rows in (
        ("INSERT INTO s VALUES (1, 1900)", 100),
        ("UPDATE s SET w = 1890", 10),
        ("INSERT INTO s VALUES (2, 1895)", 5),
        ("DELETE FROM s WHERE id = 2", 5),
        ("DELETE FROM s", 110),
    ):
        changed, read = refreshed_by(orc, "v", change)
        assert changed == rows, change
        assert read <= 2 * rows, change


@pytest.mark.slow
def test_ties_are_broken_by_the_key_in_view_and_definition(orc):
    orc.execute(TABLE)
    orc.create_view("first", "SELECT id FROM t ORDER BY k LIMIT 2")
    orc.create_view("each", "SELECT DISTINCT ON (k) k, id FROM t")
    orc.create_view("numbered", "SELECT id, row_number() OVER (ORDER BY k) AS n FROM t")
    assert [v.strategy for v in orc.views()] == ["id"] * 3
    assert orc.execute("SELECT id FROM first ORDER BY 1")[0].rows == [(10,), (20,)]
    orc.execute("CLUSTER t USING t_pkey; UPDATE t SET v = 1 WHERE id = 10; SET enable_sort = off")
    orc.execute("SET enable_indexscan = off; SET enable_bitmapscan = off")
    assert all(report.equal for report in orc.check())


def test_a_partition_less_window_and_a_recursion_are_said_to_be_whole(orc):
    orc.execute(TABLE)
    orc.create_view("v", "SELECT id, percent_rank() OVER (ORDER BY v) AS place FROM t")
    assert "no partition divides" in orc.explain("v").why
    recursion = (
        "WITH RECURSIVE r AS (SELECT id FROM {0} WHERE k = 0 UNION SELECT n.id FROM r, {0} AS n WHERE n.v = r.id + 1)"
        " SELECT id FROM r"
    )
    orc.create_view("r", recursion.format("t"))
    assert "the recursion" not in orc.explain("r").why
    orc.execute("CREATE TABLE keyless AS SELECT * FROM t")
    orc.create_view("s", recursion.format("keyless"))
    assert "the recursion" in orc.explain("s").why


def test_an_order_alone_is_left_out_with_a_notice(orc):
    orc.execute(TABLE)
    notices = []
    orc.on_notice = notices.append
    orc.create_view("v", "SELECT id FROM t ORDER BY v")
    assert [text for text in notices if "ORDER BY" in text]
    notices.clear()
    orc.create_view("w", "SELECT id FROM t ORDER BY v, id LIMIT 3")
    assert notices == []
    orc.create_view("x", "SELECT id FROM t ORDER BY v LIMIT 3")
    assert len(notices) == 1 and "leaves the order of some rows open" in notices[0]


def test_equal_rows_are_shown_as_often_as_they_are(orc):
    orc.execute(
        "CREATE TABLE log (what text, at point); INSERT INTO log VALUES ('a', '(1,2)'), ('a', '(1,2)')"
    )
    orc.create_view("v", "SELECT what, at FROM log", strategy="id")
    orc.create_view("n", "SELECT what, count(*) AS n FROM log GROUP BY what", strategy="id")
    orc.execute(
        "INSERT INTO log TABLE log; DELETE FROM log WHERE ctid = '(0,1)'; INSERT INTO log DEFAULT VALUES"
    )
    assert all(report.equal for report in orc.check())
    assert orc.execute("SELECT count(*) FROM v WHERE what = 'a'")[0].rows == [(3,)]
    orc.execute("DELETE FROM log")
    assert all(report.equal for report in orc.check())
    assert orc.execute("SELECT count(*) FROM v")[0].rows == [(0,)]


def test_a_count_of_rows_alone_copies_no_row(orc):
    orc.execute("CREATE TABLE log (what text)")
    orc.create_view("n", "SELECT what, count(*) AS n FROM log GROUP BY what", strategy="id")
    assert "idivm_nth" not in orc.explain("n").sql
