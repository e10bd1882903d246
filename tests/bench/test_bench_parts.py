"""The benchmark of the running example, small: its data, its rivals and its report, not its times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import (
    ID,
    RECOMPUTE,
    TUPLE,
    Contender,
    Series,
    create,
    offered,
    refreshing,
    require_equal,
    require_strategy,
    view_name,
)
from orchestrator.bench.measure import Execution, durable_server
from orchestrator.bench.parts import against
from orchestrator.bench.parts import run as parts
from orchestrator.bench.parts.breakdown import COMPONENTS, pages
from orchestrator.bench.parts.data import WORKLOAD, Dataset, Prices, query
from orchestrator.bench.parts.formula import Costs
from orchestrator.bench.parts.report import Measured, Point, join_bars, rows
from orchestrator.bench.plot import draw_parts
from orchestrator.bench.report import Bar, Report
from orchestrator.errors import DatabaseError, NameTakenError, UsageError

SMALL = Dataset(parts=500, fanout=10, selectivity=20, joins=4)


@pytest.fixture
def loaded(orc: Orchestrator) -> Iterator[Orchestrator]:
    with WORKLOAD.tables(orc, SMALL.settings()):
        yield orc


def answer(orc: Orchestrator, text: str) -> Any:
    row = orc.connection.execute(text.encode()).fetchone()
    assert row is not None
    return row if len(row) > 1 else row[0]


def without_autovacuum(orc: Orchestrator) -> None:
    """Keep autovacuum, whose pages count as well, from all tables that are there now."""
    orc.connection.execute(
        """
        DO $$
        DECLARE kept regclass;
        BEGIN
            FOR kept IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace IN
                ('idivm_log'::regnamespace, 'idivm_state'::regnamespace, 'idivm_bench'::regnamespace)
            LOOP
                EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', kept);
            END LOOP;
        END
        $$
        """
    )


@pytest.mark.integration
def test_the_tables_are_what_was_asked_for(loaded: Orchestrator) -> None:
    assert answer(
        loaded, "SELECT (SELECT count(*) FROM parts), (SELECT count(*) FROM devices)"
    ) == (
        500,
        500,
    )
    for key in ("pid", "did"):
        each = f"SELECT min(n), max(n), count(*) FROM (SELECT count(*) AS n FROM devices_parts GROUP BY {key}) AS x"
        assert answer(loaded, each) == (10, 10, 500)
    phones = "SELECT count(*) FROM devices WHERE category = 'phone'"
    assert 70 <= answer(loaded, phones) <= 130
    # What is selected does not depend on the part: most parts are in phones and in others.
    assert answer(loaded, f"SELECT count(DISTINCT pid) FROM ({query('V')}) AS v") > 400
    for table in ("r1", "r2"):
        assert answer(loaded, f"SELECT count(*) FROM devices_parts NATURAL JOIN {table}") == 5000
    assert answer(loaded, "SELECT to_regclass('r3') IS NULL")


def test_the_seed_decides_the_data(orc: Orchestrator) -> None:
    seen = []
    for seed in (1, 1, 2):
        with WORKLOAD.tables(orc, {**SMALL.settings(), "seed": seed}):
            seen.append(
                answer(
                    orc,
                    "SELECT (SELECT string_agg(category, ',' ORDER BY did) FROM devices)"
                    " || (SELECT string_agg(price::text, ',' ORDER BY pid) FROM parts)",
                )
            )
    assert seen[0] == seen[1] != seen[2]


def test_a_change_updates_so_many_prices_and_knows_them(loaded: Orchestrator) -> None:
    prices = Prices(loaded, d=40)
    before = answer(loaded, "SELECT sum(price) FROM parts")
    touched = []
    for number in (1, 2):
        prices.change()
        assert answer(loaded, "SELECT count(*) FROM changed NATURAL JOIN parts") == 40
        assert answer(loaded, "SELECT bool_and(price = old_price + 1) FROM changed")
        assert answer(loaded, "SELECT sum(price) FROM parts") == before + 40 * number
        touched.append(answer(loaded, "SELECT array_agg(pid ORDER BY pid) FROM changed"))
    assert touched[0] != touched[1]


def test_the_parameters_of_the_formula_are_those_of_the_change(loaded: Orchestrator) -> None:
    prices = Prices(loaded, d=40)
    prices.change()
    everything = prices.costs(joins=4, selective=False)
    assert (everything.a, everything.p) == (71, 10)
    rows, groups = answer(
        loaded,
        f"SELECT count(*), count(DISTINCT did) FROM ({query('V')}) AS v JOIN changed USING (pid)",
    )
    assert prices.costs(joins=2) == Costs(a=31, p=rows / 40, g=groups / rows)


@pytest.mark.parametrize("case", list(against.CASES))
def test_a_refresh_the_hand_and_a_materialized_view_do_the_same(
    loaded: Orchestrator, case: str
) -> None:
    """The measurement itself refuses rivals whose content differs."""
    measured = against.measure(loaded, case, RECOMPUTE, d=30, repeat=2)
    assert measured is not None
    for series in (measured.refresh, measured.by_hand, measured.materialized):
        assert len(series.runs) == 2 and series.milliseconds > 0 and series.buffers > 0
    assert measured.times_by_hand > 0 and measured.times_faster > 0
    left = answer(loaded, "SELECT count(*) FROM pg_class WHERE relname ~ 'by_hand|materialized'")
    assert left == 0 and loaded.views() == []


def test_a_rival_that_is_wrong_is_refused(
    loaded: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    swapped = {**against._MAINTAIN, "V": "maintain_v_prime", "V'": "maintain_v"}
    monkeypatch.setattr(against, "_MAINTAIN", swapped)
    with pytest.raises(DatabaseError, match="is not V"):
        against.measure(loaded, "V", RECOMPUTE, d=30, repeat=1)


def test_what_this_version_lacks_is_left_out_unless_asked_for(loaded: Orchestrator) -> None:
    missing = Contender("later", "to_come")
    both = (missing, RECOMPUTE)
    assert offered(loaded, both, query("V"), ()) == (RECOMPUTE,)
    with pytest.raises(UsageError, match=r"later cannot be measured: .*to_come"):
        offered(loaded, both, query("V"), ["later"])
    with pytest.raises(UsageError, match="no strategy 'other'"):
        offered(loaded, both, query("V"), ["other"])
    assert loaded.views() == []


def test_a_view_kept_by_another_strategy_is_refused(loaded: Orchestrator) -> None:
    loaded.create_view(view_name("v", ID), query("V"), strategy="recompute")
    with pytest.raises(DatabaseError, match=r"was to be maintained by id and is .* by recompute"):
        require_strategy(loaded, view_name("v", ID), ID)


def test_a_view_that_is_wrong_is_refused(loaded: Orchestrator) -> None:
    assert create(loaded, "v", query("V"), RECOMPUTE) is None
    view = view_name("v", RECOMPUTE)
    require_equal(loaded, [view])
    loaded.connection.execute(f"DELETE FROM {loaded.view(view).state}".encode())
    with pytest.raises(DatabaseError, match="would say nothing"):
        require_equal(loaded, [view])


@pytest.mark.sampled(6)
@pytest.mark.slow
def test_measures_and_leaves_nothing(pg_version: int, tmp_path: Path) -> None:
    with durable_server(pg_version) as dsn:
        report = parts.run(
            dsn=dsn,
            scale=0.002,
            repeat=2,
            d=(50, 10**6),
            j=(2, 3, 4),
            s=(100,),
            f=(5,),
            say=lambda text: None,
        )
        with psycopg.connect(dsn) as connection:
            left = "SELECT to_regnamespace('idivm_bench'), (SELECT count(*) FROM idivm.views)"
            assert connection.execute(left).fetchone() == (None, 0)
    assert len({tuple(row) for row in report.rows}) == 1
    assert {row["varied"] for row in report.rows} == {"d", "j", "s", "f", "against"}
    assert {row["d"] for row in report.rows} == {50, 200}
    measured = [row for row in report.rows if not row["note"]]
    assert all(row["ms"] > 0 and row["buffers"] > 0 for row in measured)
    assert {row["strategy"] for row in measured if row["varied"] == "j"} >= {"id"}
    assert {row["view"] for row in measured if row["varied"] == "d"} == {"V", "V'"}
    names = [bar.name for bar in report.bars]
    assert any(name.startswith("id, growth of time with j") for name in names)
    assert "V and V', refresh / SQL by hand, time" in names
    assert [(bar.op, bar.limit) for bar in report.bars if bar.name.startswith("V and V'")] == [
        ("<=", 1.5),
        (">=", 15.0),
    ]
    json.dumps(report.to_json())
    pytest.importorskip("matplotlib")
    path = tmp_path / "parts.svg"
    assert draw_parts(report, path) == path
    drawn = path.read_text()
    # Nine panels: times and pages of the four axes, and the rivals.
    assert 'id="axes_9"' in drawn and 'id="axes_10"' not in drawn


def test_the_pages_of_a_refresh_are_those_of_its_components(loaded: Orchestrator) -> None:
    prices = Prices(loaded, d=40)
    touched = {}
    for contender in (ID, TUPLE):
        assert create(loaded, "v_prime", query("V'"), contender) is None
        view = view_name("v_prime", contender)
        without_autovacuum(loaded)
        prices.change()
        refresh = refreshing(loaded.connection, [view])
        measured, touched[contender] = pages(loaded, view, refresh, cold=False)
        # The others are pages of catalogs.
        assert sum(touched[contender].values()) <= measured.buffers
        assert touched[contender]["log pages"] > 0 and touched[contender]["view pages"] > 0
    # Only tuple-based maintenance joins the tables again, and only ID-based has a cache.
    assert touched[ID]["table pages"] < touched[TUPLE]["table pages"]
    assert touched[ID]["cache pages"] > 0 and touched[TUPLE]["cache pages"] == 0


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_a_cold_refresh_reads_its_pages(pg_version: int, tmp_path: Path) -> None:
    report = parts.run(
        scale=0.01,
        repeat=1,
        d=(50,),
        j=(),
        s=(100,),
        f=(),
        strategies=["id", "tuple"],
        cold=True,
        pg=pg_version,
        say=lambda text: None,
    )
    assert report.bench == "parts, cold"
    assert [(row["varied"], row["view"], row["strategy"]) for row in report.rows] == [
        (varied, view, strategy)
        for varied, view in (("d", "V'"), ("d", "V"), ("s", "V'"))
        for strategy in ("id", "tuple")
    ]
    # Where an earlier refresh of so small a view recomputed it, all of its pages are in memory.
    assert any(row[component] > 0 for row in report.rows for component in COMPONENTS)
    assert len(report.bars) == 2
    pytest.importorskip("matplotlib")
    assert draw_parts(report, tmp_path / "cold.svg")


@pytest.mark.slow
def test_recompute_alone_has_no_bars(pg_version: int) -> None:
    with durable_server(pg_version) as dsn:
        report = parts.run(
            dsn=dsn,
            scale=0.002,
            repeat=1,
            d=(),
            j=(2,),
            s=(),
            f=(),
            strategies=["recompute"],
            compare=False,
            say=lambda text: None,
        )
    (row,) = report.rows
    assert row["strategy"] == "recompute" and row["time / id"] is None and report.bars == ()


def _runs(*milliseconds: float) -> Series:
    return Series(tuple(Execution(ms, 10, 0, 0, 0, 0) for ms in milliseconds))


def test_growth_is_a_finding_for_id_and_expected_of_tuple() -> None:
    def bars(grown: str) -> dict[str, bool]:
        measured = []
        for j in (2, 3, 4, 5, 6):
            flat, steep = _runs(10.1, 9.9, 10.0), _runs(5.0 * j, 5.1 * j, 4.9 * j)
            series = {
                contender.label: steep if contender.label in grown else flat
                for contender in (ID, TUPLE)
            }
            measured.append(Measured(Point("j", j=j), Costs(31, 2, 1), series, {}))
        return {bar.name.partition(",")[0]: bar.holds for bar in join_bars(measured)}

    assert bars("tuple") == {"id": True, "tuple": True}
    assert bars("id") == {"id": False, "tuple": False}


def test_the_ratio_stands_beside_the_prediction() -> None:
    series = {"id": _runs(2.0, 4.0), "tuple": _runs(10.0, 20.0)}
    measured = Measured(Point("d"), Costs(31, 2, 1), series, {"SDBT-fixed": "It cannot."})
    first, second, third = rows(1000, measured)
    assert (first["time / id"], first["formula"]) == (1.0, None)
    assert (second["time / id"], second["formula"], second["paper"]) == (5.0, 5.0, "4 to 5")
    assert (third["ms"], third["note"]) == (None, "It cannot.")


def test_nothing_to_draw_draws_nothing(tmp_path: Path) -> None:
    assert draw_parts(Report("parts", {}, (), (Bar("b", 1, "<", 2),)), tmp_path / "x.png") is None


def test_a_cold_run_needs_a_server_of_its_own(dsn: str) -> None:
    with pytest.raises(UsageError, match="leave --dsn out"):
        parts.run(dsn=dsn, scale=0.002, cold=True)


def test_refuses_a_server_without_durable_commits(dsn: str) -> None:
    with pytest.raises(UsageError, match="fsync is off"):
        parts.run(dsn=dsn, scale=0.002)


def test_refuses_a_schema_that_is_there_and_keeps_it(orc: Orchestrator) -> None:
    orc.connection.execute("CREATE SCHEMA idivm_bench; CREATE TABLE idivm_bench.mine ()")
    with pytest.raises(NameTakenError, match="idivm_bench"):
        WORKLOAD.tables(orc, SMALL.settings()).__enter__()
    assert answer(orc, "SELECT to_regclass('idivm_bench.mine') IS NOT NULL")


@pytest.mark.parametrize(
    "options",
    [
        {"scale": 0},
        {"repeat": 0},
        {"d": (0,)},
        {"j": (1,)},
        {"s": (101,)},
        {"f": (0,)},
    ],
)
def test_refuses_what_makes_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="--"):
        parts.run(**options)
