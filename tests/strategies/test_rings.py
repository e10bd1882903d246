"""Rings that users register, by the example of the documentation and by others."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.errors import IdivmError

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[2] / "docs" / "rings.md"
RING, TABLES, QUERY = re.findall(
    r"```sql\n(.*?)```", PAGE.read_text().partition("## Example")[2], re.DOTALL
)
EXAMPLE = [RING, TABLES + QUERY]

CHANGES = (
    "INSERT INTO orders SELECT g, CASE WHEN g % 2 = 0 THEN 'Oslo' ELSE 'Bari' END, g * 15 FROM generate_series(10, 30) AS g",
    "UPDATE orders SET price = NULL WHERE id % 5 = 0; UPDATE fees SET fee = fee * 2 WHERE city = 'Oslo'",
    "DELETE FROM orders WHERE city = 'Bari'; INSERT INTO fees VALUES ('Bari', 'bike', 2)",
    "UPDATE orders SET city = 'Bari', price = price + 1 WHERE id % 3 = 0; DELETE FROM fees WHERE carrier = 'bike'",
    "UPDATE regions SET region = 'south'; DELETE FROM orders WHERE id < 20",
    "DELETE FROM orders",
    "INSERT INTO orders VALUES (1, 'Bari', -3), (2, 'Oslo', 0)",
)


def equal_after(orc, change):
    orc.execute(change)
    orc.refresh()
    different = {r.view: (r.missing_rows, r.surplus_rows) for r in orc.check() if not r.equal}
    assert different == {}, change


@pytest.mark.slow
def test_the_example_and_what_else_it_can(orc):
    ring, tables = EXAMPLE
    orc.execute(ring)
    *_, result = orc.execute(tables)
    # Oslo 20 + 10 or 4, Turku 12 or 30 + 8: the deleted order counts no more.
    north = [Decimal(x) for x in (30, 24, 20, 38)]
    middle = sum(north) / 4
    assert result.rows[0] == (
        "north",
        4,
        round(middle, 2),
        round(sum(x * x for x in north) / 4 - middle**2, 2),
    )
    assert orc.explain("totals").strategy == "viewtree"
    orc.execute(
        "CREATE FUNCTION weighted(x numeric, place integer) RETURNS moments LANGUAGE sql IMMUTABLE STRICT"
        " RETURN public.moments_lift(x * place);"
        'CREATE SCHEMA "Other";'
        "SELECT idivm.register_ring('\"Other\".\"Sum of\"', 'moments_plus(moments, moments)',"
        " 'moments_times(moments, moments)', 'moments_negate(moments)', 'moments_zero()', 'moments_one()',"
        " 'weighted(numeric, integer)')"
    )
    rest = "orders JOIN fees USING (city) JOIN regions USING (city)"
    for name, query in {
        "whole": f'SELECT "Other"."Sum of"(price, fee, price * 2) AS w, moments(fee) AS m, count(*) AS n FROM {rest}',
        "filtered": f"SELECT carrier, moments(price, fee) FILTER (WHERE region = 'south' AND price > 2) AS m FROM {rest}"
        " GROUP BY carrier",
        "eager": f"SELECT city, moments(price, price, fee) AS m, sum(fee) AS s FROM {rest} WHERE fee > 3 GROUP BY city",
    }.items():
        view = orc.create_view(
            name, query, strategy="viewtree", maintain="eager" if name == "eager" else "deferred"
        )
        assert view.strategy == "viewtree"
    for change in CHANGES:
        equal_after(orc, change)
    listed = "factorized"
    query = f"SELECT region, city, moments(price, fee) AS m FROM {rest} GROUP BY region, city"
    orc.create_view("kept", query, strategy="viewtree", representation=listed)
    for change in CHANGES[1:4]:
        equal_after(orc, change)


def test_many_rows_of_one_element_are_added_by_doubling(orc):
    orc.execute(EXAMPLE[0])
    [result] = orc.execute(
        "SELECT n, moments_multiple(ROW(1, 2, 5)::moments, n)::text FROM unnest(ARRAY[-13, -1, 0, 1, 6, 10000000000]) AS n"
    )
    assert result.rows == [(n, f"({n},{2 * n},{5 * n})") for n, _ in result.rows]


def test_what_is_no_ring_is_refused(orc):
    orc.execute(EXAMPLE[0])
    register = "SELECT idivm.register_ring('other', {}(moments, moments)', {}(moments, moments)', {}(moments)', {}()', {}()', {}')"
    given = ["'moments_plus", "'moments_times", "'moments_negate", "'moments_zero", "'moments_one"]
    lift = "'moments_lift(numeric)"
    orc.execute(
        "CREATE FUNCTION same(a moments) RETURNS moments LANGUAGE sql IMMUTABLE STRICT RETURN a;"
        "CREATE FUNCTION loose(a moments, b moments) RETURNS moments LANGUAGE sql IMMUTABLE RETURN a"
    )
    for place, name, says in (
        (2, "'same", r"make no ring: public\.moments_plus\(.*it is \(\"\(2,0,0\)\"\)"),
        (0, "'loose", "cannot be plus"),
    ):
        names = [*given[:place], name, *given[place + 1 :]]
        with pytest.raises(IdivmError, match=says):
            orc.execute(register.format(*names, lift))
    assert orc.execute("SELECT name FROM idivm.rings")[0].rows == [("moments",)]


def test_a_ring_that_a_view_uses_stays(orc):
    for part in EXAMPLE:
        orc.execute(part)
    with pytest.raises(IdivmError, match="depend"):
        orc.execute("SELECT idivm.drop_ring('moments')")
    orc.drop_view("totals")
    orc.execute("SELECT idivm.drop_ring('moments')")
    [left] = orc.execute("SELECT proname FROM pg_proc WHERE proname LIKE 'moments%' ORDER BY 1")
    assert [name for (name,) in left.rows] == [
        *("moments_lift", "moments_negate", "moments_one"),
        *("moments_plus", "moments_times", "moments_zero"),
    ]
