"""A data set that arrives as a stream, and what the skewed data sets imitate."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors, sql

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import RECOMPUTE, TREE, require, statement
from orchestrator.bench.fivm.datasets import FAVORITA, HOUSING, RETAILER
from orchestrator.bench.fivm.stream import Side, Stream, along, replay, whole
from orchestrator.bench.fivm.triangles import TWITTER
from orchestrator.bench.measure import Execution
from orchestrator.bench.workload import enter


def answer(orc: Orchestrator, text: str) -> Any:
    row = orc.connection.execute(text.encode()).fetchone()
    assert row is not None
    return row if len(row) > 1 else row[0]


def test_a_stream_is_measured_until_its_end_or_the_time_is_up(orc: Orchestrator) -> None:
    orc.connection.execute(
        "CREATE SCHEMA idivm_bench;"
        "CREATE TABLE idivm_bench.r AS SELECT 11 - n AS a, n % 3 AS b FROM generate_series(1, 10) AS n;"
        "CREATE TABLE idivm_bench.s AS SELECT n AS b FROM generate_series(0, 2) AS n"
    )
    enter(orc)
    query = "SELECT sum(r.a) AS total FROM r JOIN s USING (b)"
    expected = answer(orc, query)
    stream = Stream(orc, ("r", "s"), size=4)
    assert stream.rows == 13 and answer(orc, "SELECT count(*) FROM r") == 0
    tree = require(orc, "v", query, TREE)
    slow = require(orc, "slow", query, RECOMPUTE)

    def canceled() -> Execution:
        raise errors.QueryCanceled

    sides = (
        Side("viewtree", (tree,)),
        Side("lazy", (), statement(orc.connection, sql.SQL(query)), eager=False),
        Side("slow", (slow,), canceled),
    )
    replayed = replay(orc, stream, sides, limit=1e6, interval=2, points=2)
    # The batches are 4 rows of r, 3 of s, and 4 and 2 of r.
    assert [window.arrived for window in replayed.windows] == [7, 13]
    assert [len(window.runs["viewtree"]) for window in replayed.windows] == [2, 2]
    assert [len(window.runs["lazy"]) for window in replayed.windows] == [1, 1]
    assert answer(orc, "SELECT total FROM idivm_bench.v_viewtree") == expected
    assert [view.name for view in orc.views()] == ["v_viewtree"]
    drawn = along("sum", replayed, sides)
    assert [(row["rows"], row["side"]) for row in drawn] == [
        *((7, "viewtree"), (7, "lazy")),
        *((13, "viewtree"), (13, "lazy")),
    ]
    totals = whole("sum", replayed, sides, "viewtree", {"lazy": 5}, {"lazy": 2})
    assert [(row["name"], row["side"], row["paper"]) for row in totals] == [
        ("sum, the whole stream", "viewtree", None),
        ("sum, the whole stream", "lazy", 5),
        ("sum, the whole stream", "slow, stopped after 0 rows", None),
        ("sum, stored at the end", "viewtree", None),
        ("sum, stored at the end", "lazy", 2),
    ]
    assert totals[1]["ratio"] > 0 and totals[2]["milliseconds"] is None


def test_skewed_sales_have_popular_places_and_correlated_features(orc: Orchestrator) -> None:
    for data, fact, place, item in (
        (RETAILER, "inventory", "locn", "ksn"),
        (FAVORITA, "sales", "store", "item"),
    ):
        with data.tables_of(orc, 3_000, 1, skewed=True):
            rows = answer(orc, f"SELECT count(*) FROM {fact}")
            assert 2_000 < rows < 3_000
            for column, least in ((place, 0.05), (item, 0.05)):
                most = f"SELECT count(*) FROM {fact} GROUP BY {column} ORDER BY 1 DESC LIMIT 1"
                assert answer(orc, most) > least * rows
            if data is RETAILER:
                # Features 2 and 3 of a location share most of a hidden size.
                assert answer(orc, "SELECT corr(sell_area, income) FROM location") > 0.5
                priced = "SELECT corr(units, price) FROM inventory JOIN item USING (ksn)"
                assert answer(orc, priced) < 0
    with FAVORITA.tables_of(orc, 3_000, 1):
        assert answer(orc, "SELECT count(*) FROM sales") == 3_000
    with HOUSING.tables_of(orc, 800, 1, skewed=True):
        counts = (
            "SELECT min(n), max(n) FROM (SELECT count(*) AS n FROM house GROUP BY postcode) AS x"
        )
        assert answer(orc, counts) == (1, 4)


def test_the_social_graph_has_a_heavy_tail_and_triangles(orc: Orchestrator) -> None:
    with TWITTER.tables(orc, {"rows": 1_000, "vertices": 200, "seed": 1}):
        rows = answer(orc, "SELECT count(*) FROM r")
        assert 500 < rows <= 1_000
        assert answer(orc, "SELECT count(*) FROM r ORDER BY 1 LIMIT 1") == rows
        top = "SELECT count(*) FROM r GROUP BY a ORDER BY 1 DESC LIMIT 1"
        assert answer(orc, top) > 10 * rows / 200
        assert answer(orc, f"SELECT count(*) {TWITTER.text('from')}") > 100


@pytest.mark.parametrize("data", [RETAILER, HOUSING])
def test_the_pushed_down_sum_is_the_sum_of_the_join(orc: Orchestrator, data: Any) -> None:
    with data.tables_of(orc, 1_000, 1, skewed=True):
        column = "units" if data is RETAILER else "postcode"
        joined = answer(orc, f"SELECT sum({column}) {data.source}")
        assert joined > 0 and answer(orc, data.workload.text("pushed")) == joined
