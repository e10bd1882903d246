"""Views with the option `ranked`, whose rows are read in an order without computing the others."""

from __future__ import annotations

import random

import pytest

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
