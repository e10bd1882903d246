"""Sources that are no plain table with a primary key, under the ID engine."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.integration

VIEWS = {
    "rows": "SELECT v, twice FROM t WHERE v > 1",
    "sums": "SELECT k, sum(v) AS s, count(*) AS n, max(twice) AS m FROM t GROUP BY k",
    "beside": "SELECT a.v, b.k FROM t a LEFT JOIN t b ON b.v = a.v + 1",
    "ranked": "SELECT v, rank() OVER (PARTITION BY k ORDER BY v) AS place FROM t",
}

SOURCES = {
    "unique_index": (
        "CREATE TABLE t (id int NOT NULL, k int NOT NULL, v int, twice int GENERATED ALWAYS AS (v * 2) STORED);"
        "CREATE UNIQUE INDEX t_key ON t (id, k)",
        "DROP INDEX t_key",
        "INSERT INTO t SELECT id, k, v FROM t WHERE v = 2",
    ),
    "no_key": (
        "CREATE TABLE t (id int, k int, v int, twice int GENERATED ALWAYS AS (v * 2) STORED)",
        "ALTER TABLE t ADD PRIMARY KEY (id, k)",
        "UPDATE t SET id = id + 100 WHERE k = 2",
    ),
    "partitions": (
        "CREATE TABLE t (id int, k int, v int, twice int, PRIMARY KEY (id, k)) PARTITION BY LIST (k);"
        "CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1, 2); CREATE TABLE t9 PARTITION OF t DEFAULT;"
        "CREATE TABLE t3 (LIKE t INCLUDING ALL); INSERT INTO t3 VALUES (70, 3, 5), (71, 3, 6)",
        "ALTER TABLE t DETACH PARTITION t9; ALTER TABLE t ATTACH PARTITION t3 FOR VALUES IN (3)",
        "INSERT INTO t VALUES (72, 3, 2); UPDATE t SET k = 3 WHERE id = 2; DELETE FROM t3 WHERE id = 70",
    ),
    "inheritance children": (
        "CREATE TABLE t (id int PRIMARY KEY, k int, v int, twice int); CREATE TABLE u (extra text) INHERITS (t);"
        "INSERT INTO u VALUES (1, 1, 2, 9), (1, 1, 2, 9); CREATE TABLE w (LIKE t); INSERT INTO w VALUES (1, 2, 2)",
        "ALTER TABLE w INHERIT t",
        "INSERT INTO w VALUES (1, 1, 3), (1, 2, 2); DELETE FROM u; INSERT INTO u VALUES (5, 2, 7)",
    ),
    "key_that_heirs_spoil": (
        "CREATE TABLE t (id int PRIMARY KEY, k int, v int, twice int); CREATE TABLE w (LIKE t);"
        "INSERT INTO w VALUES (1, 2, 2), (1, 2, 2)",
        "ALTER TABLE w INHERIT t",
        "INSERT INTO w VALUES (1, 1, 3), (1, 2, 2); UPDATE t SET v = 3 WHERE id = 1",
    ),
}


@pytest.mark.parametrize("source", SOURCES)
def test_sources_that_are_no_plain_tables(orc, source):
    table, ddl, change = SOURCES[source]
    orc.execute(table)
    orc.execute(
        "INSERT INTO t (id, k, v) SELECT g, 1 + g % 2, g % 4 FROM generate_series(1, 12) AS g"
    )
    for name, query in VIEWS.items():
        orc.create_view(name, query, strategy="id")
    assert all(report.equal for report in orc.check())
    for statement in (
        "INSERT INTO t (id, k, v) VALUES (20, 1, 3), (21, 2, 3), (22, 5, NULL)",
        "UPDATE t SET v = v + 1 WHERE k = 1",
        "DELETE FROM t WHERE v = 3",
        ddl,
        change,
        "UPDATE t SET v = 4 WHERE v IS NULL OR v < 2",
        "TRUNCATE t",
        "INSERT INTO t (id, k, v) VALUES (1, 1, 3), (2, 1, 4)",
    ):
        orc.execute(statement)
        different = {r.view: (r.missing_rows, r.surplus_rows) for r in orc.check() if not r.equal}
        assert different == {}, statement


def test_rows_of_types_without_an_order(orc):
    """Without a key such rows are found by their digest, which alone is indexed."""
    orc.execute(
        """
        CREATE TABLE t (doc json, place point, n int);
        INSERT INTO t VALUES ('{}', '(1,2)', 1), ('{}', '(1,2)', 1), (NULL, NULL, NULL);
        CREATE VIEW v WITH (strategy = id) AS SELECT doc, doc AS again, place, n FROM t
        """
    )
    orc.execute(
        "INSERT INTO t VALUES ('{}', '(1,2)', 1), ('{ }', NULL, 2); DELETE FROM t WHERE n IS NULL"
    )
    assert orc.check("v")[0].equal
    orc.execute("DELETE FROM t WHERE doc::text = '{}'; UPDATE t SET place = '(0,0)'")
    assert orc.check("v")[0].equal
    (indexes,) = orc.connection.execute(
        "SELECT array_agg(indexdef) FROM pg_indexes WHERE schemaname = 'idivm_state'"
    ).fetchone()
    assert len(indexes) == 1


def test_equal_rows_of_stored_joins(orc):
    """Rows of a table without a key are told apart in the joins that `recursive` stores."""
    orc.execute("CREATE TABLE t (a int, b int, c int)")
    join = "t AS i JOIN t AS p ON i.c = p.c JOIN t AS g ON p.a = g.c"
    orc.create_view("v", f"SELECT p.b FROM {join}", strategy="recursive")
    orc.create_view(
        "sums", f"SELECT i.b, count(*) AS n FROM {join} GROUP BY i.b", strategy="recursive"
    )
    for change in (
        "INSERT INTO t VALUES (0, 0, 0), (NULL, NULL, 0)",
        "INSERT INTO t VALUES (NULL, NULL, 0), (6, 3, 0), (0, 0, NULL), (0, 0, 2)",
        "DELETE FROM t WHERE b IS NULL",
        "UPDATE t SET c = 0",
    ):
        orc.execute(change)
        assert all(report.equal for report in orc.check())
