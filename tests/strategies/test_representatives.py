"""A group whose equal keys look different shows a key that one of its rows has now."""

from __future__ import annotations

import pytest

from orchestrator.errors import DatabaseError

TABLES = """
CREATE TABLE t (id int PRIMARY KEY, m int, n numeric, i interval, j jsonb, f float8);
CREATE TABLE s (id int PRIMARY KEY, n numeric);
CREATE TABLE keyed (n numeric PRIMARY KEY, m int);
INSERT INTO t VALUES
    (1, 1, 1.0, '1 day', '{"a": 1.0}', 0), (2, 1, 2.0, '2 days', '2.0', 1), (3, 2, 3.0, NULL, NULL, 3),
    (4, 2, 1.00, '24:00:00', '{"a": 1.00}', '-0'), (5, NULL, NULL, '1 mon', '[1, 2]', 'NaN');
INSERT INTO s VALUES (1, 1.0), (2, 5.0), (3, 2.000);
INSERT INTO keyed SELECT n, n FROM generate_series(1.0, 6.0) AS n
"""

# Each view, and the rows that it may show, of which it shows one for all that are equal.
VIEWS = {
    "added": ("SELECT n, sum(m) AS s, count(*) AS c FROM t GROUP BY n", "SELECT n FROM t"),
    "two": ("SELECT m, n, count(*) AS c FROM t GROUP BY m, n", "SELECT m, n FROM t"),
    "again": ("SELECT n, max(m) AS x FROM t GROUP BY n", "SELECT n FROM t"),
    "spans": ("SELECT i, count(*) AS c FROM t GROUP BY i", "SELECT i FROM t"),
    "documents": ("SELECT j, count(*) AS c FROM t GROUP BY j", "SELECT j FROM t"),
    "floats": ("SELECT f, count(*) AS c FROM t GROUP BY f", "SELECT f FROM t"),
    "computed": ("SELECT n * 2 AS n, count(*) AS c FROM t GROUP BY 1", "SELECT n * 2 FROM t"),
    "once": ("SELECT DISTINCT n, i FROM t", "SELECT n, i FROM t"),
    "first": ("SELECT DISTINCT ON (n) n, m FROM t ORDER BY n, id DESC", "SELECT n, m FROM t"),
    "united": (
        "SELECT n FROM t UNION SELECT n FROM s",
        "SELECT n FROM t UNION ALL SELECT n FROM s",
    ),
    "both": (
        "SELECT n FROM t INTERSECT SELECT n FROM s",
        "SELECT n FROM t UNION ALL SELECT n FROM s",
    ),
    "left": ("SELECT n FROM t EXCEPT SELECT n FROM s", "SELECT n FROM t"),
    "recursion": (
        "WITH RECURSIVE r(n) AS (SELECT n FROM t UNION SELECT n + 1 FROM r WHERE n < 3) SELECT n FROM r",
        "SELECT n + g FROM t, generate_series(0, 9) AS g",
    ),
    "over_join": (
        "SELECT t.n, count(*) AS c FROM t JOIN s ON s.n = t.n GROUP BY t.n",
        "SELECT n FROM t",
    ),
    "above": (
        "SELECT q.n, q.s, s.id FROM (SELECT n, sum(m) AS s FROM t GROUP BY n) AS q JOIN s ON s.n = q.n",
        "SELECT n FROM t",
    ),
    "padded": (
        "SELECT s.id, q.n FROM s LEFT JOIN (SELECT n FROM t GROUP BY n) AS q ON q.n = s.n",
        "SELECT n FROM t UNION ALL SELECT NULL",
    ),
    "rolled_up": (
        "SELECT n, count(*) AS c FROM t GROUP BY ROLLUP (n)",
        "SELECT n FROM t UNION ALL SELECT NULL",
    ),
    "numbered": ("SELECT n, m FROM keyed", "SELECT n, m FROM keyed"),
    "joined": (
        "SELECT k.n, k.m, s.id FROM keyed AS k JOIN s ON s.n = k.n",
        "SELECT n, m FROM keyed",
    ),
}

CHANGES = (
    "UPDATE t SET n = 1.000, i = 'PT24H', j = '{\"a\": 1.000}', f = '-0' WHERE id = 1",
    "UPDATE t SET n = 1.0, f = 0 WHERE id = 4; UPDATE s SET n = 1.0000 WHERE id = 1",
    "DELETE FROM t WHERE id = 1",
    "INSERT INTO t SELECT id + 10, m, n * 1.00, i * 1, j, f FROM t WHERE id <> 3",
    "DELETE FROM t WHERE id < 10; UPDATE keyed SET n = n * 1.00",
    "UPDATE t SET n = n / 1.000, i = i + '1 day' - '24:00:00'",
    "UPDATE keyed SET n = n * 1.0 WHERE m > 3; UPDATE s SET n = n * 1.0",
    "INSERT INTO t VALUES (50, 2, 9.0), (51, 2, 9.00); DELETE FROM t WHERE id = 14",
    "DELETE FROM t WHERE id = 50; INSERT INTO t VALUES (52, 3, 9.000); DELETE FROM t WHERE id = 52",
    "DELETE FROM t",
    "INSERT INTO t VALUES (1, 1, 1.00, '24:00:00', '1.0', '-0')",
)


def wrong(orc, strategy):
    """What views show too much or too little, and which keys no row has: by SQL's own equality."""
    differences = []
    for name, (query, allowed) in VIEWS.items():
        view = f"{name}_{strategy}"
        headers = orc.execute(
            f"SELECT * FROM {view} LIMIT 0; SELECT * FROM ({allowed}) AS q LIMIT 0"
        )
        columns = [column for column in headers[0].columns if column not in ("c", "s", "x", "id")]
        assert len(columns) == len(headers[1].columns), name
        listed = ", ".join(f"v.{column}" for column in columns)
        for what, rows in (
            ("missing", f"{query} EXCEPT ALL SELECT * FROM {view}"),
            ("surplus", f"SELECT * FROM {view} EXCEPT ALL ({query})"),
            (
                "stale",
                f"SELECT ROW({listed})::text FROM {view} AS v EXCEPT "
                f"SELECT ROW(q.*)::text FROM ({allowed}) AS q",
            ),
        ):
            if what == "missing" and query.startswith("WITH"):
                rows = f"SELECT * FROM ({query}) AS q EXCEPT ALL SELECT * FROM {view}"
            if (what == "missing" and " ORDER BY " in query) or " EXCEPT SELECT" in query:
                rows = rows.replace(query, f"SELECT * FROM ({query}) AS q")
            differences += [(view, what, row) for row in orc.execute(rows)[0].rows]
    return differences


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("strategy", ["id", "tuple", "recursive", "recompute"])
def test_a_group_shows_a_key_of_its_rows(orc, strategy, older):
    if older and strategy not in ("id", "recompute"):
        pytest.skip("older versions run the strategies that differ most")
    orc.execute(TABLES)
    for name, (query, _) in VIEWS.items():
        orc.create_view(f"{name}_{strategy}", query, strategy=strategy)
    for change in CHANGES:
        orc.execute(change)
        orc.refresh()
        assert wrong(orc, strategy) == [], change
        assert [report.view for report in orc.check() if not report.equal] == [], change


@pytest.mark.parametrize("maintain", ["eager", "on_commit"])
def test_writers_keep_the_keys_too(orc, maintain):
    orc.execute(TABLES)
    orc.create_view("v", VIEWS["added"][0], maintain=maintain, strategy="id")
    orc.execute("UPDATE t SET n = 1.000 WHERE id IN (1, 4)")
    assert ("1.000",) in orc.execute("SELECT n::text FROM v")[0].rows


@pytest.mark.integration
def test_a_collation_that_ignores_case(orc):
    try:
        orc.execute(
            "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
    except DatabaseError:
        pytest.skip("this server was built without ICU")
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, a text COLLATE ci);"
        "INSERT INTO t VALUES (1, 'Ann'), (2, 'ann'), (3, 'bob')"
    )
    for strategy in ("id", "tuple"):
        orc.create_view(
            f"c_{strategy}", "SELECT a, count(*) AS c FROM t GROUP BY a", strategy=strategy
        )
        orc.create_view(f"d_{strategy}", "SELECT DISTINCT a FROM t", strategy=strategy)
    orc.execute("UPDATE t SET a = upper(a)")
    orc.refresh()
    for view in ("c_id", "c_tuple", "d_id", "d_tuple"):
        assert orc.execute(f"SELECT a FROM {view} ORDER BY 1")[0].rows == [("ANN",), ("BOB",)]
    assert all(report.equal for report in orc.check())


def test_rows_that_look_alike_are_not_read_again(orc):
    """Only a group of several looks is computed again when a row goes."""
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, n numeric)")
    orc.execute("INSERT INTO t SELECT i, i % 10 FROM generate_series(1, 1000) AS i")
    view = orc.create_view("v", "SELECT n, count(*) AS c FROM t GROUP BY n", strategy="id")
    orc.execute("DELETE FROM t WHERE id % 100 < 50; UPDATE t SET n = 3 WHERE id = 55")
    orc.refresh()
    columns = view.plan.program.state("content").columns
    looks = [column.name for column in columns if column.name.startswith("idivm_looks")]
    rows = orc.execute(
        f"SELECT count(*) FROM {view.state} WHERE {looks[0]} <> c * "
        'hashtextextended(ROW(n)::text COLLATE "C", 0)::numeric'
    )
    assert rows[0].rows == [(0,)]


@pytest.mark.parametrize("type_", ["int", "numeric(9,2)", "text", "date", "char(3)"])
def test_keys_that_always_look_alike_cost_nothing(orc, type_):
    orc.execute(f"CREATE TABLE t (id int PRIMARY KEY, k {type_})")
    for key in ("k", "lower(k::text)", "coalesce(k, k)") if type_ != "char(3)" else ("k",):
        query = f"SELECT {key} AS key, count(*) AS c FROM t GROUP BY 1"
        view = orc.create_view("v", query, strategy="id", replace=True)
        assert "idivm_looks" not in str(view.plan.program.states), key
