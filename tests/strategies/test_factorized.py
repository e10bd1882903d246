"""Results that are kept as views of a tree, whose join is what users read."""

from __future__ import annotations

import pytest

from orchestrator.errors import UnsupportedError, UsageError

TABLES = """
CREATE TABLE r (a int, b int, x int, PRIMARY KEY (a, b));
CREATE TABLE s (a int, c int, e int, y numeric, PRIMARY KEY (a, c, e));
CREATE TABLE t (c int, d int, z float8, n text);
CREATE INDEX ON t (c);
INSERT INTO r SELECT i % 4, i, CASE WHEN i % 5 > 0 THEN i END FROM generate_series(1, 20) AS i;
INSERT INTO s SELECT i % 4, i % 3, i, i * 0.5 FROM generate_series(1, 18) AS i;
INSERT INTO t SELECT nullif(i % 4, 3), i % 2, i, CASE WHEN i % 3 > 0 THEN 'n' || i % 2 END FROM generate_series(1, 14) AS i
"""

JOIN = "FROM r JOIN s USING (a) JOIN t USING (c)"

QUERIES = {
    "whole": f"SELECT DISTINCT r.*, s.c, e, d, n {JOIN}",
    "keys": "SELECT * FROM r JOIN s USING (a)",
    # papers/fivm.txt, figure 10
    "figure": f"SELECT a, b, c, count(*) AS times, sum(x * z) AS total, avg(y) AS mean {JOIN} GROUP BY a, b, c",
    "nulls": f"SELECT n, a, count(x) AS x, sum(y) AS y {JOIN} WHERE d = 1 GROUP BY n, a",
    "path": "SELECT p.b AS first, p.a, q.a AS next, count(*) AS n FROM r AS p JOIN r AS q ON q.b = p.a"
    " JOIN s ON s.a = q.a GROUP BY p.b, p.a, q.a",
    "apart": "SELECT r.a, s.e, count(*) AS n FROM r, s WHERE s.c = 1 GROUP BY r.a, s.e",
    "one_side": "SELECT r.a, r.b, sum(d) AS d FROM r, t GROUP BY r.a, r.b",
    "triangle": "SELECT p.a, p.b, q.c FROM r AS p JOIN s AS q ON q.a = p.a JOIN t ON t.c = q.c AND t.d = p.b"
    " GROUP BY p.a, p.b, q.c",
    "once": f"SELECT count(*) AS n, sum(x) AS x {JOIN}",
    "having": "SELECT a, b, c, count(*) AS n FROM r JOIN s USING (a) GROUP BY a, b, c HAVING count(*) > 1",
    "covariance": f"SELECT a, c, idivm.covar(x, y, z) AS v {JOIN} GROUP BY a, c",
}

CHANGES = (
    "INSERT INTO r VALUES (0, 100, 3), (NULLIF(3, 0), 101, NULL); INSERT INTO t VALUES (1, 1, 2.5, NULL), (1, 1, 2.5, NULL)",
    "UPDATE s SET y = y + 1, c = 2 WHERE e < 5; DELETE FROM r WHERE b % 7 = 0",
    "DELETE FROM t WHERE c = 1; UPDATE r SET a = 1 WHERE a = 2; INSERT INTO s VALUES (2, 1, 99, 1.50)",
    "UPDATE t SET n = 'new', c = coalesce(c, 1)",
    "DELETE FROM s",
    "INSERT INTO s SELECT i % 4, i % 3, i, i FROM generate_series(1, 9) AS i; DELETE FROM t WHERE d = 0",
)


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("mode", ["deferred", "eager"])
def test_what_is_read_follows_every_change(orc, mode, older):
    if older and mode != "deferred":
        pytest.skip("older versions run one mode, unless they are asked for")
    orc.execute(TABLES)
    for name, query in QUERIES.items():
        view = orc.create_view(name, query, representation="factorized", maintain=mode)
        assert view.strategy == "viewtree"
    for change in CHANGES:
        orc.execute(change)
        if mode == "deferred":
            orc.refresh()
        different = {r.view: (r.missing_rows, r.surplus_rows) for r in orc.check() if not r.equal}
        assert different == {}, change


def test_no_table_holds_the_rows(orc):
    orc.execute(TABLES)
    orc.execute("INSERT INTO r SELECT 3, i, i FROM generate_series(1000, 1999) AS i")
    orc.execute("INSERT INTO s SELECT 3, 1, i, i FROM generate_series(1000, 1099) AS i")
    orc.create_view("v", QUERIES["keys"], representation="factorized")
    [result] = orc.execute("SELECT count(*) FROM v")
    assert result.rows[0][0] > 100_000
    assert orc.views()[0].bytes < 1_000_000
    assert "not a table" in str(orc.explain("v"))


def test_a_lookup_reads_what_it_finds(orc):
    orc.execute(TABLES)
    orc.create_view("v", QUERIES["keys"], representation="factorized")
    orc.execute("INSERT INTO r SELECT i, i, i FROM generate_series(1000, 9999) AS i")
    orc.execute("INSERT INTO s SELECT i, i % 5, i, i FROM generate_series(1000, 9999) AS i")
    orc.refresh()
    orc.connection.execute("ANALYZE")
    plan = orc.connection.execute("EXPLAIN SELECT * FROM v WHERE a = 5000").fetchall()
    assert not [line for (line,) in plan if "Seq Scan" in line], plan


def test_what_cannot_be_factorized_is_refused(orc):
    orc.execute(TABLES)
    with pytest.raises(UnsupportedError, match="keeps no factorized result"):
        orc.create_view("v", QUERIES["keys"], representation="factorized", strategy="id")
    with pytest.raises(UnsupportedError, match="cannot maintain"):
        orc.create_view("v", "SELECT max(a) FROM r", representation="factorized")
    wide = ", ".join(f"c{n} int" for n in range(40))
    orc.execute(f"CREATE TABLE wide (a int PRIMARY KEY, {wide})")
    with pytest.raises(UnsupportedError, match="more than 32 columns"):
        orc.create_view("v", "SELECT * FROM r JOIN wide USING (a)", representation="factorized")
    with pytest.raises(UsageError, match="above one that it shows"):
        orc.create_view(
            "v",
            "SELECT b, e, count(*) AS n FROM r JOIN s USING (a) GROUP BY b, e",
            representation="factorized",
            variable_order="a - { b, e }",
        )
