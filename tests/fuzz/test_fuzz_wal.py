"""Cases whose tables are captured from the WAL, and a fault planted there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from harness import TestServer, found_versions
from replication import LOGICAL
from small_cases import holds, small_case

from orchestrator.fuzz.case import (
    Alone,
    Capture,
    Case,
    Crash,
    Late,
    LateEnd,
    ReadWal,
    Refresh,
    Statement,
    Step,
    Storm,
    Transaction,
    from_json,
    to_json,
)
from orchestrator.fuzz.generate import generate
from orchestrator.fuzz.outcome import Outcome
from orchestrator.fuzz.runner import Runner
from orchestrator.fuzz.script import script

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def runner(scratch: Any, pg_version: int) -> Iterator[Runner]:
    """A runner on a server whose WAL can be decoded."""
    arguments = f"{LOGICAL} -c max_slot_wal_keep_size=1GB"
    server = TestServer(found_versions()[pg_version], scratch / f"fuzz{pg_version}", arguments)
    with server.database(migrated=True) as dsn:
        opened = Runner(dsn)
        yield opened
        opened.close()
    server.stop()


def with_wal(*steps: str | Step) -> Case:
    """The small case, with its table captured from the WAL before the steps."""
    return small_case(Capture("shop.orders", "wal"), *steps)


CAPTURED = with_wal(
    Late((Statement("INSERT INTO shop.orders VALUES (7, 'c', 7)"),), prepared=True),
    "UPDATE shop.orders SET id = id + 10 WHERE id < 3",
    ReadWal(),
    Refresh(),
    LateEnd(),
    Capture("shop.orders", "triggers"),
    Capture("shop.orders", "wal"),
    Storm(
        ((Transaction((Statement("DELETE FROM shop.orders WHERE id = 3"),)),),),
        (Capture("shop.orders", "triggers"), Refresh(), Capture("shop.orders", "wal"), ReadWal()),
    ),
    Crash("terminate", 5, capture=Capture("shop.orders", "triggers")),
    Alone(Statement("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")),
    "TRUNCATE shop.orders",
    Refresh(how="check"),
)


def test_a_case_with_switches_holds(runner: Runner) -> None:
    outcome = runner.run(CAPTURED)
    assert outcome.failure is None
    assert outcome.counts["capture from wal"] == 3
    assert outcome.counts["read"] == 2
    assert from_json(to_json(CAPTURED)) == CAPTURED
    assert "\n-- idivm capture shop.orders --from triggers\n" in script(CAPTURED, Outcome())


def test_changes_that_nobody_reads_are_found(runner: Runner) -> None:
    skipped = "UPDATE idivm.wal_slots SET position = pg_current_wal_insert_lsn()"
    case = with_wal("DELETE FROM shop.orders WHERE id = 3", Alone(Statement(skipped)), Refresh())
    failure = runner.run(case).failure
    assert failure is not None
    assert failure.kind == "difference"
    assert runner.run(replace(case, steps=())).failure is None, "the next case starts afresh"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.sampled(1)
def test_fixed_seeds(runner: Runner, seed: int) -> None:
    holds(runner, generate(seed, wal=True))
