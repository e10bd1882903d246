"""Subqueries that stand in GROUP BY, DISTINCT ON or an aggregate and again elsewhere are the same."""

from __future__ import annotations

from collections import Counter

import psycopg
import pytest

TABLES = """
CREATE TABLE t (id int PRIMARY KEY, x int, g int);
CREATE TABLE e (id int PRIMARY KEY, y int, z int);
INSERT INTO t VALUES (1, 1, 1), (2, 2, 1), (3, 3, 2), (4, NULL, 2), (5, 1, 3);
INSERT INTO e VALUES (1, 1, 10), (2, 2, 20), (3, 2, NULL), (4, NULL, 5)
"""

K = "(SELECT max(z) FROM e WHERE y = t.x)"
SOME = "EXISTS (SELECT FROM e WHERE y = t.x)"

VIEWS = {
    "some": f"SELECT {SOME} AS k, count(*) AS n FROM t GROUP BY 1",
    "one_of": "SELECT t.x IN (SELECT y FROM e WHERE z > t.g) AS k, count(*) AS n FROM t GROUP BY 1",
    "inside": f"SELECT coalesce({K}, -1) AS k, CASE WHEN {SOME} THEN 1 END AS s, count(*) AS n FROM t GROUP BY 1, 2",
    "kept": f"SELECT count(*) AS n FROM t GROUP BY {SOME} HAVING {SOME}",
    "sets": f"SELECT {SOME} AS k, g, grouping({SOME}) AS b, count(*) AS n FROM t GROUP BY GROUPING SETS (({SOME}, g), (g), ())",
    "firsts": f"SELECT DISTINCT ON ({K}) id, x FROM t ORDER BY {K}, id",
    "listed": f"SELECT g, array_agg(DISTINCT {K} ORDER BY {K}) AS ks FROM t GROUP BY g",
    "numbered": f"SELECT {SOME} AS k, count(*) AS n, row_number() OVER (ORDER BY {SOME}) AS r FROM t GROUP BY 1",
    "nested": f"SELECT id, (SELECT count(*) FROM t u WHERE u.g = q.g GROUP BY {K.replace('t.x', 'u.x')}"
    f" ORDER BY {K.replace('t.x', 'u.x')} LIMIT 1) AS n FROM t q",
    "united": "SELECT (SELECT y FROM e WHERE y = t.x AND y > 1 UNION SELECT 1 WHERE t.x = 1) AS k, max(g) AS m"
    " FROM t WHERE id <> 2 GROUP BY 1",
}

CHANGES = (
    "INSERT INTO t VALUES (6, 2, 5), (7, 9, 9); UPDATE t SET x = x + 1 WHERE id IN (1, 4); DELETE FROM t WHERE id = 3",
    "INSERT INTO e VALUES (10, 9, 1), (11, 4, 4); DELETE FROM e WHERE id IN (1, 3); UPDATE e SET z = 7 WHERE id = 2",
    "DELETE FROM e",
)


def differing(orc, views: dict[str, str]) -> list[str]:
    """The views whose rows are not those of their queries."""
    with psycopg.connect(orc.connection.info.dsn) as plain:

        def bag(query: str) -> Counter[str]:
            rows = plain.execute(f"SELECT q::text FROM ({query}) AS q".encode()).fetchall()
            return Counter(text for (text,) in rows)

        return [v for v, query in views.items() if bag(f'TABLE "{v}"') != bag(query)]


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("strategy", ["id", "tuple"])
def test_repeated_subqueries_make_no_further_groups(orc, strategy):
    orc.execute(TABLES)
    for name, query in VIEWS.items():
        orc.create_view(f'"{name}"', query, strategy=strategy)
    assert differing(orc, VIEWS) == []
    for change in CHANGES:
        orc.execute(change)
        orc.refresh()
        assert differing(orc, VIEWS) == [], change


def test_expressions_that_no_table_can_hold_are_recomputed(orc):
    orc.execute(TABLES)
    views = {
        "by_row": "SELECT count(*) AS n FROM t GROUP BY ROW(x, g)",
        "direct": f"SELECT g, percentile_disc((SELECT 0.5)) WITHIN GROUP (ORDER BY {K}) AS p FROM t GROUP BY g",
    }
    for name, query in views.items():
        assert orc.create_view(name, query).strategy == "recompute"
    for change in CHANGES:
        orc.execute(change)
        orc.refresh()
        assert differing(orc, views) == [], change
