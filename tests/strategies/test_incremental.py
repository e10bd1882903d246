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
    "self_keyed": "SELECT a.did, b.did AS sibling FROM devices a JOIN devices b ON a.parent = b.parent WHERE b.did > 6",
    "theta": "SELECT a.pid, b.pid AS dearer FROM parts a JOIN parts b ON a.price < b.price AND a.kind = b.kind",
    "cross": "SELECT p.pid, d.did FROM parts p, devices d WHERE p.price > 20 AND d.category IS NULL",
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
