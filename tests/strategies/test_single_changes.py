"""A refresh after a single change of a large group or partition reads a few rows, and not the group."""

from __future__ import annotations

import pytest

from orchestrator.bench.measure import states_touched

VIEWS = {
    "min": "SELECT g, min(v) AS r FROM big GROUP BY g",
    "max": "SELECT g, max(v) FILTER (WHERE id > 5) AS r, sum(v) AS s FROM big GROUP BY g",
    "values": "SELECT g, count(DISTINCT v) AS r, sum(DISTINCT v) AS s FROM big GROUP BY g",
    "texts": "SELECT count(DISTINCT t) AS r FROM big",
    "mean": "SELECT g, avg(f) AS r, stddev(f) AS d FROM big GROUP BY g",
    "spread": "SELECT g, stddev(v) AS r, stddev_pop(v / 3.0) AS d, variance(v::numeric(9, 1)) AS s FROM big GROUP BY g",
    "nth": "SELECT id, v, row_number() OVER (PARTITION BY g ORDER BY id) AS r FROM big",
    "rank": "SELECT id, rank() OVER (PARTITION BY g ORDER BY v DESC) AS r FROM big",
    "running": "SELECT id, sum(v) OVER (PARTITION BY g ORDER BY id) AS r, t FROM big",
    "neighbors": "SELECT id, lag(v) OVER (ORDER BY id) AS r, lead(v, 2) OVER (ORDER BY id) AS s FROM big",
}

CHANGES = (
    "UPDATE big SET v = v + 3, t = t || 'x' WHERE id = 20000",
    "UPDATE big SET t = 'y' WHERE id = 2000",
    "INSERT INTO big VALUES (20001, 1, 50, 0.25, 'z')",
    "DELETE FROM big WHERE id = 20001",
)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["id", "tuple"])
def test_a_single_change_reads_a_few_rows(orc, strategy):
    orc.execute(
        "CREATE TABLE big (id int PRIMARY KEY, g int NOT NULL, v int, f float8, t text);"
        "INSERT INTO big SELECT n, 1, n * 7919 % 25000 + 10, n / 7.0, 't' || n % 50"
        " FROM generate_series(1, 20000) AS n; ANALYZE big"
    )
    for name, query in VIEWS.items():
        orc.create_view(f'"{name}"', query, strategy=strategy)
    orc.execute("ANALYZE")
    for change in CHANGES:
        orc.execute(change)
        for name in VIEWS:
            with orc.connection.transaction():
                before = _rows_read(orc)
                orc.connection.execute("SELECT * FROM idivm.refresh(%s)", [f'"{name}"'])
                assert _rows_read(orc) - before < 500, (name, change)
    assert all(report.equal for report in orc.check())


def _rows_read(orc) -> int:
    [count] = orc.connection.execute(
        "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_all_tables"
        " WHERE schemaname = 'idivm_state' OR relname = 'big'"
    ).fetchone()
    return count


@pytest.mark.parametrize("group", ["1", "NULL"])
def test_a_group_that_may_be_null_is_found_with_its_value(orc, group):
    orc.execute(
        "CREATE TABLE big (id int PRIMARY KEY, g int, v int);"
        f"INSERT INTO big SELECT n, {group}, n FROM generate_series(1, 20000) AS n; ANALYZE big"
    )
    orc.create_view("values", "SELECT g, count(DISTINCT v) AS r FROM big GROUP BY g", strategy="id")
    orc.execute("ANALYZE")
    for change in (
        f"INSERT INTO big VALUES (0, {group}, 7)",
        "UPDATE big SET v = 8 WHERE id = 0",
        "DELETE FROM big WHERE id = 0",
    ):
        orc.execute(change)
        with orc.connection.transaction():
            before = states_touched(orc.connection)
            orc.connection.execute("SELECT * FROM idivm.refresh('values')")
            assert states_touched(orc.connection) - before < 40, change
    assert all(report.equal for report in orc.check())


@pytest.mark.parametrize("groups", ["g", "g, h"])
def test_one_group_by_null_has_no_other_group_read_more(orc, groups):
    orc.execute(
        "CREATE TABLE big (id int PRIMARY KEY, g int, h int, v int);"
        "INSERT INTO big SELECT n, CASE WHEN n % 10 > 0 THEN n / 20 END, nullif(n % 3, 0), n"
        " FROM generate_series(1, 5000) AS n;"
        f"CREATE INDEX ON big ({groups}); ANALYZE big"
    )
    orc.create_view(
        "lists",
        f"SELECT {groups}, string_agg(v::text, ',' ORDER BY v) AS r FROM big GROUP BY {groups}",
        strategy="id",
    )
    # Some 30 groups, among them those of 500 rows without g.
    orc.execute("UPDATE big SET v = v + 1 WHERE id BETWEEN 1001 AND 1030")
    with orc.connection.transaction():
        before = _big_rows_read(orc)
        orc.connection.execute("SELECT * FROM idivm.refresh('lists')")
        assert _big_rows_read(orc) - before < 1200
    assert not orc.view("lists").recomputed
    assert all(report.equal for report in orc.check())


@pytest.mark.parametrize("strategy", ["id", "tuple"])
def test_a_group_by_null_of_a_join_in_parentheses(orc, strategy):
    orc.execute("CREATE TABLE t (id int PRIMARY KEY, g int, h int, v int)")
    orc.create_view(
        "lists",
        "SELECT x.a, t.g, string_agg(t.v::text, ',') AS r FROM (VALUES (1, 2), (NULL, 3)) AS x (a, b)"
        " JOIN t ON t.h = x.b GROUP BY x.a, t.g",
        strategy=strategy,
    )
    for change in (
        "INSERT INTO t VALUES (1, 1, 2, 10), (2, NULL, 2, 20), (3, 1, 3, 30), (4, NULL, 3, 40)",
        "UPDATE t SET v = v + 1",
        "DELETE FROM t WHERE g IS NULL",
    ):
        orc.execute(change)
        [report] = orc.refresh()
        assert not report.recomputed
        assert orc.check("lists")[0].equal, change


@pytest.mark.parametrize("strategy", ["auto", "id", "tuple", "recursive"])
@pytest.mark.parametrize(
    "selected",
    [
        "max(x.v)",
        "min(x.v), count(*)",
        "string_agg(x.v::text, ',' ORDER BY x.v)",
        "avg(x.v::float8)",
    ],
)
@pytest.mark.parametrize("other", ["t", "u"])
@pytest.mark.sampled(8)
def test_a_join_that_is_aggregated_into_one_row_loses_all_rows(orc, strategy, selected, other):
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 4) i;"
        "CREATE TABLE u (id int PRIMARY KEY, w int); INSERT INTO u SELECT i, i FROM generate_series(1, 4) i"
    )
    orc.create_view(
        "one", f"SELECT {selected} FROM t AS x JOIN {other} USING (id)", strategy=strategy
    )
    for change in ("DELETE FROM t", "INSERT INTO t VALUES (2, 2)", "UPDATE t SET id = 9"):
        orc.execute(change)
        [report] = orc.refresh()
        assert not report.recomputed
        assert orc.check("one")[0].equal, change


def _big_rows_read(orc) -> int:
    [count] = orc.connection.execute(
        "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)"
        " FROM pg_stat_xact_all_tables WHERE relname = 'big'"
    ).fetchone()
    return count


def test_the_root_of_a_variance_has_the_digits_of_the_deviation(orc):
    """Numbers of every size and scale: 2,000 groups of random numerics from 1e-20 to 1e24."""
    [row] = orc.execute(
        "SELECT count(*), count(*) FILTER (WHERE stddev::text <> root::text) FROM (SELECT stddev(x),"
        " idivm.square_root(variance(x)) AS root FROM (SELECT g, hashint8extended(i, g) % 1000000007 * 10::numeric ^ (g % 41 - 24)"
        " AS x FROM generate_series(1, 2000) AS g, generate_series(1, 3 + g % 5) AS i) AS numbers GROUP BY g) AS roots"
    )[0].rows
    assert row == (2000, 0)
