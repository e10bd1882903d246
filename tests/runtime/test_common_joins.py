"""Views with `common_join = on` read the join of their tables from one maintained view."""

from __future__ import annotations

import pytest

from orchestrator.errors import UnsupportedError, UsageError

pytestmark = pytest.mark.integration

TABLES = """
    CREATE TABLE days (dk int PRIMARY KEY, month int NOT NULL, year int);
    CREATE TABLE items (ik int PRIMARY KEY, brand text, price numeric NOT NULL);
    CREATE TABLE sales (id int PRIMARY KEY, dk int NOT NULL REFERENCES days, ik int NOT NULL REFERENCES items,
                        qty int);
    INSERT INTO days SELECT d, d / 3, d / 9 FROM generate_series(1, 20) AS d;
    INSERT INTO items SELECT i, 'b' || i % 4, i * 1.5 FROM generate_series(1, 12) AS i;
    INSERT INTO sales SELECT s, 1 + s % 20, 1 + s % 12, s % 7 FROM generate_series(1, 300) AS s;
    ANALYZE days; ANALYZE items; ANALYZE sales;
"""

DASHBOARDS = {
    "by_month": "SELECT month, sum(qty) AS q FROM sales JOIN days USING (dk) JOIN items USING (ik) GROUP BY month",
    "by_brand": "SELECT i.brand, sum(s.qty * i.price) AS worth, max(d.month) AS latest"
    " FROM days d, items AS i, sales s WHERE s.ik = i.ik AND d.dk = s.dk AND d.year > 0 GROUP BY i.brand",
    "whole": "SELECT count(*) AS n FROM items NATURAL JOIN sales NATURAL JOIN days WHERE qty < month + 3",
    "by_item": "SELECT i.ik, i.brand, avg(qty) AS q FROM items i JOIN sales USING (ik) JOIN days USING (dk) GROUP BY i.ik",
    "rows": "SELECT s.id, d.month, i.brand AS b FROM sales s JOIN days d ON d.dk = s.dk JOIN items i ON i.ik = s.ik"
    " WHERE i.brand <> 'b1'",
    "ranked": "SELECT s.id, rank() OVER (PARTITION BY d.month ORDER BY s.qty) AS r"
    " FROM sales s JOIN days d ON d.dk = s.dk JOIN items i ON i.ik = s.ik",
}

CHANGES = (
    "UPDATE sales SET qty = qty + 1 WHERE id % 9 = 1",
    "UPDATE items SET brand = 'b9', price = price + 1 WHERE ik = 3",
    "UPDATE items SET brand = NULL WHERE ik = 4",
    "DELETE FROM sales WHERE id < 30; INSERT INTO sales VALUES (1, 1, 1, NULL), (2, 2, 2, 5)",
    "UPDATE days SET month = 7 WHERE dk IN (1, 2)",
    "UPDATE sales SET ik = 5, dk = 4 WHERE id % 50 = 0",
    "TRUNCATE sales",
    "INSERT INTO sales SELECT s, 1 + s % 20, 1 + s % 12, s % 7 FROM generate_series(1, 50) AS s",
)


@pytest.fixture
def star(orc):
    orc.execute(TABLES)
    return orc


def joins(orc):
    return [
        name
        for (name,) in orc.connection.execute(
            "SELECT relation::text FROM idivm.views WHERE common_join ORDER BY id"
        )
    ]


def reads(orc, view):
    return orc.view(view).sources


@pytest.mark.parametrize(
    "mode", ["deferred", "eager", pytest.param("on_commit", marks=pytest.mark.slow)]
)
def test_views_read_one_stored_join(star, mode):
    for name, query in DASHBOARDS.items():
        star.create_view(name, query, common_join="on", maintain=mode)
    [join] = joins(star)
    for name in DASHBOARDS:
        assert reads(star, name) == [join]
        assert [
            state.role for state in star.view(name).plan.program.states if state.role == "cache"
        ] == []
    for change in CHANGES:
        star.execute(change)
        if mode == "deferred":
            star.refresh()
        unequal = [report.view for report in star.check() if not report.equal]
        assert unequal == [], change


def test_the_last_view_takes_the_join_along(star):
    first, second = list(DASHBOARDS)[:2]
    star.create_view(first, DASHBOARDS[first], common_join="on")
    star.create_view(second, DASHBOARDS[second], common_join="on")
    [join] = joins(star)
    with pytest.raises(UsageError, match="is read by the maintained views"):
        star.drop_view(join)
    star.drop_view(first)
    assert joins(star) == [join]
    star.connection.execute(f"CREATE VIEW users_own AS SELECT count(*) FROM {join}")
    star.drop_view(second)
    assert joins(star) == [join]
    star.connection.execute("DROP VIEW users_own")
    assert star.views() == []
    assert star.connection.execute("SELECT to_regclass(%s)", [join]).fetchone() == (None,)


def test_a_dropped_table_takes_the_join_along(star):
    star.create_view("by_month", DASHBOARDS["by_month"], common_join="on")
    star.connection.execute("DROP TABLE items CASCADE")
    assert star.views() == []


def test_plain_sql_drops_the_last_view(star):
    star.create_view("by_month", DASHBOARDS["by_month"], common_join="on")
    star.connection.execute("DROP VIEW by_month")
    assert star.views() == []


def test_the_option_changes(star):
    star.create_view("by_month", DASHBOARDS["by_month"], common_join="on")
    star.create_view("by_brand", DASHBOARDS["by_brand"])
    star.alter_view("by_brand", common_join="on")
    assert reads(star, "by_brand") == reads(star, "by_month")
    star.alter_view("by_month", common_join="off")
    star.alter_view("by_brand", common_join="off")
    assert len(star.views()) == 2
    assert joins(star) == []
    star.execute(CHANGES[1])
    star.refresh()
    assert all(report.equal for report in star.check())


def test_a_join_with_other_columns_or_conditions(star):
    """A stored join answers only queries whose columns it has, over the same tables and equalities."""
    star.execute(
        "ALTER TABLE items ADD wide char(300), ADD dk int; UPDATE items SET dk = ik, wide = 'x'; ANALYZE items"
    )
    star.create_view("by_month", DASHBOARDS["by_month"], common_join="on")
    star.create_view("again", DASHBOARDS["by_month"].replace("sum", "max"), common_join="on")
    star.create_view("by_brand", DASHBOARDS["by_brand"], common_join="on")
    star.create_view(
        "other",
        "SELECT month, count(*) AS n FROM sales s JOIN days d ON d.dk = s.dk JOIN items i ON i.dk = d.dk GROUP BY month",
        common_join="on",
    )
    assert len(joins(star)) == 3
    assert reads(star, "by_month") == reads(star, "again")
    for change in CHANGES[:3]:
        star.execute(change)
    star.refresh()
    assert all(report.equal for report in star.check())


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT a.id, b.qty FROM sales a JOIN sales b ON a.id = b.ik", "different tables"),
        ("SELECT brand, count(*) AS n FROM items GROUP BY brand", "different tables"),
        ("SELECT s.id, i.brand FROM sales s LEFT JOIN items i USING (ik)", "different tables"),
        ("SELECT s.id, i.brand FROM sales s JOIN items i ON s.ik < i.ik", "different tables"),
        ("SELECT s.id FROM sales s JOIN days USING (dk) WHERE now() > '2000-01-01'", "the time"),
        ("SELECT to_jsonb(s) AS j FROM sales s JOIN days USING (dk)", "one value"),
        ("SELECT p.id, month FROM plain p JOIN days USING (dk)", "plain views"),
    ],
)
def test_queries_without_a_common_join(star, query, reason):
    star.connection.execute("CREATE VIEW plain AS SELECT * FROM sales WHERE qty > 1")
    notices = []
    star.connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    star.create_view("alone", query, common_join="on")
    assert any("does not share its join" in notice and reason in notice for notice in notices)
    assert joins(star) == []
    star.execute(CHANGES[0])
    star.refresh()
    assert all(report.equal for report in star.check())


def test_a_view_that_is_refused_leaves_no_join(star):
    with pytest.raises(UnsupportedError, match="A read cannot merge"):
        star.create_view("ranked", DASHBOARDS["ranked"], common_join="on", maintain="on_read")
    assert star.views() == []
    star.create_view("by_month", DASHBOARDS["by_month"], common_join="on")
    with pytest.raises(UnsupportedError, match="A read cannot merge"):
        star.create_view("ranked", DASHBOARDS["ranked"], common_join="on", maintain="on_read")
    assert joins(star) == ["sales_join"] and len(star.views()) == 2
