"""What the cost model expects of values that many rows have, beside what a change meets on average."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.integration

TABLES = """
CREATE TABLE r (a int, b int, PRIMARY KEY (a, b)); CREATE TABLE s (b int, c int, PRIMARY KEY (b, c));
CREATE TABLE t (c int, a int, PRIMARY KEY (c, a));
CREATE INDEX ON r (b); CREATE INDEX ON s (c); CREATE INDEX ON t (a);
INSERT INTO r SELECT x, y FROM generate_series(1, 200) x, generate_series(1, 2000 / x) y;
INSERT INTO s SELECT y, x FROM r AS pair (x, y); INSERT INTO t SELECT y, x FROM r AS pair (x, y);
ANALYZE r, s, t
"""


def inserted(orc, source):
    """What a row costs that is inserted into a table."""
    costs = orc.view("v").plan.program.costs
    [cost] = [cost for cost in costs if (cost.source, cost.kind) == (f"public.{source}", "insert")]
    orc.drop_view("v")
    return cost


@pytest.mark.parametrize("source", ["r", "s"])
def test_frequent_values_are_expected_to_change_often(orc, source):
    other = {"r": "s", "s": "r"}[source]
    orc.execute(TABLES)
    [(met,)] = orc.execute(
        f"SELECT avg(n)::float FROM {source} JOIN (SELECT b, count(*) AS n FROM {other} GROUP BY b) AS o USING (b)"
    )[0].rows
    [(uniform,)] = orc.execute(f"SELECT count(*)::float / count(DISTINCT b) FROM {other}")[0].rows
    assert met > 5 * uniform
    orc.create_view("v", "SELECT count(*) FROM r JOIN s USING (b)", strategy="tuple")
    assert met / 2 < inserted(orc, source).p < met * 2
    # All that a row is joined with lies in one group, which is read once.
    query = "SELECT r.b, string_agg(s.c::text, ',' ORDER BY s.c), count(*) FROM r JOIN s USING (b) GROUP BY r.b"
    orc.create_view("v", query, strategy="tuple")
    [(group,)] = orc.execute(
        f"SELECT avg(n)::float FROM {source} JOIN (SELECT b, count(*) AS n FROM r JOIN s USING (b) GROUP BY b) AS o USING (b)"
    )[0].rows
    assert group / 3 < inserted(orc, source).accesses < group * 3


def test_a_key_from_two_tables_is_found_by_chance(orc):
    orc.execute(TABLES)
    query = "SELECT r.a, r.b, s.c FROM r JOIN s USING (b) JOIN t ON t.c = s.c AND t.a = r.a"
    [(closed,)] = orc.execute(
        f"SELECT count(*)::float / (SELECT count(*) FROM r) FROM ({query}) q"
    )[0].rows
    orc.create_view("v", query, strategy="id")
    cost = inserted(orc, "r")
    assert closed / 3 < cost.g * cost.p < closed * 3


def test_a_view_tree_is_chosen_for_what_it_saves_in_large_diffs(orc):
    """A single change costs a third of that under `id`, and many changed rows share the groups."""
    for place, (table, column, other) in enumerate(("rab", "sbc", "tca")):
        orc.execute(
            f"CREATE TABLE {table} AS SELECT DISTINCT (hashint4extended(3 * n + {place}, 1) & 1048575) % 60 AS {column},"
            f" (hashint4extended(3 * n + {place}, 2) & 1048575) % 60 AS {other} FROM generate_series(1, 3000) AS n;"
            f"ALTER TABLE {table} ADD PRIMARY KEY ({column}, {other}); CREATE INDEX ON {table} ({other}, {column});"
            f"ANALYZE {table}"
        )
    query = "SELECT r.a, count(*) AS paths FROM r JOIN s USING (b) JOIN t USING (c) GROUP BY r.a"
    orc.create_view("v", query, strategy="id", cache="off")
    looked_up = max(cost.least for cost in orc.view("v").plan.program.costs)
    orc.drop_view("v")
    orc.create_view("v", query, cache="off")
    program = orc.view("v").plan.program
    assert program.variant == "viewtree"
    assert max(cost.least for cost in program.costs) < looked_up / 20
    orc.execute("UPDATE s SET c = -c - 1 WHERE b % 10 = 3")
    assert all(report.equal for report in orc.check())
