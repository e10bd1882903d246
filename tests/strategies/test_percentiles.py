"""Percentiles and modes are found among the stored values of a group, and follow every change."""

import random

import pytest

TABLES = """
CREATE TABLE t (id int PRIMARY KEY, g int, n int, f float8, d date, at timestamptz);
INSERT INTO t SELECT i, i % 5, i % 7, i % 4 * 0.1, date '2024-01-01' + i % 6, '2024-01-01 00:00 UTC'::timestamptz
    FROM generate_series(1, 60) AS i;
"""

AGGREGATES = """
    percentile_cont(0.5) WITHIN GROUP (ORDER BY n) AS median,
    percentile_cont(0.3) WITHIN GROUP (ORDER BY n DESC) FILTER (WHERE id % 3 <> 0) AS some,
    percentile_cont(0.9) WITHIN GROUP (ORDER BY f) AS float, percentile_cont(0) WITHIN GROUP (ORDER BY f) AS first,
    percentile_disc(0.25) WITHIN GROUP (ORDER BY n) AS quarter, percentile_disc(1) WITHIN GROUP (ORDER BY n + g) AS last,
    percentile_disc(0.6) WITHIN GROUP (ORDER BY d DESC) AS day, percentile_disc(0) WITHIN GROUP (ORDER BY at) AS at,
    mode() WITHIN GROUP (ORDER BY n) AS mode, mode() WITHIN GROUP (ORDER BY d DESC) AS latest,
    count(*) AS rows, sum(n) AS total, max(n) AS most, count(DISTINCT n) AS values
"""

ALONE = (
    "percentile_cont(0.75) WITHIN GROUP (ORDER BY n DESC)",
    "percentile_cont(0.3) WITHIN GROUP (ORDER BY f)",
    "percentile_disc(0.4) WITHIN GROUP (ORDER BY d DESC)",
    "percentile_disc(0.4) WITHIN GROUP (ORDER BY at)",
    "mode() WITHIN GROUP (ORDER BY n DESC)",
)
"""The only aggregate of its view, each. With several aggregates, a small group is recomputed from its rows instead."""


def change(orc, rng):
    """One statement that inserts, updates or deletes some rows."""
    ids = ", ".join(map(str, rng.sample(range(1, 90), rng.choice([1, 3, 40]))))
    row = "nullif({}, 3), nullif({}, 5), nullif({} * 0.7, 2.1), date '2024-01-01' + {}, '2024-01-01 UTC'::timestamptz + {} * interval '1 h'"
    values = row.format(
        *(f"(id * {rng.randint(1, 9)} + {rng.randint(0, 9)}) % 8" for _ in range(5))
    )
    orc.execute(
        rng.choice(
            [
                f"UPDATE t SET (g, n, f, d, at) = ROW ({values}) WHERE id IN ({ids})",
                f"UPDATE t SET n = n + 1 WHERE id IN ({ids})",
                f"DELETE FROM t WHERE id IN ({ids})",
                f"INSERT INTO t SELECT id, {values} FROM unnest(ARRAY[{ids}]) AS id ON CONFLICT DO NOTHING",
            ]
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["id", "tuple"])
@pytest.mark.parametrize("maintain", ["deferred", "eager"])
def test_they_follow_every_change(orc, strategy, maintain):
    orc.execute(TABLES)
    options = {"strategy": strategy, "maintain": maintain}
    orc.create_view("groups", f"SELECT g, {AGGREGATES} FROM t GROUP BY g", **options)
    orc.create_view("whole", f"SELECT {AGGREGATES} FROM t", **options)
    for number, aggregate in enumerate(ALONE):
        orc.create_view(
            f"alone_{number}", f"SELECT g, {aggregate} AS x FROM t GROUP BY g", **options
        )
    orc.create_view("above", "SELECT median, count(*) FROM groups GROUP BY median", **options)
    rng = random.Random(7)
    for _ in range(12):
        change(orc, rng)
        orc.refresh()
        assert [report.view for report in orc.check() if not report.equal] == []
    orc.execute("DELETE FROM t WHERE g = 1; UPDATE t SET n = NULL WHERE g = 2")
    orc.refresh()
    orc.execute("DELETE FROM t")
    orc.refresh()
    assert all(report.equal for report in orc.check())


def test_rows_that_do_not_change_are_not_read(orc):
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, g int, n int);"
        " INSERT INTO t SELECT i, i % 2, i % 10 FROM generate_series(1, 20000) AS i; ANALYZE t"
    )
    orc.create_view(
        "v",
        "SELECT g, percentile_cont(0.5) WITHIN GROUP (ORDER BY n) AS m FROM t GROUP BY g",
        strategy="id",
    )
    orc.execute("UPDATE t SET n = 3 WHERE id = 4")
    read = "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_all_tables WHERE relname = 't'"
    with orc.connection.transaction():
        before = orc.connection.execute(read).fetchall()
        orc.connection.execute("SELECT * FROM idivm.refresh('v')")
        assert orc.connection.execute(read).fetchall() == before
    assert orc.check()[0].equal


def test_values_that_hardly_repeat_are_not_stored(orc):
    orc.execute(
        "CREATE TABLE t (id int PRIMARY KEY, g int, n int);"
        " INSERT INTO t SELECT i, i % 2, i FROM generate_series(1, 1000) AS i; ANALYZE t"
    )
    query = "SELECT g, percentile_disc(0.5) WITHIN GROUP (ORDER BY n) AS m FROM t GROUP BY g"
    orc.create_view("v", query, strategy="id")
    assert "values" not in orc.explain("v").script
