"""The benchmark of capture, small: that it measures what it says, not how fast this machine is."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import Connection

import orchestrator
from orchestrator.bench import capture
from orchestrator.bench.measure import durable_server
from orchestrator.errors import NameTakenError, UsageError

Connect = Callable[..., Connection[Any]]


@pytest.mark.sampled(3)
@pytest.mark.slow
def test_measures_every_form_of_capture(pg_version: int) -> None:
    """On one version: what it is made of is tested on all."""
    messages: list[str] = []
    report = capture.run(pg=pg_version, seconds=1, rows=500, repeat=1, say=messages.append)
    forms = ["plpgsql", "C"] if report.machine["bars on capture in"] == "C" else ["plpgsql"]
    assert {"bare", "in_plpgsql"} <= {text.rpartition(", ")[2] for text in messages}
    measured = {}
    for row in report.rows:
        measured.setdefault(row["measured"], {})[row["capture"]] = row
    single, many, update, insert, after_much, later = measured.values()
    assert list(measured)[:2] == [
        "single-row UPDATE, 1 client",
        f"single-row UPDATE, {4 * (os.cpu_count() or 1)} clients",
    ]
    assert list(single) == ["empty trigger", "constant row", *forms]
    assert list(many) == list(update) == list(insert) == forms
    for row in (*single.values(), *many.values(), *update.values(), *insert.values()):
        assert row["without capture"] > 0 and row["with capture"] > 0 and row["ratio"] > 0
        # Which touches more is not certain with so few rows: the tables are bloated differently.
        assert row["buffers without"] > 0 and row["buffers with"] > 0
    for idle in (after_much, later):
        assert [row["with capture"] > 0 for row in idle.values()] == [True]
    # Every row of the report has the same columns, as tables and programs expect.
    assert len({tuple(row) for row in report.rows}) == 1
    bars = {bar.name: bar for bar in report.bars}
    for name in ("bytes of WAL", "rows written", "transaction numbers used"):
        assert bars[f"idle refresh, {name}"].holds
    limits = [(bar.op, bar.limit) for bar in report.bars[:4]]
    assert limits == [(">=", 0.9), ("<=", 2.2), ("<=", 1.8), ("<", 2.0)]


@pytest.mark.slow
def test_leaves_nothing_in_a_database_of_yours(pg_version: int) -> None:
    with durable_server(pg_version) as dsn:
        with orchestrator.connect(dsn) as orc, capture.prepare_tables(orc, 50) as forms:
            assert [side.what for side in forms] == ["plpgsql"]
        with psycopg.connect(dsn) as connection:
            left = "SELECT to_regnamespace('idivm_bench'), (SELECT count(*) FROM idivm.sources)"
            assert connection.execute(left).fetchone() == (None, 0)


def test_refuses_a_server_without_durable_commits(dsn: str, connect: Connect) -> None:
    with pytest.raises(UsageError, match="fsync is off"):
        capture.run(dsn=dsn, seconds=1, rows=10, repeat=1)
    assert connect().execute("SELECT to_regnamespace('idivm_bench')").fetchone() == (None,)


def test_refuses_a_schema_that_is_there(dsn: str, connect: Connect) -> None:
    connect().execute("CREATE SCHEMA idivm_bench; CREATE TABLE idivm_bench.mine ()")
    with orchestrator.connect(dsn) as orc, pytest.raises(NameTakenError, match="idivm_bench"):
        capture.prepare_tables(orc, 10).__enter__()
    assert connect().execute("SELECT to_regclass('idivm_bench.mine')").fetchone() != (None,)


@pytest.mark.parametrize("options", [{"rows": 0}, {"seconds": 0.5}, {"repeat": 0}, {"clients": 0}])
def test_refuses_to_measure_nothing(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="--"):
        capture.run(**options)
