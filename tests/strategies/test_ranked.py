"""Views with the option `ranked`, whose rows are read in an order without computing the others."""

from __future__ import annotations

import random
from contextlib import nullcontext

import psycopg
import pytest

from orchestrator.bench.measure import states_touched
from orchestrator.errors import UnsupportedError, UsageError

TABLES = """
CREATE TABLE r (a int, b int, price int NOT NULL, name text, PRIMARY KEY (b, a));
CREATE TABLE s (b int, c int, fee numeric(8, 2) NOT NULL, "Since" date, PRIMARY KEY (b, c));
CREATE TABLE t (c int, d int, extra bigint, rate double precision, PRIMARY KEY (c, d));
CREATE TABLE u (b int, e int NOT NULL, PRIMARY KEY (b, e));
"""

STAR = "SELECT r.b, r.a, c, price, fee, name FROM r JOIN s USING (b)"
THREE = (
    'SELECT r.b, r.a, s.c, u.e, price, fee, name, "Since" FROM r JOIN s USING (b) JOIN u USING (b)'
)
DEEP = "SELECT r.b, r.a, s.c, t.d, price, fee, extra, rate FROM r JOIN s USING (b) JOIN t USING (c)"

VIEWS = {
    "sums": (STAR, "price + fee DESC"),
    "ties": (STAR, "price + fee DESC, name DESC NULLS LAST, c"),
    "names": (STAR, "name NULLS FIRST, fee DESC, a DESC"),
    "falling": (STAR, "name DESC, price, c"),
    "weighted": (STAR, "2 * price - fee, name"),
    "shown": ("SELECT r.b, a, c, price + fee AS total FROM r JOIN s USING (b)", "total DESC"),
    "last_column": (STAR, "a, c DESC"),
    "three": (THREE, 'price + fee + 3 * e DESC, "Since" NULLS FIRST, name'),
    "deep": (DEEP, "price + coalesce(extra, -1) + fee DESC, rate"),
    "deep_last": (DEEP, "extra DESC NULLS LAST, rate, price DESC"),
    "nulls": (DEEP, "extra - 2 NULLS FIRST, price + fee"),
    "apart": ("SELECT r.b, r.a, u.b AS ub, e, price FROM r, u", "price - 2 * e DESC, a"),
    "single": ("SELECT a, b, price, name FROM r WHERE price > 1", "name DESC, price"),
    "groups": (
        "SELECT r.b, price, c, count(*) AS n, sum(d) AS d FROM r JOIN s USING (b) JOIN t USING (c)"
        " GROUP BY r.b, price, c",
        "c - price DESC",
    ),
    "once": ("SELECT DISTINCT r.b, name, c FROM r JOIN s USING (b)", "c DESC, name"),
    "looped": (
        "SELECT p.b, p.a, q.a AS other, p.price AS one, q.price AS two FROM r AS p JOIN r AS q ON q.b = p.b",
        "one + two, other",
    ),
}


def filled(orc) -> None:
    orc.execute(TABLES)
    orc.execute(
        "INSERT INTO r SELECT i, i % 4, i * 7 % 5, CASE WHEN i % 3 > 0 THEN 'n' || i % 4 END FROM generate_series(1, 14) AS i;"
        " INSERT INTO s SELECT i % 4, i, i % 3 * 0.5, CASE WHEN i % 4 > 0 THEN date '2026-01-01' + i % 3 END"
        " FROM generate_series(1, 9) AS i;"
        " INSERT INTO t SELECT i % 9, i, CASE WHEN i % 5 > 0 THEN i % 4 END, CASE WHEN i % 3 > 0 THEN i % 2 END"
        " FROM generate_series(1, 18) AS i;"
        " INSERT INTO u SELECT i % 4, i % 3 FROM generate_series(1, 12) AS i ON CONFLICT DO NOTHING"
    )


def changes(seed: int) -> list[str]:
    """Return random changes of all tables; some delete the best rows, and some empty a table."""
    rng = random.Random(seed)

    def value(most: int = 5) -> int:
        return rng.randint(0, most)

    def null(value: object) -> str:
        return str(rng.choice(["NULL", value]))

    result = []
    for turn in range(1, 4):
        result += [
            f"INSERT INTO r VALUES ({value(30)}, {value()}, {value(9)}, {null(repr('n' + str(value())))}) ON CONFLICT DO NOTHING;"
            f" INSERT INTO s VALUES ({value()}, {value(12)}, {value()}.{value()}0) ON CONFLICT DO NOTHING;"
            f" INSERT INTO t VALUES ({value(9)}, {value(30)}, {null(value(9))}, {null(value())}) ON CONFLICT DO NOTHING",
            f"UPDATE r SET price = price + {value()} - 2 WHERE b = {value()};"
            f" UPDATE s SET fee = {value()} WHERE c % 3 = {value(2)}; UPDATE t SET extra = {null(value())} WHERE d < 6",
            "DELETE FROM r WHERE price = (SELECT max(price) FROM r);"
            " DELETE FROM s WHERE fee = (SELECT max(fee) FROM s);"
            f" INSERT INTO u VALUES ({value()}, {value(9)}) ON CONFLICT DO NOTHING",
            f"UPDATE r SET name = {null(repr('m'))} WHERE a % 4 = {value(3)}; DELETE FROM t WHERE extra IS NULL AND d > 4",
            f"UPDATE s SET b = {value()}, c = c + {20 * turn} WHERE c = {value(9)} AND b = {value(3)}; DELETE FROM u WHERE e = {value(3)}",
        ]
    return [
        *result,
        "DELETE FROM s",
        "INSERT INTO s SELECT i % 4, i, i FROM generate_series(1, 6) AS i",
    ]


def require_ranked(orc, name: str, order: str) -> None:
    """Require that a view yields the rows of its query, and that they are sorted."""
    rows = list(orc.enumerate(name))
    [stored] = orc.execute(f"SELECT * FROM {name}")
    assert sorted(map(repr, rows)) == sorted(map(repr, stored.rows)), name
    # The number of a row's peer group does not depend on the order within it.
    numbered = f"SELECT v, dense_rank() OVER (ORDER BY {order}) AS n FROM {name} AS v"
    [result] = orc.execute(f"SELECT n, (v).* FROM ({numbered}) AS v")
    group = {repr(tuple(row[1:])): row[0] for row in result.rows}
    assert [group[repr(row)] for row in rows] == sorted(group[repr(row)] for row in rows), name


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("seed", [1, 2])
def test_rows_come_in_order_after_every_change(orc, seed):
    filled(orc)
    for name, (query, order) in VIEWS.items():
        view = orc.create_view(
            name, query, ranked=order, maintain="eager" if seed == 1 else "deferred"
        )
        assert view.strategy == "viewtree"
        require_ranked(orc, name, order)
    for change in changes(seed):
        orc.execute(change)
        orc.refresh()
        different = [report.view for report in orc.check() if not report.equal]
        assert different == [], change
        for name, (_, order) in VIEWS.items():
            require_ranked(orc, name, order)


ROWS = "SELECT r.b, r.a, c, price, fee FROM r JOIN s USING (b)"


def test_sql_reads_the_first_rows(orc):
    filled(orc)
    orc.create_view("v", ROWS, ranked="price + fee DESC, a, c")
    wanted = orc.connection.execute("SELECT * FROM v ORDER BY price + fee DESC, a, c").fetchall()
    with orc.connection.transaction():
        orc.connection.execute("SELECT idivm.enumerate('v')")
        read = orc.connection.execute("FETCH 5 FROM idivm_rows").fetchall()
        # A cursor keeps its snapshot.
        orc.connection.execute("DELETE FROM s; SELECT idivm.refresh('v')")
        read += orc.connection.execute("FETCH ALL FROM idivm_rows").fetchall()
        assert list(orc.connection.execute("SELECT * FROM v")) == []
    assert read == wanted
    assert list(orc.enumerate("v")) == []


def test_a_query_reads_the_first_rows(orc):
    filled(orc)
    orc.create_view("v", ROWS, ranked="price + fee DESC, a, c")
    orc.create_view("listed", ROWS)
    wanted = orc.connection.execute(
        "SELECT * FROM v ORDER BY price + fee DESC, a, c LIMIT 4"
    ).fetchall()
    assert orc.connection.execute("SELECT * FROM idivm.first_rows(NULL::v, 4)").fetchall() == wanted
    [(count,)] = orc.connection.execute("SELECT count(*) FROM idivm.first_rows(NULL::v, 1000000)")
    assert [(count,)] == orc.connection.execute("SELECT count(*) FROM v").fetchall()
    for wrong in ("NULL::listed", "NULL::r", "1"):
        with pytest.raises(psycopg.errors.WrongObjectType, match="has no order"):
            orc.connection.execute(f"SELECT idivm.first_rows({wrong}, 1)")


def test_rows_with_given_values_are_sorted(orc):
    filled(orc)
    orc.create_view("v", ROWS, ranked="price - fee DESC, a, c")
    wanted = orc.connection.execute(
        "SELECT * FROM v WHERE b = 2 ORDER BY price - fee DESC, a, c"
    ).fetchall()
    assert list(orc.enumerate("v", {"b": 2})) == wanted
    with orc.connection.transaction():
        orc.connection.execute("""SELECT idivm.enumerate('v', '{"b": 2}')""")
        assert orc.connection.execute("FETCH ALL FROM idivm_rows").fetchall() == wanted
    orc.execute(
        "ALTER VIEW v RENAME COLUMN price TO fee_2; ALTER VIEW v RENAME COLUMN fee TO price"
    )
    assert list(orc.enumerate("v", {"b": 2})) == wanted


def test_equal_rows_come_in_an_order_that_does_not_depend_on_earlier_changes(orc):
    filled(orc)
    orc.create_view("v", ROWS, ranked="price DESC")
    before = list(orc.enumerate("v"))
    orc.execute(
        "CREATE TABLE kept AS TABLE r; DELETE FROM r WHERE b > 0; UPDATE s SET fee = fee + 1"
    )
    orc.refresh()
    orc.execute("INSERT INTO r TABLE kept ON CONFLICT DO NOTHING; UPDATE s SET fee = fee - 1")
    orc.refresh()
    assert list(orc.enumerate("v")) == before


def test_sums_with_infinity_and_nan_are_sorted(orc):
    orc.execute(
        "CREATE TABLE x (b int, a int, p numeric NOT NULL, PRIMARY KEY (b, a));"
        " CREATE TABLE y (b int, c int, q numeric NOT NULL, PRIMARY KEY (b, c));"
        " INSERT INTO x VALUES (1, 1, 'Infinity'), (1, 2, 5), (1, 3, 'NaN'), (1, 4, 6.50), (2, 1, 7);"
        " INSERT INTO y VALUES (1, 1, 2.0), (1, 2, 'NaN'), (1, 3, 3), (2, 1, 'Infinity'), (2, 2, -1)"
    )
    for name, direction in (("rising", ""), ("falling", " DESC")):
        orc.create_view(name, "SELECT * FROM x JOIN y USING (b)", ranked=f"p + q{direction}")
        sums = [row[2] + row[4] for row in orc.enumerate(name)]
        [result] = orc.execute(f"SELECT p + q FROM {name} ORDER BY p + q{direction}")
        assert list(map(str, sums)) == [str(total) for (total,) in result.rows]


def growing(orc):
    """Yields after refreshes of a join of r and s that grows a hundredfold."""
    for rows in (200, 2_000):
        orc.execute(
            f"INSERT INTO r SELECT i, 1, i FROM generate_series({rows // 10}, {rows}) AS i ON CONFLICT DO NOTHING;"
            f" INSERT INTO s SELECT 1, i, i FROM generate_series({rows // 10}, {rows}) AS i ON CONFLICT DO NOTHING"
        )
        orc.refresh()
        orc.connection.execute("VACUUM ANALYZE")
        yield


def test_a_row_costs_no_more_in_a_large_join(orc):
    orc.execute(TABLES)
    orc.create_view("v", ROWS, ranked="price + fee DESC")
    costs = []
    for _ in growing(orc):
        with orc.connection.transaction():
            orc.connection.execute("SELECT idivm.enumerate('v')")
            before = states_touched(orc.connection)
            orc.connection.execute("FETCH 50 FROM idivm_rows")
            costs.append(states_touched(orc.connection) - before)
    assert costs[1] < 2 * costs[0] + 50


def test_the_order_gives_no_right(orc, connect):
    filled(orc)
    orc.create_view("v", ROWS, ranked="price + fee DESC")
    [(number,)] = orc.connection.execute("SELECT id FROM idivm.views")
    orc.execute(
        "DROP ROLE IF EXISTS idivm_reader; CREATE ROLE idivm_reader; GRANT USAGE ON SCHEMA idivm TO idivm_reader"
    )
    names = [
        name
        for (name,) in orc.connection.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'idivm_feed'::regnamespace"
            " AND relkind = 'v' AND relname ~ %s",
            [f"^r{number}(_|$)"],
        )
    ]
    assert len(names) == 6
    try:
        with orc.connection.transaction(force_rollback=True):
            orc.connection.execute(
                "CREATE FUNCTION pg_temp.leak(x anyelement) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS"
                " $$ BEGIN RAISE EXCEPTION 'leaked %', x; END $$; SET LOCAL ROLE idivm_reader"
            )
            for name in names:
                for read in (
                    f"SELECT * FROM {name} AS n WHERE pg_temp.leak(n)",
                    f"SELECT * FROM (SELECT 1) AS o LEFT JOIN {name} AS n ON pg_temp.leak(n) WHERE n IS NOT NULL",
                ):
                    refused = nullcontext()
                    if name != f"idivm_feed.r{number}":
                        refused = pytest.raises(psycopg.errors.InsufficientPrivilege)
                    with refused, orc.connection.transaction():
                        assert orc.connection.execute(read).fetchall() == []
            for token in ("NULL", "''"):
                read = f"SELECT * FROM idivm_feed.ranked_{number}({token}, 0, 10)"
                with (
                    pytest.raises(psycopg.errors.InsufficientPrivilege),
                    orc.connection.transaction(),
                ):
                    orc.connection.execute(read)
            with pytest.raises(psycopg.errors.InsufficientPrivilege), orc.connection.transaction():
                orc.connection.execute("SELECT idivm.enumerate('v')")
        orc.execute("GRANT SELECT ON v TO idivm_reader")
        with orc.connection.transaction(force_rollback=True):
            orc.connection.execute("SET LOCAL ROLE idivm_reader; SELECT idivm.enumerate('v')")
            assert len(orc.connection.execute("FETCH 3 FROM idivm_rows").fetchall()) == 3
    finally:
        orc.execute("DROP OWNED BY idivm_reader; DROP ROLE idivm_reader")


@pytest.mark.parametrize(
    ("query", "order", "error", "text"),
    [
        (ROWS, "fees", UsageError, "fees is no column of the view; it shows b, a, c, price, fee"),
        (ROWS, "price * fee", UsageError, "price \\* fee, which is no sum of columns"),
        (ROWS, "price LIMIT 3", UsageError, "is no order; write columns of the view"),
        (ROWS, "1 + 2", UsageError, "is constant"),
        (
            DEEP,
            "extra + fee",
            UnsupportedError,
            "declare the column NOT NULL, or order by coalesce",
        ),
        (DEEP, "rate + fee", UnsupportedError, "only integers and numerics are added up exactly"),
        (
            "SELECT r.a, c FROM r JOIN s USING (b) GROUP BY r.a, c",
            "a",
            UnsupportedError,
            "not free-connex",
        ),
        (
            "SELECT b, count(*) AS n FROM r JOIN s USING (b) GROUP BY b",
            "n",
            UnsupportedError,
            "reads an aggregate; order by grouping columns",
        ),
        (
            "SELECT b, lower(name) AS name, a, c FROM r JOIN s USING (b)",
            "lower(name)",
            UsageError,
            "no sum of columns",
        ),
        (
            "SELECT b, c, name || 'x' AS called, a FROM r JOIN s USING (b)",
            "called",
            UnsupportedError,
            "computed when rows are read",
        ),
        (f"{ROWS} ORDER BY a LIMIT 3", "a", UnsupportedError, "Leave ranked out"),
    ],
)
def test_orders_that_no_index_serves_are_refused(orc, query, order, error, text):
    orc.execute(TABLES)
    with pytest.raises(error, match=text):
        orc.create_view("v", query, ranked=order)


def test_options_that_need_rows_are_refused(orc):
    orc.execute(TABLES)
    for options in (
        {"inputs": "b"},
        {"feed": "on"},
        {"relation": "table"},
        {"maintain": "on_read"},
    ):
        with pytest.raises((UnsupportedError, UsageError), match="ranked"):
            orc.create_view("v", ROWS, ranked="price + fee DESC", **options)


def test_explain_names_the_order_and_its_guarantee(orc):
    orc.execute(TABLES)
    orc.create_view("v", ROWS, ranked="price + fee desc")
    text = str(orc.explain("v"))
    assert "ranked by price + fee DESC: each next row in this order is found in O(log N)" in text


def test_the_order_outlives_plans_and_leaves_nothing(orc):
    filled(orc)
    kept = objects(orc)
    orc.create_view("v", ROWS, ranked="price + fee DESC")
    before = list(orc.enumerate("v"))
    orc.execute("ALTER TABLE r DROP CONSTRAINT r_pkey; ALTER TABLE r ADD UNIQUE (b, a)")
    orc.refresh()
    assert sorted(orc.enumerate("v")) == sorted(before)
    orc.alter_view("v", ranked="fee, price")
    require_ranked(orc, "v", "fee, price")
    orc.alter_view("v", maintain="eager")
    orc.execute("UPDATE r SET price = 10 - price")
    require_ranked(orc, "v", "fee, price")
    orc.drop_view("v")
    assert objects(orc) == kept


def objects(orc) -> list[tuple[str]]:
    """Return the relations and functions of the schema in which views are enumerated."""
    return orc.connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = 'idivm_feed'::regnamespace UNION ALL"
        " SELECT proname FROM pg_proc WHERE pronamespace = 'idivm_feed'::regnamespace ORDER BY 1"
    ).fetchall()
