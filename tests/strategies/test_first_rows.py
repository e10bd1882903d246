"""The first rows of each partition: what is stored, and what large changes are expected to cost."""

from __future__ import annotations

import pytest
from costs import measured

from orchestrator.deltascript.plan import CONTENT, StateTable
from orchestrator.strategies.idiff import first_rows

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


PREFIXES = {
    "numbered": FIRST,
    "ranked": """
        SELECT store, id, amount, place FROM (
            SELECT *, rank() OVER (PARTITION BY store ORDER BY amount DESC NULLS LAST) AS place FROM sales
        ) AS ranked
        WHERE place < 3 AND product > 9
    """,
    "of all": "SELECT * FROM (SELECT id, row_number() OVER (ORDER BY amount, id) AS n FROM sales) AS r WHERE n <= 4",
    "first of each": "SELECT DISTINCT ON (store) store, id, amount FROM sales ORDER BY store, amount DESC, id",
    "without a key": """
        SELECT store, n FROM (
            SELECT *, row_number() OVER (PARTITION BY store ORDER BY amount) AS n FROM lines
        ) AS numbered
        WHERE n <= 2
    """,
}
"""Views whose partitions are too large to be read at each change."""

LARGE = f"""
    {TABLES.replace("g % 20", "g % 2")};
    CREATE TABLE lines (store int, amount int);
    INSERT INTO lines SELECT store, amount FROM sales
"""

OF_PREFIXES = (
    "UPDATE sales SET amount = amount + 1 WHERE id = 300",
    "UPDATE sales SET amount = -1 - id % 3 WHERE id % 400 = 0",
    "DELETE FROM sales WHERE amount < 0",
    "DELETE FROM sales WHERE id IN (SELECT id FROM sales ORDER BY amount, id LIMIT 40)",
    "DELETE FROM sales WHERE id IN (SELECT id FROM sales ORDER BY amount DESC NULLS LAST, id LIMIT 40)",
    "UPDATE sales SET store = 1 - store WHERE id % 97 < 3",
    "INSERT INTO lines VALUES (0, 0), (0, 0), (1, 1)",
    "UPDATE lines SET amount = amount + 1 WHERE amount < 2",
    "DELETE FROM lines WHERE amount < 4 OR store = 1",
    "UPDATE sales SET amount = 8 WHERE store = 1 AND amount IS NULL",
    "DELETE FROM sales WHERE store = 0",
    "INSERT INTO sales VALUES (9001, 0, 12, 5), (9002, 7, 12, NULL), (9003, 7, 12, NULL)",
    "DELETE FROM sales WHERE id <> 9002",
    "INSERT INTO sales SELECT g, g % 2, g % 77, g % 9 FROM generate_series(1, 900) AS g",
    "TRUNCATE sales",
)


@pytest.mark.parametrize("strategy", ["id", "tuple"])
@pytest.mark.parametrize("reserve", [0, 3])
def test_prefixes_of_large_partitions(orc, strategy, reserve, monkeypatch):
    """A part is read again when its prefix has become too short."""
    monkeypatch.setattr(first_rows, "RESERVE", str(reserve))
    orc.execute(LARGE)
    for name, query in PREFIXES.items():
        orc.create_view(f'"{name}"', query, strategy=strategy)
        assert roles(orc, f'"{name}"') >= {"first", "total", CONTENT}, name
    for change in OF_PREFIXES:
        orc.execute(change)
        orc.refresh()
        assert all(report.equal for report in orc.check()), change


def test_prefixes_are_read_and_not_partitions(orc):
    orc.execute(LARGE)
    for name, query in PREFIXES.items():
        orc.create_view(f'"{name}"', query)
        assert "window" not in roles(orc, f'"{name}"')
    measured(orc, row_seconds=1, access_seconds=1e-9)
    orc.execute("DELETE FROM sales WHERE id IN (50, 51, 7)")
    counts = []
    for name in PREFIXES:
        with orc.connection.transaction():
            orc.connection.execute("SELECT * FROM idivm.refresh(%s)", [f'"{name}"'])
            [read] = orc.connection.execute(
                "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'sales'"
            ).fetchone()
        if not orc.view(f'"{name}"').recomputed:
            counts.append(read)
    assert len(counts) > 2 and max(counts) < 100
    assert all(report.equal for report in orc.check())


def test_all_ranks_are_stored_if_a_view_shows_most_rows(orc):
    orc.execute(TABLES)
    # The statistics of other partitions are unknown.
    for number, query in enumerate(
        (
            FIRST.replace("1 >= nth", "1 <= nth"),
            FIRST.replace("1 >= nth", "1001 >= nth").replace(
                "BY store ORDER", "BY product % 2 ORDER"
            ),
            FIRST.replace("row_number()", "dense_rank()").replace(
                "BY store ORDER", "BY product % 2 ORDER"
            ),
        )
    ):
        orc.create_view(f"v{number}", query)
        assert roles(orc, f"v{number}") == {"window", CONTENT}


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
