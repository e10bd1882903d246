"""The benchmark of social views, small: its data, its views and its report, not its times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from orchestrator.api import Orchestrator
from orchestrator.bench import bsma
from orchestrator.bench.bsma import CONTENDERS, QUERIES, WORKLOAD, Measured
from orchestrator.bench.contenders import (
    AUTO,
    ID,
    UNMINIMISED,
    Series,
    create,
    offered,
    view_name,
)
from orchestrator.bench.measure import Execution, durable_server
from orchestrator.bench.plot import draw_bsma
from orchestrator.bench.report import Report
from orchestrator.cli.main import main
from orchestrator.errors import UsageError


def count_of(orc: Orchestrator, source: str) -> int:
    row = orc.connection.execute(f"SELECT count(*) FROM {source}".encode()).fetchone()
    assert row is not None
    return int(row[0])


def test_the_tables_have_the_papers_proportions(orc: Orchestrator) -> None:
    users = 2_000
    with WORKLOAD.tables(orc, {"users": users, "seed": 1}):
        sizes = {
            "users": 1,
            "friendlist": 100,
            "microblog": 20,
            "retweets": 4,
            "mentions": 8,
            "rel_event_microblog": 16,
        }
        assert {name: count_of(orc, name) / users for name in sizes} == sizes
        keys = "pg_constraint WHERE connamespace = 'idivm_bench'::regnamespace AND contype = "
        assert count_of(orc, f"{keys} 'p'") == 6
        assert count_of(orc, f"{keys} 'f'") == 8
        shares = {
            "retweets": ("remid", 0.1),
            "mentions": ("mid", 0.2),
            "rel_event_microblog": ("mid", 0.4),
        }
        for table, (column, share) in shares.items():
            distinct = f"(SELECT DISTINCT {column} FROM {table}) AS x"
            assert count_of(orc, distinct) == share * count_of(orc, "microblog")
        assert count_of(orc, "friendlist WHERE uid = friend_id") == 0
        assert count_of(orc, "retweets WHERE mid = remid") == 0
        assert (
            count_of(orc, "(SELECT DISTINCT date_trunc('month', posted) FROM microblog) AS m") == 12
        )


@pytest.fixture
def network(orc: Orchestrator) -> Iterator[Orchestrator]:
    with WORKLOAD.tables(orc, {"users": bsma.FEWEST_USERS, "seed": 3}):
        yield orc


def test_the_seed_decides_the_data(orc: Orchestrator) -> None:
    seen = []
    for seed in (1, 1, 2):
        with WORKLOAD.tables(orc, {"users": 200, "seed": seed}):
            seen.append(orc.connection.execute("SELECT * FROM friendlist ORDER BY 1, 2").fetchall())
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_every_view_is_kept_right_by_every_strategy(
    network: Orchestrator, query: bsma.Query
) -> None:
    present = offered(network, CONTENDERS, QUERIES[0].text, ())
    refused = {
        contender.label: create(network, query.file, query.text, contender) for contender in present
    }
    assert refused == dict.fromkeys(refused)
    views = [view_name(query.file, contender) for contender in present]
    scripts = [
        network.explain(view_name(query.file, contender)).sql for contender in (ID, UNMINIMISED)
    ]
    assert len(scripts[0]) < len(scripts[1])
    before = network.connection.execute(query.text.encode()).fetchall()
    assert before
    bench = bsma._Bench(present, 1, 20, True, print, count(7))
    for _ in range(2):
        bsma._update(bench, network)
        assert [report.equal for report in network.check(*views)] == [True] * len(views)
    assert network.connection.execute(query.text.encode()).fetchall() != before


@pytest.mark.sampled(3)
@pytest.mark.slow
def test_measures_and_leaves_nothing(pg_version: int, tmp_path: Path) -> None:
    with durable_server(pg_version) as dsn:
        report = bsma.run(
            dsn=dsn,
            scale=0.0002,
            repeat=2,
            queries=["Q7", "Q*3"],
            check=True,
            say=lambda text: None,
        )
        with psycopg.connect(dsn) as connection:
            left = "SELECT to_regnamespace('idivm_bench'), (SELECT count(*) FROM idivm.views)"
            assert connection.execute(left).fetchone() == (None, 0)
    well_formed(report, {"Q7", "Q*3"})
    pytest.importorskip("matplotlib")
    path = tmp_path / "bsma.svg"
    assert draw_bsma(report, path) == path and path.stat().st_size > 1000


@pytest.mark.sampled(3)
@pytest.mark.slow
def test_measures_cold(pg_version: int) -> None:
    report = bsma.run(
        scale=0.0002,
        repeat=1,
        cold=True,
        queries=["Q10"],
        check=True,
        pg=pg_version,
        say=lambda text: None,
    )
    assert report.bench == "bsma, cold" and report.machine["shared_buffers"] == "16MB"
    well_formed(report, {"Q10"})
    # What was read is a part of what was touched, and a server just started has to read.
    assert all(0 < row["not in memory"] <= row["buffers"] for row in report.rows)


def well_formed(report: Report, views: set[str]) -> None:
    assert {row["view"] for row in report.rows} == views
    assert len({tuple(row) for row in report.rows}) == 1
    for view in views:
        by = {row["strategy"]: row for row in report.rows if row["view"] == view}
        assert {"id", "auto"} <= set(by) and by["id"]["time / id"] == 1.0
        assert by["auto"]["note"].startswith("takes ")
        assert all(row["ms"] > 0 and row["buffers"] > 0 for row in by.values())
    json.dumps(report.to_json())


def _runs(milliseconds: float, buffers: int) -> Series:
    return Series((Execution(milliseconds, buffers, 0, 0, 0, 0),))


def _measured_with(ratios: list[float]) -> list[Measured]:
    measured = []
    for query, ratio in zip(QUERIES, ratios, strict=False):
        series = {
            "id": _runs(2.0, 100),
            "tuple": _runs(2.0 * ratio, round(150 * ratio)),
            "auto": _runs(2.0, 100),
        }
        measured.append(Measured(query, series, {}, "id"))
    return measured


def test_the_bars_are_on_geometric_means() -> None:
    _, time, buffers, least = bsma._bars(_measured_with([1.0, 4.0]), cold=False)
    assert time.value == pytest.approx(2.0) and (time.op, time.limit) == (">=", 1.8)
    assert buffers.value == pytest.approx(3.0) and (buffers.op, buffers.limit) == (">=", 2.5)
    assert (least.value, least.op, least.limit) == (1.0, ">=", 1.0)
    assert "the paper: 40" in time.name  # Q7's 29 and Q10's 54
    _, cold, _ = bsma._bars(_measured_with([1.0, 4.0]), cold=True)
    assert (cold.value, cold.limit) == (pytest.approx(2.0), 5.0) and not cold.holds


def test_a_view_that_id_does_not_maintain_is_a_finding() -> None:
    measured = _measured_with([2.0, 2.0])
    measured[1] = Measured(measured[1].query, {"tuple": _runs(1.0, 1)}, {"id": "It cannot."}, None)
    bars = bsma._bars(measured, cold=False)
    assert (bars[0].value, bars[0].limit, bars[0].holds) == (1, 2, False)
    assert bars[1].value == pytest.approx(2.0)


def test_without_tuple_there_are_no_bars() -> None:
    measured = Measured(QUERIES[0], {"id": _runs(1.0, 1), AUTO.label: _runs(1.0, 1)}, {}, "id")
    assert bsma._bars([measured], cold=False) == ()


def test_the_figure_shows_ratios_where_there_are_any(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for results, panels in ((_measured_with([2.0, 3.0]), 2), ([], 0)):
        rows = tuple(row for measured in results for row in bsma._rows(measured))
        path = draw_bsma(Report("bsma", {}, rows, ()), tmp_path / "new" / "bsma.svg")
        assert (path.read_text().count('id="axes_') if path else 0) == panels


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scale": 0.0001}, "--scale"),
        ({"repeat": 0}, "--repeat"),
        ({"queries": ["Q8"]}, "Q\\*1"),
        ({"dsn": "host=nowhere", "cold": True}, "--dsn"),
    ],
)
def test_refuses_what_makes_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        bsma.run(**options)


def test_the_command_line_offers_both(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "bsma", "--query", "Q8", "--json"]) == 2
    assert "Q8" in json.loads(capsys.readouterr().out)["error"]
    assert main(["bench", "parts", "--d", "--j", "1"]) == 2
    assert "--j takes numbers from 2" in capsys.readouterr().err
