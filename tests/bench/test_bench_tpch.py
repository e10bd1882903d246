"""The benchmark of TPC-H, small: its data, its changes, its views and its report, not its times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import Series
from orchestrator.bench.measure import Execution, durable_server
from orchestrator.bench.plot import draw_tpch
from orchestrator.bench.tpch import data as tpch_data
from orchestrator.bench.tpch import run as tpch
from orchestrator.bench.tpch.data import TABLES
from orchestrator.bench.tpch.run import MATERIALIZED, QUERIES, QUERY, REFRESH, Measured, View
from orchestrator.bench.workload import Workload
from orchestrator.cli.main import main
from orchestrator.errors import UsageError

SCALE = 0.001


def silent(text: str) -> None:
    pass


@pytest.mark.sampled(6)
@pytest.mark.slow
def test_every_view_is_its_querys_answer_after_every_round(dsn: str) -> None:
    report = tpch.run(dsn=dsn, scale=SCALE, rounds=2, share=0.05, check=True, say=silent)
    assert [row["view"] for row in report.rows] == list(QUERIES)
    assert {row["view"]: row["note"] for row in report.rows if row["different"]} == {}
    created, _, right = report.bars
    assert created.holds and created.value == 22 and right.holds and right.value == 2
    # Whoever is recomputed can say why.
    assert all((row["strategy"] == "recompute") == bool(row["note"]) for row in report.rows)


def test_changes_reach_all_tables_in_every_way(orc: Orchestrator) -> None:
    with tpch_data.workload(SCALE).tables(orc, {}):
        orc.execute(
            """
            CREATE TABLE ways (name text, way text);
            CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                INSERT INTO ways VALUES (TG_TABLE_NAME, TG_OP);
                RETURN NULL;
            END $$
            """
        )
        for name in TABLES:
            orc.execute(
                f"CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON {name}"
                " FOR EACH ROW EXECUTE FUNCTION note()"
            )
        counts = []
        for number in range(2):
            tpch_data.change(orc, number, 0.5)
            counts.append(orc.execute("SELECT count(*) FROM lineitem")[0].rows[0][0])
        seen = {tuple(row) for row in orc.execute("SELECT name, way FROM ways")[0].rows}
        assert seen == {(name, way) for name in TABLES for way in ("INSERT", "UPDATE", "DELETE")}
        # What a round brings makes up for what it takes.
        assert 0.5 < counts[1] / counts[0] < 2


def test_a_share_of_the_rows_is_changed(orc: Orchestrator) -> None:
    with Workload("tpch").tables(orc, {}):
        orc.connection.execute("SET bench.share = '0.03'")
        due = []
        for number in range(20):
            orc.connection.execute(f"SET bench.round = {number}".encode())
            due.append(orc.execute("SELECT due(25, 0.5)")[0].rows[0][0])
    # 25 rows, of which 1.5 % are changed a round: 7.5 in twenty rounds.
    assert sum(due) == 7 and set(due) == {0, 1}


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_measures_and_leaves_nothing(pg_version: int, tmp_path: Path) -> None:
    with durable_server(pg_version) as dsn:
        report = tpch.run(dsn=dsn, scale=SCALE, rounds=1, queries=["Q1", "Q5", "Q14"], say=silent)
        with psycopg.connect(dsn) as connection:
            left = "SELECT to_regnamespace('idivm_bench'), (SELECT count(*) FROM idivm.views)"
            assert connection.execute(left).fetchone() == (None, 0)
    assert [row["view"] for row in report.rows] == ["Q1", "Q5", "Q14"]
    assert all(row["ms"] > 0 and row["materialized / refresh"] > 0 for row in report.rows)
    assert [bar.limit for bar in report.bars] == [3, 2, 10.0, 1.1]
    json.dumps(report.to_json())
    pytest.importorskip("matplotlib")
    path = tmp_path / "tpch.svg"
    assert draw_tpch(report, path) == path and path.stat().st_size > 1000


def _measured(milliseconds: float, strategy: str) -> Measured:
    def series(time: float) -> Series:
        return Series((Execution(time, 100, 0, 0, 0, 0),))

    sides = {REFRESH: series(milliseconds), QUERY: series(10.0), MATERIALIZED: series(20.0)}
    return Measured(View("Q1", strategy, "a reason" if strategy == "recompute" else ""), sides)


def test_the_bars_are_on_rematerializing() -> None:
    measured = [_measured(1.0, "id"), _measured(4.0, "id"), _measured(25.0, "recompute")]
    mean, slowest = tpch._bars(measured)
    assert mean.value == pytest.approx((20 * 5 * 0.8) ** (1 / 3)) and not mean.holds
    assert slowest.value == pytest.approx(1.25) and not slowest.holds
    created, recomputed = tpch._created([result.view for result in measured])
    assert created.holds and recomputed.value == 1 and recomputed.holds


def test_a_view_that_cannot_be_created_is_a_finding() -> None:
    views = [View("Q1", "id", ""), View("Q2", "refused", "It cannot.")]
    created, _ = tpch._created(views)
    assert (created.value, created.limit, created.holds) == (1, 2, False)
    assert tuple(tpch._empty(views[1])) == tuple(tpch._row(_measured(1.0, "id")))
    assert list(tpch._bars([])) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rounds": 0}, "--rounds"),
        ({"share": 1.5}, "--change"),
        ({"queries": ["Q23"]}, "Q1 to Q22"),
    ],
)
def test_refuses_what_makes_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        tpch.run(**options)


def test_says_what_makes_the_data(orc: Orchestrator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tpch_data, "GENERATOR", "no-such-generator")
    with pytest.raises(UsageError, match="pip install"):
        tpch_data.workload(SCALE).load(orc, {})


def test_the_command_line_takes_parts_in_per_cent(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "tpch", "--change", "150%", "--json"]) == 2
    assert "--change" in json.loads(capsys.readouterr().out)["error"]
    with pytest.raises(SystemExit):
        main(["bench", "tpch", "--change", "little"])
    assert "argument --change" in capsys.readouterr().err
