"""`idivm bench NAME`: what a measurement takes, the command line gives."""

from __future__ import annotations

import argparse
import inspect
from dataclasses import replace

import psycopg
import pytest

from orchestrator.bench import names, running
from orchestrator.bench.compile import run as compiling
from orchestrator.errors import UsageError

COMMON = {"dsn", "json"}


def parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--dsn")
    common.add_argument("--json", action="store_true")
    created = argparse.ArgumentParser()
    names.add_arguments(created, common)
    return created


VERBS = [
    "capture",
    "parts",
    "bsma",
    "tpch",
    "fivm",
    "skew",
    "load",
    "writers",
    "fresh",
    "eager",
    "feed",
    "jobs",
    "many",
    "orders",
    "chaos",
    "logs",
    "temporal",
    "adopt",
    "compile",
]


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_reaches_the_measurement(verb: str) -> None:
    options = vars(parser().parse_args([verb])).keys() - COMMON - {"run", "bench", "plot"}
    wanted = inspect.signature(running.measurement(verb)).parameters
    assert options <= set(wanted)


def test_a_measurement_of_its_own_server_takes_no_other() -> None:
    options = parser().parse_args(["logs", "--dsn", "postgresql://somewhere/else"])
    with pytest.raises(UsageError, match="omit --dsn"):
        options.run(options)


def test_compilation_is_measured_and_leaves_nothing(dsn: str) -> None:
    report = compiling.run(
        dsn=dsn, tables=[2, 10], strategies=["id"], repeat=1, shapes=[], say=lambda text: None
    )
    assert [(row["strategy"], row["tables"]) for row in report.rows] == [("id", 2), ("id", 10)]
    assert [bar.name for bar in report.bars] == ["id, 10 tables, seconds"]
    with psycopg.connect(dsn) as connection:
        left = "SELECT to_regnamespace('idivm_bench'), (SELECT count(*) FROM idivm.views)"
        assert connection.execute(left).fetchone() == (None, 0)


@pytest.mark.slow
def test_larger_queries_are_measured(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, sizes in {
        "columns": (3, 6),
        "tables": (2, 4),
        "branches": (2, 4),
        "ctes": (1, 2),
    }.items():
        monkeypatch.setitem(compiling.SHAPES, name, replace(compiling.SHAPES[name], sizes=sizes))
    report = compiling.run(
        dsn=dsn,
        tables=[2],
        strategies=["id"],
        repeat=1,
        shapes=list(compiling.SHAPES),
        say=lambda text: None,
    )
    measured = [(row["shape"], row["size"]) for row in report.rows if "shape" in row]
    assert measured == [
        *(("columns", 3), ("columns", 6), ("tables", 2), ("tables", 4)),
        *(("branches", 2), ("branches", 4), ("ctes", 1), ("ctes", 2)),
    ]
    assert [bar.name for bar in report.bars] == [
        f"{shape}, grows with power" for shape in compiling.SHAPES
    ]
    with pytest.raises(UsageError, match="no shape 'round'"):
        compiling.run(shapes=["round"])


@pytest.mark.slow
def test_a_strategy_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="no strategy 'fast'"):
        compiling.run(strategies=["fast"])
