"""Views with ORDER BY and LIMIT that find their rows one after the other when they are read."""

from __future__ import annotations

import psycopg
import pytest

from orchestrator.bench.measure import states_touched
from orchestrator.errors import UnsupportedError
from tests.strategies.test_ranked import DEEP, STAR, TABLES, THREE, changes, filled, growing

VIEWS = {
    "sums": f"{STAR} ORDER BY price + fee DESC LIMIT 4",
    "names": f"{STAR} ORDER BY name DESC NULLS LAST, fee LIMIT 5 OFFSET 3",
    "nulls": f"{STAR} ORDER BY name NULLS FIRST, 2 * price - fee FETCH FIRST ROW ONLY",
    "hidden": "SELECT name, fee FROM r JOIN s USING (b) ORDER BY price DESC, c LIMIT 6",
    "deep": f"{DEEP} ORDER BY price + coalesce(extra, -1) + fee DESC, rate LIMIT 6",
    "deep_nulls": f"{DEEP} ORDER BY extra - 2 NULLS FIRST, price + fee LIMIT 7",
    "three": f'{THREE} ORDER BY price + fee + 3 * e DESC, "Since" NULLS FIRST LIMIT 3',
    "computed": "SELECT total * 2 AS twice FROM (SELECT price + fee AS total FROM r JOIN s USING (b)"
    " ORDER BY total LIMIT 5) AS t",
    "groups": "SELECT b, count(*) AS n FROM r JOIN s USING (b) GROUP BY b ORDER BY b DESC LIMIT 2",
    "once": "SELECT DISTINCT r.b, name, c FROM r JOIN s USING (b) ORDER BY c DESC, name LIMIT 3",
    "apart": "SELECT r.a, e FROM r, u WHERE r.b > 0 ORDER BY price - 2 * e DESC LIMIT 4",
    "looped": "SELECT p.a, q.a AS other FROM r AS p JOIN r AS q ON q.b = p.b ORDER BY p.price + q.price LIMIT 4",
    "single": "SELECT a, name FROM r WHERE price > 1 ORDER BY name DESC, price LIMIT 3",
    "ties": "SELECT price, fee FROM r JOIN s USING (b) ORDER BY price + fee DESC FETCH FIRST 3 ROWS WITH TIES",
    "tied_names": f"{STAR} ORDER BY name NULLS FIRST FETCH FIRST ROW WITH TIES",
}


def number_of(orc, name: str) -> int:
    [(number,)] = orc.connection.execute(
        "SELECT id FROM idivm.views WHERE relation = %s::regclass", [name]
    )
    return int(number)


def require_first(orc, name: str) -> None:
    """Require that a view shows the rows of its query with a completed order, in this order."""
    rows = orc.connection.execute(f"SELECT * FROM {name}").fetchall()
    wanted = orc.connection.execute(f"SELECT * FROM idivm_def.v{number_of(orc, name)}").fetchall()
    if name.startswith("tie"):
        rows, wanted = sorted(map(repr, rows)), sorted(map(repr, wanted))
    assert list(map(repr, rows)) == list(map(repr, wanted)), name


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("seed", [3, 4])
def test_views_show_the_first_rows_after_every_change(orc, seed):
    filled(orc)
    for name, query in VIEWS.items():
        view = orc.create_view(
            name, query, strategy="viewtree", maintain="eager" if seed == 3 else "deferred"
        )
        assert view.plan.ranking.excerpt is not None
        require_first(orc, name)
    for change in changes(seed):
        orc.execute(change)
        orc.refresh()
        different = [report.view for report in orc.check() if not report.equal]
        assert different == [], change
        for name in VIEWS:
            require_first(orc, name)


TOP = "SELECT r.b, r.a, c, price + fee AS total FROM r JOIN s USING (b) ORDER BY total DESC LIMIT 5"


def test_infinity_and_nan_are_sorted_as_postgresql_does(orc):
    orc.execute(
        "CREATE TABLE x (b int, a int, p numeric NOT NULL, PRIMARY KEY (b, a));"
        " CREATE TABLE y (b int, c int, q numeric NOT NULL, PRIMARY KEY (b, c));"
        " INSERT INTO x VALUES (1, 1, 'Infinity'), (1, 2, 5), (1, 3, 'NaN'), (1, 4, 6.50), (2, 1, 7), (1, 5, '-Infinity');"
        " INSERT INTO y VALUES (1, 1, 2.0), (1, 2, 'NaN'), (1, 3, 3), (2, 1, 'Infinity'), (2, 2, -1), (1, 4, 'Infinity')"
    )
    views = {
        "low": "p + q LIMIT 3",
        "high": "p + q DESC, q LIMIT 9 OFFSET 2",
        "mixed": "p + q, p DESC LIMIT 20",
        "tied": "p + q DESC FETCH FIRST 5 ROWS WITH TIES",
        "tied_low": "p + q FETCH FIRST 2 ROWS WITH TIES",
    }
    for name, order in views.items():
        query = f"SELECT * FROM x JOIN y USING (b) ORDER BY {order}"
        orc.create_view(name, query, strategy="viewtree")
        require_first(orc, name)
    orc.execute("DELETE FROM x WHERE p = 'NaN'; UPDATE y SET q = '-Infinity' WHERE c = 1")
    assert all(report.equal for report in orc.check())


def test_a_view_above_follows(orc):
    filled(orc)
    orc.create_view("top", TOP, strategy="viewtree")
    orc.create_view("above", "SELECT b, count(*) AS n, sum(total) AS total FROM top GROUP BY b")
    orc.create_view("named", "SELECT name, total FROM top JOIN r USING (b, a)")
    for change in ("DELETE FROM r WHERE price = 4", "UPDATE s SET fee = 10 - fee", "DELETE FROM s"):
        orc.execute(change)
        orc.refresh()
        assert all(report.equal for report in orc.check())


def test_a_read_costs_no_more_in_a_large_join(orc):
    orc.execute(TABLES)
    orc.create_view("top", TOP, strategy="viewtree")
    costs = []
    for _ in growing(orc):
        with orc.connection.transaction():
            before = states_touched(orc.connection)
            assert len(orc.connection.execute("SELECT * FROM top").fetchall()) == 5
            costs.append(states_touched(orc.connection) - before)
    assert 0 < costs[1] < 2 * costs[0] + 50


def test_auto_finds_rows_at_each_read_if_the_join_is_large(orc):
    orc.execute(TABLES)
    orc.execute(
        "INSERT INTO r SELECT i, i % 2, i FROM generate_series(1, 200) AS i;"
        " INSERT INTO s SELECT i % 2, i, i FROM generate_series(1, 200) AS i; ANALYZE r; ANALYZE s"
    )
    assert orc.create_view("top", TOP).strategy == "viewtree"
    text = str(orc.explain("top"))
    assert (
        "content (b, a, c, total): not a table, but the first 5 rows (of about 20,000) of rows"
        in text
    )
    assert "a read finds the first 5 rows (of about 20,000) one by one, each in O(log N)" in text
    orc.execute("CREATE TABLE x (LIKE r INCLUDING ALL); CREATE TABLE y (LIKE s INCLUDING ALL)")
    # Nothing is known of tables that were never analyzed.
    unknown = TOP.replace("r JOIN s", "x AS r JOIN y AS s")
    assert orc.create_view("unknown", unknown).strategy == "id"
    many = orc.create_view("many", TOP.replace("LIMIT 5", "LIMIT 500"))
    assert many.strategy == "id"
    assert "ask for viewtree" in orc.explain("many").why
    # A feed needs stored rows, and a read that merges pending changes too.
    assert orc.create_view("fed", TOP, feed="on").strategy == "id"
    with pytest.raises(UnsupportedError, match="cannot merge the pending changes"):
        orc.create_view("merged", TOP, strategy="viewtree", maintain="on_read")
    with pytest.raises(UnsupportedError, match="stores no rows"):
        orc.create_view("fed_tree", TOP, strategy="viewtree", feed="on")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (f"{STAR} ORDER BY price * fee LIMIT 3", "no sum of columns"),
        (f"{STAR} ORDER BY price - price LIMIT 3", "no sum of columns"),
        (f"{DEEP} ORDER BY extra + fee LIMIT 3", "order by coalesce"),
        (f"{DEEP} ORDER BY rate + fee LIMIT 3", "no sum of columns"),
        (f"{STAR} ORDER BY price LIMIT length('abc')", "no constant number"),
        (f"{STAR} WHERE price = 1 ORDER BY price FETCH FIRST ROW WITH TIES", "all rows are equal"),
        ("SELECT b, sum(fee) FROM r JOIN s USING (b) GROUP BY b ORDER BY 2 LIMIT 3", None),
    ],
)
def test_other_orders_are_refused_or_sorted_at_each_read(orc, query, text):
    filled(orc)
    if text is None:
        assert orc.create_view("v", query, strategy="viewtree").plan.ranking is None
        assert all(report.equal for report in orc.check())
    else:
        with pytest.raises(UnsupportedError, match=text):
            orc.create_view("v", query, strategy="viewtree")
    orc.create_view("w", query)
    assert all(report.equal for report in orc.check())


def test_the_view_survives_plans_and_goes_as_a_whole(orc):
    filled(orc)
    orc.create_view("top", TOP, strategy="viewtree")
    number = number_of(orc, "top")
    assert all(finding.fine for finding in orc.doctor())
    wanted = orc.connection.execute("SELECT * FROM top").fetchall()
    # An edited content is repaired.
    orc.connection.execute(
        f"CREATE OR REPLACE VIEW idivm_state.top_{number} AS SELECT b, a, c, total FROM idivm_state.top_rows_{number}"
    )
    assert [finding.subject for finding in orc.doctor() if not finding.fine] == ["view top"]
    assert all(finding.fine for finding in orc.doctor())
    assert orc.connection.execute("SELECT * FROM top").fetchall() == wanted
    # The rows of a table without a key may be equal.
    orc.execute("ALTER TABLE s DROP CONSTRAINT s_pkey")
    orc.refresh()
    assert orc.view("top").plan.ranking is None
    assert (
        orc.connection.execute("SELECT * FROM top ORDER BY total DESC, b, a, c").fetchall()
        == wanted
    )
    orc.create_view("other", "SELECT a, price FROM r ORDER BY price LIMIT 3", strategy="viewtree")
    orc.drop_view("other")
    orc.drop_view("top")
    left = orc.connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace IN ('idivm_state'::regnamespace, 'idivm_feed'::regnamespace)"
        " AND relname ~ '^(top|other|r[0-9])' UNION ALL"
        " SELECT proname FROM pg_proc WHERE pronamespace = 'idivm_feed'::regnamespace AND proname ~ '^ranked_'"
    ).fetchall()
    assert left == []


def test_readers_of_the_view_get_its_rows_alone(orc):
    filled(orc)
    orc.create_view("top", TOP, strategy="viewtree")
    number = number_of(orc, "top")
    orc.execute(
        "DROP ROLE IF EXISTS idivm_reader; CREATE ROLE idivm_reader; GRANT SELECT ON top TO idivm_reader"
    )
    try:
        with orc.connection.transaction(force_rollback=True):
            orc.connection.execute("SET LOCAL ROLE idivm_reader")
            assert len(orc.connection.execute("SELECT * FROM top").fetchall()) == 5
            for read in (
                f"SELECT * FROM idivm_feed.ranked_{number}('', 0, 10)",
                f"SELECT * FROM idivm_state.top_{number}",
            ):
                with (
                    pytest.raises(psycopg.errors.InsufficientPrivilege),
                    orc.connection.transaction(),
                ):
                    orc.connection.execute(read)
    finally:
        orc.execute("DROP OWNED BY idivm_reader; DROP ROLE idivm_reader")
