"""Sums of numerics show as many places as PostgreSQL's, whether these are known beforehand or counted."""

from __future__ import annotations

import pytest

TABLE = """
CREATE DOMAIN price AS numeric(9,2);
CREATE TABLE lines (id int PRIMARY KEY, g int, a price, b numeric(4,3), tens numeric(5,-1), n int, free numeric);
INSERT INTO lines SELECT i, i % 4, i * 1.25, i * 0.011, i * 37, i % 3, i * 1.1 FROM generate_series(1, 20) AS i
"""

KNOWN = {
    "discounted": "sum(a * (1 - b))",
    "mean": "avg(a * b)",
    "negative": "sum(- a)",
    "times": "sum(a * n)",
    "rounded": "sum(a + tens)",
    "cut": "sum(round(a * b, 1))",
    "cast": "sum((n * 0.3333)::numeric(12,3))",
    "filled": "sum(coalesce(a, 0.00))",
    "some": "sum(CASE WHEN n = 1 THEN a WHEN n = 2 THEN 0.50 END)",
    "filtered": "sum(a - 0.125) FILTER (WHERE n > 0)",
}
COUNTED = {
    "otherwise": "sum(CASE WHEN n = 1 THEN a ELSE 0 END)",
    "free": "sum(a + free)",
    "divided": "sum(a / 3)",
    "modulo": "sum(a % 3)",
}

CHANGES = (
    "UPDATE lines SET a = a + 0.01, b = -b WHERE id < 8",
    "UPDATE lines SET a = 'NaN' WHERE g = 1",
    "INSERT INTO lines VALUES (30, 9, 'NaN', 1, 10, 1, 'Infinity'), (31, 8, NULL, NULL, NULL, 1, NULL)",
    "UPDATE lines SET a = 2 WHERE id = 30",
    "UPDATE lines SET a = 7, free = 1e3 WHERE a = 'NaN'",
    "UPDATE lines SET n = n + 1, tens = 1234",
    "DELETE FROM lines WHERE id % 4 < 2",
    "UPDATE lines SET a = NULL WHERE g = 2; UPDATE lines SET a = 1 WHERE id = 31",
    "UPDATE lines SET g = 3, a = 'NaN' WHERE id IN (2, 6)",
    "DELETE FROM lines",
    "INSERT INTO lines VALUES (1, 1, 1, 1, 1, 1, 1)",
)


@pytest.mark.sampled(7)
@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("strategy", ["id", "tuple", "viewtree"])
def test_sums_show_the_places_that_they_should(orc, strategy):
    orc.execute(TABLE)
    views = {**KNOWN, **COUNTED}
    for name, call in views.items():
        orc.create_view(name, f"SELECT g, {call} AS s FROM lines GROUP BY g", strategy=strategy)
    # Of what a query below computes it is known too.
    orc.create_view(
        "below",
        "SELECT g, sum(x) AS s FROM (SELECT g, a * b AS x FROM lines) AS q GROUP BY g",
        strategy=strategy,
    )
    if strategy != "viewtree":
        assert counts_scale(orc) == COUNTED.keys()
    for change in CHANGES:
        orc.execute(change)
        different = {r.view: (r.missing_rows, r.surplus_rows) for r in orc.check() if not r.equal}
        assert different == {}, change


def counts_scale(orc) -> set[str]:
    """The views that keep how many values show how many places."""
    rows = orc.connection.execute(
        "SELECT v.relation::text FROM idivm.views AS v JOIN pg_attribute AS a ON a.attrelid = v.state"
        " WHERE a.attname LIKE 'idivm\\_scales%'"
    ).fetchall()
    return {name for (name,) in rows}
