"""Loads in random cases: generated, compared with INSERT, and faults planted on purpose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from harness import TestServer

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from orchestrator.fuzz.case import Case, Load, LoadColumn, Table, View, from_json, to_json
from orchestrator.fuzz.generate import generate
from orchestrator.fuzz.loads.loading import spark_when_needed
from orchestrator.fuzz.outcome import Outcome
from orchestrator.fuzz.runner import Runner
from orchestrator.fuzz.script import script
from orchestrator.fuzz.shrink import shrink
from orchestrator.spark.formats.csv_rows import CsvReader

COLUMNS = (LoadColumn("id", "integer", "int"), LoadColumn("what", "text", "text"))
ROWS = (("4", "a"), ("5", 'x"y'), ("6", None), ("7", ""))


def case(*loads: Load) -> Case:
    """Return a case with a table, a view over it, and these loads."""
    return Case(
        0,
        ("shop",),
        (),
        (
            Table(
                "shop.orders",
                ("CREATE TABLE shop.orders (id integer PRIMARY KEY, what text)",),
                "INSERT INTO shop.orders VALUES",
                ("(1, 'a')", "(2, 'b')"),
            ),
        ),
        (View("shop.counts", "SELECT what, count(*) AS n FROM shop.orders GROUP BY what"),),
        loads,
    )


PLAIN = Load("shop.orders", COLUMNS, ROWS, style=1)
"""A load without Spark."""


@pytest.mark.integration
def test_loads_without_spark(runner: Runner) -> None:
    twice = (("4", "a"), ("1", "taken"))
    loads = (
        PLAIN,
        replace(PLAIN, rows=(("1", "c"), ("9", "d")), mode="upsert", key=("id",)),
        replace(PLAIN, rows=(("1", "c"), ("8", "x")), mode="replace", key=("id",)),
        replace(PLAIN, rows=twice),
        replace(PLAIN, rows=twice, quarantine=True),
        replace(PLAIN, rows=(("x", "no number"),), views="leave"),
    )
    outcome = runner.run(case(*loads))
    assert outcome.failure is None
    assert (outcome.counts["loads"], outcome.counts["loads refused"]) == (4, 2)


@pytest.mark.integration
def test_a_changed_value_is_found(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = CsvReader.lines

    def wrong(self: CsvReader, block: Any) -> Any:
        data, number = lines(self, block)  # type: ignore[misc]
        return data.replace(b'""', b""), number

    monkeypatch.setattr(CsvReader, "lines", wrong)
    failure = runner.run(case(PLAIN)).failure
    assert failure is not None
    assert (failure.kind, failure.step) == ("load", 0)
    assert 'missing  (5,"x""y")' in failure.message


@pytest.mark.integration
def test_a_row_that_should_be_refused_is_found(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = CsvReader.lines

    def fewer(self: CsvReader, block: Any) -> Any:
        data, number = lines(self, block)  # type: ignore[misc]
        return re.sub(rb"(?m)^1,.*\n", b"", data), number

    monkeypatch.setattr(CsvReader, "lines", fewer)
    failure = runner.run(case(replace(PLAIN, rows=(("1", "taken"),)))).failure
    assert failure is not None
    assert failure.kind == "load accepted"


def test_every_kind_of_load_is_generated() -> None:
    loads = [
        step
        for seed in range(150)
        for step in generate(seed, loads=True).steps
        if isinstance(step, Load)
    ]
    assert {load.form for load in loads} == {"csv", "json", "parquet", "orc", "jdbc"}
    assert {load.mode for load in loads} == {"append", "upsert", "replace"}
    assert {load.views for load in loads} == {"auto", "refresh", "rebuild", "leave"}
    for option in ("quarantine", "packed", "multiline", "present", "select", "plain"):
        assert {bool(getattr(load, option)) for load in loads} == {True, False}, option
    families = {column.family for load in loads for column in load.columns}
    assert len(families) == 16


def test_loads_survive_json_and_shrink_to_the_row_that_matters() -> None:
    large = case(PLAIN, replace(PLAIN, rows=(("9", "z"),), packed=True, files=3, select=True))
    assert from_json(to_json(large)) == large

    def fails(smaller: Case) -> bool:
        return any(("9", "z") in step.rows for step in smaller.steps if isinstance(step, Load))

    (step,) = shrink(large, fails).steps
    assert step == Load("shop.orders", COLUMNS, (("9", "z"),))
    assert "INSERT INTO shop.orders" in script(large, Outcome())


@pytest.fixture(scope="module")
def with_spark(pg: TestServer) -> Iterator[Runner]:
    with spark_when_needed() as spark, pg.database(migrated=True) as dsn:
        opened = Runner(dsn, spark)
        yield opened
        opened.close()


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.integration
def test_loads_by_spark(with_spark: Runner) -> None:
    keyed = replace(PLAIN, mode="upsert", key=("id",), style=2, files=2)
    loads = (
        replace(PLAIN, packed=True, multiline=True, quarantine=True, style=2),
        replace(keyed, form="json", select=True),
        replace(keyed, form="parquet", present="what"),
        replace(keyed, form="orc", mode="replace"),
    )
    outcome = with_spark.run(case(*loads))
    assert outcome.failure is None
    assert outcome.counts["loads"] == len(loads)
