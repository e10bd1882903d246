"""Joins with other comparisons than equalities: an update writes only the pairs whose membership changes."""

from __future__ import annotations

import pytest

TABLES = """
    CREATE TABLE r (id int PRIMARY KEY, g int NOT NULL, a int, n text);
    CREATE TABLE s (id int PRIMARY KEY, g int NOT NULL, b int, c int, m text);
    INSERT INTO r SELECT i, i % 4, i % 30, 'r' || i FROM generate_series(1, 60) AS i;
    INSERT INTO s SELECT i, i % 4, i % 25, i % 9, 's' || i FROM generate_series(1, 60) AS i;
    ANALYZE r, s
"""

VIEWS = {
    "equal": "SELECT r.id, s.id AS sid, r.a, s.b, n, m FROM r JOIN s ON r.g = s.g AND r.a < s.b",
    "ranges": "SELECT r.id, s.id AS sid, n, m FROM r JOIN s ON r.a BETWEEN s.c AND s.b",
    "own": "SELECT x.id, y.id AS yid, x.a, y.n FROM r AS x JOIN r AS y ON x.g = y.g AND x.a <= y.a",
    "sums": "SELECT s.c, count(*) AS n, sum(r.a) AS a FROM r JOIN s ON r.a <> s.b GROUP BY s.c",
    "outer": "SELECT r.id, s.id AS sid FROM r LEFT JOIN s ON r.g = s.g AND r.a > s.b",
    "three": "SELECT r.id, s.id AS sid, y.id AS yid, y.a FROM r JOIN s ON r.g = s.g AND r.a < s.b"
    " JOIN r AS y ON y.id = s.id AND y.a <> r.a",
}

CHANGES = (
    "UPDATE r SET a = a + 1 WHERE id % 3 = 0",
    "UPDATE s SET b = b - 2, c = c + 1 WHERE id % 4 = 0",
    "UPDATE r SET a = 40 - a; UPDATE s SET b = 40 - b, c = b",
    "UPDATE r SET a = NULL WHERE id = 7; UPDATE s SET b = NULL, m = 'none' WHERE id % 10 = 3",
    "UPDATE r SET a = 5, n = 'five' WHERE a IS NULL; UPDATE s SET b = 6 WHERE b IS NULL",
    "UPDATE r SET g = g + 1, a = a - 1 WHERE id % 5 = 0; UPDATE s SET g = 1, b = b + 3 WHERE id % 6 = 0",
    "UPDATE r SET a = a + 7; DELETE FROM s WHERE id % 7 = 0; UPDATE s SET b = b + 7;"
    " INSERT INTO r VALUES (100, 1, 9, 'new'); INSERT INTO s VALUES (100, 1, 10, 8, 'new')",
)


@pytest.mark.parametrize("cache", ["on", "off"])
def test_updates_of_one_side_and_of_both(orc, cache):
    orc.execute(TABLES)
    for name, query in VIEWS.items():
        orc.create_view(name, query, strategy="id", cache=cache)
    for statements in CHANGES:
        orc.execute(statements)
        orc.refresh(*VIEWS)
        assert [report.view for report in orc.check() if not report.equal] == [], statements


def test_pairs_that_stay_are_not_written(orc):
    orc.execute(TABLES)
    for name in ("equal", "ranges"):
        query = VIEWS[name].replace("r.a, s.b, ", "")
        orc.create_view(name, query, strategy="id")
        before = stored_at(orc, name)
        orc.execute("UPDATE r SET a = a + 9 - id % 19 WHERE id % 3 = 0")
        orc.refresh(name)
        after = stored_at(orc, name)
        assert all(report.equal for report in orc.check())
        assert before.keys() - after.keys() and after.keys() - before.keys()
        assert all(before[pair] == after[pair] for pair in before.keys() & after.keys())


def stored_at(orc, name):
    """Returns where the rows of a view are stored."""
    [(state,)] = orc.execute(f"SELECT state::text FROM idivm.views WHERE id = {orc.view(name).id}")[
        0
    ].rows
    return {row[:2]: row[2] for row in orc.execute(f"SELECT id, sid, ctid FROM {state}")[0].rows}
