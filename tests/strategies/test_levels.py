"""Views that are not worth their storage: their tables are joined where a sibling changes."""

from __future__ import annotations

import pytest

TABLES = """
CREATE TABLE shops (shop int PRIMARY KEY, size int NOT NULL);
CREATE TABLE days (shop int, day int, rain int, PRIMARY KEY (shop, day));
CREATE TABLE goods (item int PRIMARY KEY, price numeric(8, 2));
CREATE TABLE sold (shop int, day int, item int, units int, PRIMARY KEY (shop, day, item));
CREATE INDEX ON sold (item);
INSERT INTO shops SELECT s, s * 3 FROM generate_series(1, 6) AS s;
INSERT INTO days SELECT s, d, (s * d) % 5 FROM generate_series(1, 6) AS s, generate_series(1, 20) AS d;
INSERT INTO goods SELECT i, i * 0.75 FROM generate_series(1, 30) AS i;
INSERT INTO sold SELECT DISTINCT n % 6 + 1, n % 20 + 1, n % 29 + 1, n % 7 FROM generate_series(1, 600) AS n;
ANALYZE
"""
JOIN = "sold JOIN shops USING (shop) JOIN days USING (shop, day) JOIN goods USING (item)"
VIEWS = {
    "summed": f"SELECT sum(units * price * size) AS s, count(*) AS n FROM {JOIN}",
    "grouped": f"SELECT rain, sum(units * price) AS s FROM {JOIN} GROUP BY rain",
    "covar": f"SELECT idivm.covar(units, price, rain, size) AS c FROM {JOIN}",
}
CHANGES = (
    "UPDATE sold SET units = units + 1 WHERE item < 5",
    "UPDATE days SET rain = rain + 1 WHERE shop = 2; UPDATE sold SET units = 3 WHERE shop < 4",
    "UPDATE goods SET price = price + 1; DELETE FROM sold WHERE day = 3",
    "UPDATE goods SET price = 2 WHERE item = 7; UPDATE days SET rain = NULL WHERE day = 4;"
    "INSERT INTO sold SELECT s, 3, i, s * i FROM generate_series(2, 5) AS s, generate_series(5, 9) AS i",
    "DELETE FROM goods WHERE item < 9; DELETE FROM days WHERE day = 5; DELETE FROM sold WHERE shop = 6;"
    "UPDATE sold SET day = day + 20 WHERE day > 10; UPDATE shops SET size = size + shop",
    "INSERT INTO goods VALUES (3, 1.5), (4, NULL); INSERT INTO days VALUES (1, 5, 9), (3, 5, 0), (2, 32, 4), (5, 32, 1)",
)


@pytest.mark.slow
def test_tables_take_the_place_of_views_that_cost_more(orc):
    orc.execute(TABLES)
    for name, query in VIEWS.items():
        orc.create_view(name, query, strategy="viewtree")
    tree = [line.strip() for line in orc.explain("covar").plan.splitlines()]
    assert not any("V@item" in line for line in tree)
    # All three are read where they are.
    assert {line for line in tree if line.startswith(("days[", "goods[", "sold["))} == {
        "days[day, shop]",
        "goods[item]",
        "sold[day, item, shop]",
    }
    for change in CHANGES:
        orc.execute(change)
        orc.refresh()
        different = {r.view: (r.missing_rows, r.surplus_rows) for r in orc.check() if not r.equal}
        assert different == {}, change


def test_a_view_stays_where_its_sibling_changes_as_often(orc):
    orc.execute(TABLES)
    for _ in range(40):
        orc.execute("UPDATE days SET rain = rain + 1")
    orc.execute("SELECT pg_stat_force_next_flush()")
    orc.create_view("v", VIEWS["covar"], strategy="viewtree")
    assert "V@item(sold, goods)[day, shop] *" in orc.explain("v").plan
