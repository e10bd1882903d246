"""What a change costs below a condition with subqueries, which a refresh evaluates for the changed rows."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.integration

ROWS, OTHERS = 20_000, 100
TABLES = f"""
CREATE TABLE a (id int PRIMARY KEY, x int, y int); CREATE TABLE b (id int PRIMARY KEY, x int);
INSERT INTO a SELECT i, i % 1000, i FROM generate_series(1, {ROWS}) AS i;
INSERT INTO b SELECT i, i FROM generate_series(1, {OTHERS}) AS i;
ANALYZE a, b
"""
VIEWS = {
    "not in": "SELECT id, y FROM a WHERE x NOT IN (SELECT x FROM b)",
    "or in": "SELECT id, y FROM a WHERE y = 3 OR x IN (SELECT x FROM b)",
    "or exists": "SELECT id, y FROM a WHERE y = 3 OR EXISTS (SELECT FROM b WHERE b.x = a.x)",
    "selected": "SELECT id, x IN (SELECT x FROM b) AS found FROM a",
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_changed_row_is_compared_with_the_rows_of_the_subquery(orc, name):
    orc.execute(TABLES)
    orc.create_view("v", VIEWS[name], strategy="id")
    costs = orc.view("v").plan.program.costs
    assert max(cost.accesses for cost in costs if cost.source == "public.a") < 2 * OTHERS
    assert max(cost.accesses for cost in costs if cost.source == "public.b") < 3 * ROWS
    orc.execute(
        "INSERT INTO a VALUES (0, 7, 7), (-1, -7, 7), (-2, NULL, 3);"
        "UPDATE a SET x = -x WHERE id = 8; DELETE FROM a WHERE id = 9"
    )
    [report] = orc.refresh("v")
    assert not report.recomputed
    orc.execute("INSERT INTO b VALUES (0, 999); DELETE FROM b WHERE id = 5")
    assert all(report.equal for report in orc.check())
    orc.execute("INSERT INTO b VALUES (-1, NULL)")
    assert all(report.equal for report in orc.check())
