"""The first rows of each partition: what is stored, and what large changes are expected to cost."""

from __future__ import annotations

import pytest

from orchestrator.deltascript.plan import CONTENT, StateTable

TABLES = """
    CREATE TABLE sales (id int PRIMARY KEY, store int NOT NULL, product int NOT NULL, amount numeric);
    INSERT INTO sales SELECT g, g % 20, g % 77, CASE WHEN g % 50 > 0 THEN g % 9 END
    FROM generate_series(1, 4000) AS g;
    ANALYZE sales
"""

TOP = """
    SELECT store, product, amount, place
    FROM (SELECT store, product, sum(amount) AS amount,
                 rank() OVER (PARTITION BY store ORDER BY sum(amount) DESC) AS place
          FROM sales GROUP BY store, product) AS ranked
    WHERE place <= 3
"""

FIRST = """
    SELECT id, store, amount FROM (
        SELECT *, row_number() OVER (PARTITION BY store ORDER BY amount, id) AS nth FROM sales
    ) AS numbered
    WHERE 1 >= nth AND amount IS NOT NULL
"""

COMPUTED = """
    SELECT twice, nth FROM (
        SELECT store, 2 * amount AS twice, dense_rank() OVER (PARTITION BY store ORDER BY amount) AS nth
        FROM sales
    ) AS ranked
    WHERE nth < 3 AND (twice > 1 OR store = 4)
"""


@pytest.fixture
def tables(orc):
    orc.execute(TABLES)
    return orc


def roles(orc, name):
    states = orc.view(name).plan.program.states
    return {state.role for state in states if isinstance(state, StateTable)}


def change(orc):
    orc.execute("UPDATE sales SET amount = amount + 5 WHERE id % 97 = 0")
    orc.execute("UPDATE sales SET store = (store + 1) % 21, amount = 9 WHERE id % 301 = 0")
    orc.execute("DELETE FROM sales WHERE store = 7 OR id % 203 = 0")
    orc.execute("INSERT INTO sales VALUES (-1, 7, 1, 3), (-2, 7, 2, 3), (-3, 7, 3, NULL)")


@pytest.mark.parametrize("strategy", ["id", "tuple"])
def test_only_the_first_rows_of_small_partitions_are_stored(tables, strategy):
    tables.create_view("top", TOP, strategy=strategy)
    tables.create_view("first", FIRST, strategy=strategy)
    tables.create_view("above", f"SELECT count(*) AS n FROM ({TOP}) AS t", strategy=strategy)
    tables.create_view("computed", COMPUTED, strategy=strategy)
    assert roles(tables, "computed") == {"first_rows", CONTENT}
    assert roles(tables, "top") == {"grouping", CONTENT}
    assert roles(tables, "first") == {CONTENT}
    assert roles(tables, "above") == {"grouping", "first_rows", CONTENT}
    for statement in (
        "UPDATE sales SET amount = 1000 WHERE id = 1",
        "UPDATE sales SET amount = -1000 WHERE id = 1",
        "DELETE FROM sales WHERE store = 3",
        "UPDATE sales SET amount = NULL WHERE store = 4",
        "TRUNCATE sales",
    ):
        tables.execute(statement)
        tables.refresh("top", "first", "above", "computed")
        assert all(report.equal for report in tables.check()), statement
    tables.execute("INSERT INTO sales SELECT g, g % 3, g % 5, 1 FROM generate_series(1, 30) AS g")
    tables.refresh("top", "first", "above", "computed")
    assert all(report.equal for report in tables.check())


def test_changes_of_many_partitions_at_once(tables):
    tables.create_view("top", TOP)
    tables.create_view("first", FIRST)
    change(tables)
    tables.refresh("top", "first")
    assert all(report.equal for report in tables.check())


def test_large_or_unknown_partitions_are_stored_for_spans(orc):
    orc.execute(TABLES.replace("g % 20", "g % 2").replace("ANALYZE sales", ""))
    orc.create_view("unknown", FIRST)
    orc.execute("ANALYZE sales")
    orc.create_view("large", FIRST)
    assert roles(orc, "unknown") == roles(orc, "large") == {"window", CONTENT}
    # Other conditions keep most rows.
    orc.execute("UPDATE sales SET store = id % 20")
    orc.execute("ANALYZE sales")
    orc.create_view("others", FIRST.replace("1 >= nth", "1 <= nth"))
    assert roles(orc, "others") == {"window", CONTENT}


def test_many_changes_share_partitions(tables):
    tables.create_view("top", TOP)
    for cost in tables.view("top").plan.program.costs:
        assert cost.accesses > 100
        assert 0 < cost.least < cost.accesses / 10
    tables.execute("UPDATE sales SET amount = amount + 1 WHERE id % 10 = 0")
    tables.refresh("top")
    [(recomputed,)] = tables.execute("SELECT recomputed FROM idivm.watermarks")[0].rows
    assert not recomputed
    assert all(report.equal for report in tables.check())
