"""The measurements of view trees, over little data."""

from __future__ import annotations

import pytest

from orchestrator.bench.fivm import covariances, joins
from orchestrator.bench.fivm.datasets import HOUSING
from orchestrator.bench.fivm.run import run
from orchestrator.bench.plot import draw_fivm


@pytest.mark.sampled(6)
@pytest.mark.slow
def test_growing_data_sums_paths_and_matrices_are_measured(dsn, tmp_path):
    report = run(
        dsn=dsn,
        parts=("updates", "sum", "paths", "matrices"),
        sizes=(1_000,),
        rows=1_000,
        lengths=(2,),
        seconds=0.2,
        matrix_sizes=(4, 8),
        repeat=1,
    )
    assert {(row["name"], row["side"]) for row in report.rows} == {
        ("one row", "viewtree"),
        ("one row", "factorized"),
        ("the first row", "factorized"),
        ("1,000 rows more", "factorized"),
        *(
            (f"{data}, the whole stream", side)
            for data in ("retailer, sum(units)", "housing, sum(postcode)")
            for side in (
                *("viewtree", "tuple", "SDBT-streams", "recompute"),
                "recompute, pushed down",
            )
        ),
        *(("path of 2, 0.2 s", side) for side in ("viewtree", "tuple", "SDBT-streams")),
        *(
            (f"matrices of {size}, {change}", side)
            for size in (4, 8)
            for change in ("a row", "an outer product")
            for side in ("factors", "listed", "tuple")
            if (change, side) != ("an outer product", "tuple")
        ),
        *(
            (f"matrices of 8, rank {rank}", side)
            for rank in (4, 16, 64)
            for side in ("factors", "listed")
        ),
    }
    assert [bar.name for bar in report.bars] == [
        "paths, least times the rounds of tuple",
        "paths, least times the rounds of SDBT-streams",
        "matrices of 8, times faster than tuple",
        "the same beside matrices of 4",
    ]
    pytest.importorskip("matplotlib")
    path = tmp_path / "fivm.svg"
    assert draw_fivm(report, path) == path
    drawn = path.read_text()
    # Text is drawn as outlines, and told beside them.
    for title in ("matrices of …, a row", "path of 2, 0.2 s", "one row"):
        assert f"<!-- {title} -->" in drawn


@pytest.mark.sampled(4)
@pytest.mark.slow
def test_a_retailer_s_covariance_is_measured_at_several_batch_sizes(dsn):
    report = run(dsn=dsn, parts=("covariance",), rows=1_000, features=2, batches=(10,), repeat=1)
    name = "retailer, covariance of 2 features, batches of"
    assert [(row["name"], row["side"]) for row in report.rows] == [
        *(
            (f"{name} {1000:,}", s)
            for s in (
                *(
                    "insert, captured",
                    "viewtree, alone",
                    "viewtree",
                    "1-IVM",
                    "SDBT-streams",
                    "tuple",
                ),
            )
        ),
        *((f"{name} 10", s) for s in ("viewtree", "1-IVM", "SDBT-streams", "tuple")),
    ]


@pytest.mark.sampled(4)
@pytest.mark.slow
def test_groceries_are_measured_with_categories_and_models_with_numpy(dsn):
    parts = ("categories", "training")
    report = run(dsn=dsn, parts=parts, rows=1_000, features=2, batches=(), repeat=1)
    names = ("favorita, covariance of 2 features, 1", "flights, covariance of 4 features, 2")
    data = ("housing", "retailer", "favorita", "flights")
    models = [f"{dataset}, a model of 1 features" for dataset in data]
    sides = ("training resumed", "training from scratch", "closed form")
    assert [(row["name"], row["side"]) for row in report.rows] == [
        *(
            (f"{name} categories", s)
            for name in names
            for s in ("viewtree", "viewtree, categories")
        ),
        *((model, side) for model in models for side in ("viewtree, no training", *sides)),
    ]
    assert [row["paper"] for row in report.rows if row["name"] == models[1]][:3] == [
        None,
        1.22,
        100,
    ]
    assert all(bar.holds for bar in report.bars if "numpy" in bar.name)


@pytest.mark.sampled(4)
@pytest.mark.slow
def test_streams_are_measured_with_their_figures_in_the_paper(dsn, tmp_path, monkeypatch):
    # The others differ in their tables only.
    for module in (covariances, joins):
        monkeypatch.setattr(module, "DATASETS", (HOUSING,))
    parts = ("stream", "triangles", "information", "joins")
    report = run(dsn=dsn, parts=parts, rows=1_000, features=2, batches=(), intervals=(5,), repeat=1)
    streams = (
        ("housing, covariance of 2 features", "21"),
        ("housing, information of 2 features", "25"),
        ("twitter, covariance of triangles", "23"),
        ("twitter, covariance of triangles, only r changes", "23"),
        ("retailer, the join", "30"),
    )
    assert {(row["name"], row["figure"]) for row in report.rows} == {
        *(
            (f"{name}, {part}", figure)
            for name, figure in streams
            for part in ("along the stream", "the whole stream", "stored at the end")
        ),
        ("twitter, covariance of triangles, batches of 1,000, the whole stream", "24"),
        ("housing, read after each 5, the whole stream", "26"),
    }
    for figure in ("23", "25", "30"):
        assert any(row["paper"] for row in report.rows if row["figure"] == figure)
    pytest.importorskip("matplotlib")
    path = tmp_path / "fivm.svg"
    assert draw_fivm(report, path) == path
    assert "<!-- retailer, the join, along the stream -->" in path.read_text()
