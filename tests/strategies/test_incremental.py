"""Every operator under every kind of change, by every incremental strategy, against the oracle."""

from __future__ import annotations

import pytest

from orchestrator.errors import UnsupportedError

pytestmark = pytest.mark.integration

TABLES = """
CREATE TABLE parts (pid int PRIMARY KEY, price numeric, kind text);
CREATE TABLE devices (did int PRIMARY KEY, category text, parent int);
CREATE TABLE devices_parts (did int, pid int, n int, PRIMARY KEY (did, pid));
INSERT INTO parts SELECT g, CASE WHEN g % 7 > 0 THEN g * 1.50 END, 'k' || g % 3 FROM generate_series(1, 20) AS g;
INSERT INTO devices SELECT g, CASE g % 3 WHEN 0 THEN 'phone' WHEN 1 THEN 'tablet' END, g / 2
FROM generate_series(1, 12) AS g;
INSERT INTO devices_parts SELECT DISTINCT ON (d, p) d, p, g
FROM generate_series(1, 60) AS g, LATERAL (VALUES (1 + g * 5 % 12, 1 + g * 7 % 20)) AS v (d, p)
"""

VIEWS = {
    "spj": "SELECT did, pid, price FROM parts JOIN devices_parts USING (pid) JOIN devices USING (did)"
    " WHERE category = 'phone'",
    "bag": "SELECT price FROM parts JOIN devices_parts USING (pid)",
    "twice": "SELECT price AS a, price AS b, pid FROM parts",
    "computed": "SELECT d.did, p.price * dp.n AS cost, upper(p.kind) AS kind FROM parts p"
    " JOIN devices_parts dp ON dp.pid = p.pid AND dp.n > p.pid JOIN devices d ON d.did = dp.did",
    "self": "SELECT a.did, b.did AS child, b.category FROM devices a JOIN devices b ON b.parent = a.did",
    "theta": "SELECT a.pid, b.pid AS dearer FROM parts a JOIN parts b ON a.price < b.price AND a.kind = b.kind",
    "cross": "SELECT p.pid, d.did FROM parts p, devices d WHERE p.price > 20 AND d.category IS NULL",
    "parents": "SELECT a.did, b.category FROM devices a JOIN devices b ON b.did = a.parent WHERE a.category = 'phone'",
    "parents_of_some": "SELECT a.did, b.category FROM devices a JOIN devices b ON b.did = a.parent"
    " WHERE EXISTS (SELECT FROM devices_parts dp WHERE dp.did = a.did AND dp.n > 30)",
    "branches": "SELECT pid AS id, kind FROM parts WHERE price > 10 UNION ALL SELECT did, category FROM devices",
    "sums": "SELECT did, sum(price) AS cost, count(*) AS n, avg(price) AS mean, count(price) AS priced"
    " FROM parts JOIN devices_parts USING (pid) GROUP BY did",
    "null_groups": "SELECT category, count(*) AS n, sum(did) AS s, avg(did) AS a FROM devices GROUP BY category",
    "whole": "SELECT count(*) AS n, sum(price) AS s, avg(n) AS a, sum(n) FILTER (WHERE kind = 'k1') AS f"
    " FROM parts JOIN devices_parts USING (pid)",
    "extremes": "SELECT kind, min(price) AS least, max(price) AS most, string_agg(pid::text, ',' ORDER BY pid) AS all"
    " FROM parts GROUP BY kind",
    "extreme": "SELECT max(price) AS most, bool_or(kind = 'k1') AS any FROM parts",
    "having": "SELECT kind, sum(price) AS s FROM parts GROUP BY kind HAVING sum(price) > 60",
    "nested": "SELECT n, count(*) AS devices FROM (SELECT did, count(*) AS n FROM devices_parts GROUP BY did) AS q"
    " GROUP BY n",
    "joined_groups": "SELECT d.did, d.category, q.cost FROM devices d JOIN (SELECT did, sum(price) AS cost"
    " FROM parts JOIN devices_parts USING (pid) GROUP BY did) AS q ON q.did = d.did AND q.cost > 15",
    "distinct": "SELECT DISTINCT category, kind FROM devices JOIN devices_parts USING (did) JOIN parts USING (pid)",
    "left": "SELECT d.did, d.category, dp.pid, dp.n FROM devices d LEFT JOIN devices_parts dp"
    " ON dp.did = d.did AND dp.n > 20",
    "left_groups": "SELECT d.category, count(dp.pid) AS n FROM devices d LEFT JOIN devices_parts dp USING (did)"
    " GROUP BY d.category",
    "left_twice": "SELECT p.pid, p.price, dp.did, d.category FROM parts p LEFT JOIN devices_parts dp USING (pid)"
    " LEFT JOIN devices d ON d.did = dp.did AND d.category = 'phone'",
    "some": "SELECT pid, kind FROM parts p WHERE EXISTS (SELECT FROM devices_parts dp WHERE dp.pid = p.pid AND dp.n > 30)",
    "none": "SELECT pid, kind FROM parts p WHERE NOT EXISTS (SELECT FROM devices_parts dp WHERE dp.pid = p.pid AND dp.n > 30)",
    "none_joined": "SELECT p.pid, p.price, d.did FROM parts p JOIN devices d ON d.did = p.pid"
    " WHERE NOT EXISTS (SELECT FROM devices_parts dp JOIN parts q ON q.pid = dp.pid"
    " WHERE dp.did = d.did AND q.price > 25)",
    "spread": "SELECT p.kind, var_samp(n) AS v, variance(n) FILTER (WHERE n > 20) AS f, var_pop(p.pid) AS p,"
    " bool_and(n > 5) AS every, bool_or(price > 20) AS some FROM parts p JOIN devices_parts USING (pid) GROUP BY p.kind",
    "spread_whole": "SELECT var_pop(n) AS p, var_samp(n) AS s, bool_or(n > 40) AS some FROM devices_parts",
    "full": "SELECT p.pid, p.price, d.did, d.category FROM parts p FULL JOIN devices d ON d.parent = p.pid",
    "full_using": "SELECT pid, p.kind, dp.n FROM parts p FULL JOIN devices_parts dp USING (pid) WHERE pid < 25",
    "full_groups": "SELECT a.k, a.s, b.n FROM (SELECT kind AS k, sum(price) AS s FROM parts GROUP BY kind) AS a"
    " FULL JOIN (SELECT category AS k, count(*) AS n FROM devices GROUP BY category) AS b ON a.k = b.k",
    "union": "SELECT pid AS id, kind FROM parts UNION SELECT parent, category FROM devices",
    "except": "SELECT pid FROM parts EXCEPT SELECT pid FROM devices_parts WHERE n > 20",
    "except_all": "SELECT kind FROM parts EXCEPT ALL SELECT 'k' || n % 3 FROM devices_parts WHERE n > 40",
    "intersect": "SELECT pid, kind FROM parts INTERSECT SELECT parent, 'k1' FROM devices",
    "intersect_all": "SELECT kind FROM parts INTERSECT ALL SELECT 'k' || n % 4 FROM devices_parts WHERE n > 20",
    "rollup": "SELECT category, parent, grouping(category, parent) AS g, count(*) AS n, sum(did) AS s FROM devices"
    " GROUP BY ROLLUP (category, parent)",
    "cube": "SELECT kind, category, sum(price) AS s FROM parts JOIN devices_parts USING (pid) JOIN devices USING (did)"
    " GROUP BY CUBE (kind, category) HAVING count(*) > 1",
    "sets": "SELECT kind, pid % 2 AS odd, max(price) AS m FROM parts GROUP BY GROUPING SETS ((kind), (pid % 2), (kind))",
    "above_average": "SELECT pid, price FROM parts WHERE price > (SELECT avg(price) FROM parts)",
    "against_total": "SELECT pid, price / (SELECT sum(n) FROM devices_parts WHERE n > 10) AS part FROM parts",
    "having_total": "SELECT kind, sum(price) AS s FROM parts GROUP BY kind HAVING sum(price) > (SELECT sum(price) * 0.3 FROM parts)",
    "counted": "SELECT d.did, (SELECT count(*) FROM devices_parts dp WHERE dp.did = d.did) AS n,"
    " (SELECT sum(n) + 1 FROM devices_parts dp WHERE dp.did = d.did AND n > 10) AS s FROM devices d",
    "greatest": "SELECT p.pid, (SELECT max(n) FROM devices_parts dp WHERE dp.pid = p.pid) AS most FROM parts p",
    "less_than_average": "SELECT sum(p.price) AS s FROM parts p JOIN devices_parts dp USING (pid)"
    " WHERE dp.n < (SELECT 0.9 * avg(q.n) FROM devices_parts q WHERE q.pid = p.pid)",
    "least": "SELECT p.pid, dp.did FROM parts p JOIN devices_parts dp USING (pid) WHERE dp.n ="
    " (SELECT min(q.n) FROM devices_parts q JOIN devices d USING (did) WHERE q.pid = p.pid AND d.category = 'phone')",
    "found": "SELECT d.did, (SELECT p.did FROM devices p WHERE p.did = d.parent) AS above,"
    " (SELECT upper(p.category) FROM devices p WHERE p.did = d.parent) AS category FROM devices d",
    "either": "SELECT pid FROM parts p WHERE p.price < 6 OR EXISTS (SELECT FROM devices_parts dp WHERE dp.pid = p.pid AND dp.n > 40)",
    "shown_test": "SELECT pid, NOT EXISTS (SELECT FROM devices d WHERE d.parent = p.pid) AS leaf,"
    " p.pid IN (SELECT parent FROM devices) AS inner FROM parts p",
    "not_in": "SELECT did FROM devices WHERE parent NOT IN (SELECT pid FROM parts WHERE price > 10)",
    "not_in_null": "SELECT pid FROM parts WHERE kind NOT IN (SELECT category FROM devices WHERE did > 4)",
    "not_in_correlated": "SELECT pid FROM parts p WHERE kind NOT IN (SELECT category FROM devices d WHERE d.parent = p.pid)",
    "pairs_in": "SELECT did, pid, (did, n) NOT IN (SELECT parent, did FROM devices) AS free FROM devices_parts",
    "all": "SELECT pid FROM parts p WHERE price >= ALL (SELECT q.price FROM parts q WHERE q.kind = p.kind)",
    "any": "SELECT pid FROM parts p WHERE price > ANY (SELECT n FROM devices_parts) IS NOT TRUE",
    "case": "SELECT kind, sum(CASE WHEN EXISTS (SELECT FROM devices d WHERE d.parent = p.pid) THEN 1 ELSE 0 END) AS n"
    " FROM parts p GROUP BY kind",
    "filtered": "SELECT kind, count(*) FILTER (WHERE pid IN (SELECT pid FROM devices_parts WHERE n > 30)) AS n"
    " FROM parts GROUP BY kind",
    "nested_in": "SELECT did FROM devices WHERE did IN (SELECT did FROM devices_parts dp WHERE n >"
    " (SELECT 0.9 * avg(q.n) FROM devices_parts q WHERE q.pid = dp.pid))",
    "doubly": "SELECT p.pid FROM parts p WHERE EXISTS (SELECT FROM devices_parts dp WHERE dp.pid = p.pid AND"
    " NOT EXISTS (SELECT FROM devices d WHERE d.did = dp.did AND d.parent < p.pid)) OR p.price IS NULL",
    "array": "SELECT p.pid, array_to_string(ARRAY(SELECT dp.did FROM devices_parts dp WHERE dp.pid = p.pid ORDER BY 1), ' ')"
    " AS dids FROM parts p",
    "on_subquery": "SELECT p.pid, dp.did FROM parts p LEFT JOIN devices_parts dp ON dp.pid = p.pid"
    " AND dp.n > (SELECT avg(n) FROM devices_parts)",
    "lateral_plain": "SELECT d.did, q.pid, q.cost FROM devices d, LATERAL (SELECT pid, n * d.did AS cost FROM devices_parts dp"
    " WHERE dp.did = d.did AND n > 15) AS q",
    "lateral_sum": "SELECT d.did, q.s, q.n FROM devices d CROSS JOIN LATERAL (SELECT sum(n) AS s, count(n) AS n FROM"
    " devices_parts dp WHERE dp.did = d.did) AS q",
    "lateral_groups": "SELECT d.did, q.* FROM devices d LEFT JOIN LATERAL (SELECT n % 2 AS odd, sum(pid) AS s FROM"
    " devices_parts dp WHERE dp.did = d.did GROUP BY n % 2) AS q ON true",
    "lateral_first": "SELECT p.pid, q.did, q.n FROM parts p LEFT JOIN LATERAL (SELECT did, n FROM devices_parts dp"
    " WHERE dp.pid = p.pid ORDER BY n DESC LIMIT 2) AS q ON q.n > 5",
    "series": "SELECT d.did, i FROM devices d, generate_series(d.parent, d.did) AS i",
    "series_sum": "SELECT d.category, sum(i) AS s FROM devices d, generate_series(d.parent, d.did) AS i GROUP BY d.category",
    "unnested": "SELECT p.pid, letter, nth FROM parts p LEFT JOIN unnest(string_to_array(p.kind, NULL)) WITH ORDINALITY"
    " AS u (letter, nth) ON true",
    "set_in_select": "SELECT p.pid, unnest(ARRAY[p.kind, p.price::text]) AS value FROM parts p",
    "cte": "WITH c AS (SELECT pid, price FROM parts WHERE price > 6) SELECT a.pid, b.pid AS other FROM c a JOIN c b"
    " ON a.price < b.price",
    "cte_groups": "WITH c AS (SELECT did, sum(price) AS s FROM parts JOIN devices_parts USING (pid) GROUP BY did)"
    " SELECT d.did, d.category, c.s FROM devices d JOIN c USING (did) WHERE c.s = (SELECT max(s) FROM c)",
    "cte_twice_shown": "WITH c AS (SELECT kind, max(price) AS a, max(price) AS b, kind AS other FROM parts GROUP BY kind)"
    " SELECT x.kind, x.a, x.b, y.other, y.b AS c FROM c x JOIN c y ON x.other = y.kind OR x.b < y.a",
    "cte_once": "WITH c AS (SELECT kind, count(*) AS n FROM parts GROUP BY kind) SELECT n, count(*) AS kinds FROM c GROUP BY n",
}

CHANGES = (
    "UPDATE parts SET price = price + 0.25 WHERE pid < 5",
    "UPDATE parts SET price = price + 0.125, kind = 'k1' WHERE pid IN (3, 8)",
    "UPDATE parts SET price = 'NaN' WHERE pid = 6",
    "UPDATE parts SET price = NULL WHERE kind = 'k2'",
    "UPDATE parts SET price = 7 WHERE price = 'NaN' OR pid = 12",
    "UPDATE devices SET category = 'phone' WHERE did IN (1, 2)",
    "UPDATE devices SET category = NULL, parent = 3 WHERE did IN (3, 6)",
    "UPDATE devices_parts SET n = 61 - n",
    "DELETE FROM devices_parts WHERE pid IN (2, 9)",
    "INSERT INTO parts VALUES (30, 5, 'k9'), (31, NULL, NULL); INSERT INTO devices_parts VALUES (1, 30, 99), (40, 31, 1)",
    "INSERT INTO devices VALUES (40, 'phone', 1); UPDATE parts SET price = 100.001 WHERE pid = 31",
    "UPDATE devices SET did = did + 100 WHERE did = 4; UPDATE devices_parts SET did = 104 WHERE did = 4;"
    "UPDATE parts SET price = price * 2; DELETE FROM devices WHERE did = 5",
    "UPDATE parts SET pid = 40 - pid WHERE pid IN (19, 20); UPDATE devices_parts SET pid = 40 - pid WHERE pid >= 19",
    "DELETE FROM parts WHERE pid % 2 = 0; DELETE FROM devices WHERE category = 'phone'",
    "DELETE FROM devices_parts",
    "INSERT INTO devices_parts SELECT did, pid, did + pid FROM devices, parts",
    "TRUNCATE devices_parts",
    "DELETE FROM parts; DELETE FROM devices",
    "INSERT INTO parts VALUES (1, 1.0, 'k1'); INSERT INTO devices VALUES (1, 'phone', 1);"
    "INSERT INTO devices_parts VALUES (1, 1, 50)",
    "UPDATE parts SET price = 1.00",
)


@pytest.mark.parametrize("cache", ["on", "off"])
@pytest.mark.parametrize("strategy", ["id", "tuple"])
def test_every_view_follows_every_change(orc, strategy, cache):
    if (strategy, cache) == ("tuple", "on"):
        pytest.skip("bags need no cache")
    orc.execute(TABLES)
    for name, query in VIEWS.items():
        orc.create_view(name, query, strategy=strategy, cache=cache)
    for change in CHANGES:
        orc.execute(change)
        different = {r.view: (r.missing_rows, r.surplus_rows) for r in orc.check() if not r.equal}
        assert different == {}, change


def test_views_above_follow_net_changes(orc):
    orc.execute(TABLES)
    orc.create_view("below", VIEWS["sums"], strategy="id")
    orc.create_view("above", "SELECT n, count(*) AS c, max(cost) AS m FROM below GROUP BY n")
    for change in CHANGES:
        orc.execute(change)
        assert all(report.equal for report in orc.check()), change


def test_a_strategy_that_cannot_says_why(orc):
    orc.execute("CREATE TABLE bare (a int)")
    with pytest.raises(UnsupportedError, match="a table without a key has no IDs: bare"):
        orc.create_view("v", "SELECT a FROM bare", strategy="id")
    assert orc.create_view("v", "SELECT a FROM bare").strategy == "recompute"


def test_an_update_of_a_plain_attribute_touches_one_row_version_each(orc):
    orc.execute(TABLES)
    orc.create_view("v", VIEWS["spj"], strategy="id")
    orc.execute("UPDATE parts SET price = price + 1 WHERE pid = 3")
    (report,) = orc.refresh("v")
    (rows,) = orc.execute("SELECT count(*) FROM v WHERE pid = 3")[0].rows
    assert report.changed == rows[0] > 0
    assert orc.refresh("v")[0].changed == 0
