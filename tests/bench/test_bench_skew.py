"""The measurement of heavy and light parts, over graphs that are small."""

from __future__ import annotations

from fractions import Fraction

import pytest

from orchestrator.bench.plot import draw_skew
from orchestrator.bench.skew import cycles, lookups, mixes, slopes, streams
from orchestrator.bench.skew.run import run
from orchestrator.errors import DatabaseError, UsageError


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_every_side_is_measured_on_every_graph(dsn, tmp_path):
    report, zipf = (
        run(dsn=dsn, sizes=sizes, epsilons=("1/2", "3/4"), updates=6, shapes=(graph,))
        for graph, sizes in (("worst", (1_000, 2_000)), ("zipf", (1_000,)))
    )
    measured = [(row["graph"], row["rows"], row["side"]) for row in (*report.rows, *zipf.rows)]
    assert measured == [
        (graph, size, side)
        for graph, size in (("worst", 1_000), ("worst", 2_000), ("zipf", 1_000))
        for side in ("skew 1/2", "skew 3/4", "tuple", "viewtree")
    ]
    assert all(row["buffers"] > 0 and row["stored"] > 0 for row in report.rows)
    moved = [row for row in report.rows if row["side"].startswith("skew")]
    assert all(row["a value moves"] and row["all are divided"] for row in moved)
    assert [bar.name for bar in report.bars] == [
        "tuple, slope of buffers touched by a change",
    ]
    assert draw_skew(report, tmp_path / "skew.png") in (None, tmp_path / "skew.png")


@pytest.mark.slow
def test_a_stream_of_changes_is_measured_in_windows_and_beside_batches(dsn, monkeypatch):
    monkeypatch.setattr(streams, "WINDOWS", 2)
    monkeypatch.setattr(streams, "BATCH", 60)
    report = run(dsn=dsn, sizes=(1_000,), updates=6, shapes=("stream",))
    assert [(row["side"], row["window"]) for row in report.rows] == [
        (side, window) for window in (1, 2) for side in ("tuple", "skew 1/2", "auto")
    ]
    fast = {"changes/s": 300.0, "ms": 3.0, "ms of a batch": 18.0, "strategy": "skew"}
    rows = [row | (fast if row["side"] == "auto" else {"changes/s": 200.0}) for row in report.rows]
    rows[-1] |= {"changes/s": 100.0}
    assert [(bar.value, bar.limit) for bar in streams.bars(rows)][::2] == [(0.5, 1), (10, 10)]


@pytest.mark.slow
def test_pairs_are_measured_beside_their_exponents(dsn):
    report = run(dsn=dsn, sizes=(1_000, 4_000), epsilons=("1/2", "1"), updates=6, shapes=("pairs",))
    slope = "pairs, skew 1/2, slope of"
    assert {bar.name.removeprefix(f"{slope} "): (bar.op, bar.limit) for bar in report.bars} == {
        "a change, a row that meets nothing": ("≈", 0),
        "a change, rows of a light value": ("≈", 0.5),
        "a change, a value that is frequent in s alone": ("≈", 0),
        "rebalancing, by change": ("<=", 0.6),
        "rows stored": ("<=", 1.6),
        "rows of the largest state": ("≈", 1.5),
        "steps of preprocessing": ("<=", 1.6),
        "steps to the next row": ("≈", 0.5),
        "steps to the next row at most": ("<=", 0.6),
    }
    assert all(bar.holds for bar in report.bars if bar.name.startswith(f"{slope} a change"))


@pytest.mark.slow
def test_lookups_are_measured_beside_their_theorem(dsn, tmp_path):
    report = run(dsn=dsn, sizes=(1_000, 4_000), updates=6, shapes=("lookups",))
    assert [(row["rows"], row["side"]) for row in report.rows] == [
        (size, side) for size in (1_000, 4_000) for side in ("inputs", "factorized")
    ]
    assert draw_skew(report, tmp_path / "skew.png") in (None, tmp_path / "skew.png")
    assert [(bar.name, bar.limit) for bar in report.bars] == [
        ("lookups, slope of buffers touched by a change (theorem: 0)", 0.12),
        ("lookups, slope of buffers to the next row (theorem: 0)", 0.12),
        ("lookups, slope of buffers to the next row at most (theorem: 0)", 0.12),
        ("lookups, slope of rows stored (theorem: 1)", 1.12),
        ("lookups, slope of buffers of preprocessing (theorem: 1)", 1.12),
        ("lookups, without inputs, slope of buffers touched by a change", lookups.WITHOUT_AT_LEAST),
    ]
    asked, without = (
        [row["buffers"] for row in report.rows if row["side"] == side]
        for side in ("inputs", "factorized")
    )
    assert asked[1] < 2 * asked[0]
    assert without[1] > 2 * without[0]


@pytest.mark.slow
def test_ranked_pairs_are_measured_beside_their_theorem(dsn, tmp_path):
    report = run(dsn=dsn, sizes=(1_000, 4_000), updates=6, shapes=("ranked",))
    assert [(row["rows"], row["side"]) for row in report.rows] == [
        (size, side)
        for size in (1_000, 4_000)
        for side in ("ranked", "LIMIT 10", "LIMIT 10, stored")
    ]
    assert draw_skew(report, tmp_path / "skew.png") in (None, tmp_path / "skew.png")
    assert [(bar.name, bar.limit) for bar in report.bars] == [
        ("ranked, slope of buffers touched by a change (theorem: log N)", 0.15),
        ("ranked, slope of buffers to the first row (theorem: log N)", 0.15),
        ("ranked, slope of buffers to the next row (theorem: log N)", 0.15),
        ("ranked, slope of rows stored (theorem: N)", 1.15),
        ("ranked, slope of buffers of preprocessing (theorem: N log N)", 1.15),
        ("ranked, LIMIT 10, slope of buffers touched by a change (theorem: log N)", 0.15),
        ("ranked, LIMIT 10, slope of buffers of a read (theorem: log N)", 0.15),
        ("ranked, LIMIT 10, slope of rows stored (theorem: N)", 1.15),
        ("ranked, LIMIT 10, slope of buffers of preprocessing (theorem: N log N)", 1.15),
    ]
    for small, large in zip(report.rows[:2], report.rows[3:5], strict=True):
        assert large["buffers"] < 2 * small["buffers"]
        assert large["first"] < 2 * small["first"]
    assert report.rows[3]["delay"] < 2 * report.rows[0]["delay"]


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_each_kind_of_change_is_measured_beside_its_exponent(dsn, tmp_path):
    report = run(
        dsn=dsn, sizes=(1_000, 4_000), epsilons=("1/2",), updates=6, shapes=("unary", "in_a_row")
    )
    assert draw_skew(report, tmp_path / "skew.png") in (None, tmp_path / "skew.png")
    kinds = {row["kind"] for row in report.rows if row["graph"] == "unary" and "kind" in row}
    assert kinds == {*(change.kind for change in cycles.CHANGES), "rebalancing"}
    assert {(bar.op, bar.limit) for bar in report.bars if "slope of a change" in bar.name} == {
        ("≈", 0),
        ("≈", 0.5),
    }
    assert {bar.limit for bar in report.bars if "largest state" in bar.name} == {1.5, 1}
    grows = next(bar for bar in report.bars if "light value of r" in bar.name)
    assert grows.holds


def test_a_change_that_costs_nothing_is_an_error():
    rows = [{"kind": cycles.CHANGES[1].kind, "rows": size, slopes.NET: 0} for size in (10, 100)]
    with pytest.raises(DatabaseError, match="would say nothing"):
        list(slopes.exponents(rows, cycles.CHANGES, Fraction(1, 2), "a query"))


def test_too_little_to_measure_is_refused(dsn):
    with pytest.raises(UsageError, match="updates"):
        run(dsn=dsn, sizes=(10,))


@pytest.mark.slow
def test_pages_are_measured_over_few_and_many_heavy_values(dsn):
    report = run(dsn=dsn, sizes=(16_000,), shapes=("pages",))
    assert [row["heavy"] for row in report.rows] == [20, 80, 320]
    buffers = {row["heavy"]: row["buffers of a row"] for row in report.rows}
    assert 0 < buffers[320] < 2 * buffers[20]
    assert {bar.name: bar.limit for bar in report.bars} == {
        "pages, 16,000 rows, a row in pages: 320 heavy values, times 20": 2,
        "pages, 16,000 rows, buffers of a row: 320 heavy values, times 20": 2,
        "pages, 16,000 rows, a row in pages, times a row of SELECT": 20,
    }


def test_the_bar_on_mixes_compares_auto_with_the_best_fixed_epsilon():
    costs = {"skew 0": 90.0, "skew 1/2": 60.0, "skew auto": 66.0}
    rows = [
        {"rows": 10, "mix": mix, "side": side, "mix, ms": cost}
        for mix in mixes.RATIOS
        for side, cost in costs.items()
    ]
    assert [(bar.value, bar.holds) for bar in mixes.bars(rows)] == [(1.1, True)] * 2
