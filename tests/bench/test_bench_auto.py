"""`idivm bench auto` on a few views: what it measures, how it judges, what it refuses."""

import psycopg
import pytest

from orchestrator.api import connect
from orchestrator.bench import auto
from orchestrator.bench.auto import suites
from orchestrator.bench.auto.changes import Change, describe, make
from orchestrator.bench.auto.judge import bars
from orchestrator.bench.report import Report
from orchestrator.errors import UsageError


def test_every_suite_can_be_read():
    all_suites = suites.suites(18)
    views = [(suite.name, view.name) for suite in all_suites for view in suite.views]
    assert len(views) == len(set(views)) > 200
    for suite in all_suites:
        assert suite.transactions or suite.updates
        known = {view.name for view in suite.views}
        assert {view.beside for view in suite.views} - {None} <= known
        assert {view.changes for view in suite.views} - {None} <= set(suite.updates)


@pytest.mark.sampled(3)
@pytest.mark.slow
def test_a_view_is_measured_beside_strategies_and_beside_its_query(dsn, tmp_path):
    report = auto.run(
        dsn=dsn,
        quick=True,
        views=["hierarchical sum", "open orders"],
        sizes=["1"],
        strategies=["id"],
        say=lambda text: None,
    )
    changes = [(row["view"], row["change"]) for row in report.rows]
    single = [("hierarchical sum", f"{kind} 1") for kind in ("update", "delete", "insert")]
    assert changes == [*single, ("open orders", "transactions")]
    for row in report.rows:
        assert {"auto", "id", "recomputed"} <= set(row["sides"])
        assert row["auto ms"] > 0 and row["query ms"] > 0 and row["rows"] >= 1
    names = [bar.name for bar in report.bars]
    assert report.bars[0].name == "views that failed" and report.bars[0].holds
    assert any("recomputing" in name for name in names)
    assert any("eight transactions" in name for name in names)
    assert auto.draw(report, tmp_path / "plot.png") == tmp_path / "plot.png"
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT to_regnamespace('idivm_bench')").fetchone() == (None,)


def test_each_change_has_as_many_rows_as_it_says(dsn):
    """The same seeds choose places of the table, from which earlier changes have moved the rows away."""
    with connect(dsn) as orc:
        orc.execute("CREATE TABLE t AS SELECT i AS id, 0 AS v FROM generate_series(1, 5000) AS i")
        table = describe(orc, "t")
        for number in range(1, 6):
            make(orc, table, Change("update", "10%"), "v = v + 1", 0)
            [(total,)] = orc.execute("SELECT sum(v) FROM t")[0].rows
            assert total == 500 * number


def test_bars_name_what_is_too_slow():
    row = {
        "suite": "s",
        "view": "v",
        "statistics": "good",
        "change": "update 1",
        "beside": None,
        "auto ms": 50.0,
        "query ms": 10.0,
        "auto / again": 4.5,
        "auto / best": 5.0,
    }
    slow = {bar.name for bar in bars([row]) if not bar.holds}
    assert len(slow) == 5
    quick = {**row, "auto / again": 0.0, "auto / best": 1.0}
    assert all(bar.holds for bar in bars([quick]))
    assert not list(bars([]))
    assert auto.draw(Report("auto", {}, (), ()), None) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": ["many"]}, "no size of a change"),
        ({"limit": -1.0}, "more than 0"),
        ({"strategies": ["magic"]}, "no strategy 'magic'"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        auto.run(quick=True, **options)
