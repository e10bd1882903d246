"""Every mode is measured, and the lookups of groups."""

import psycopg
import pytest
from harness import TestServer, found_versions
from replication import LOGICAL

from orchestrator.api import connect
from orchestrator.bench import writers
from orchestrator.bench.fresh import from_wal
from orchestrator.bench.fresh import run as fresh
from orchestrator.errors import UsageError


@pytest.mark.sampled(3)
@pytest.mark.slow
def test_modes_and_lookups_are_measured(dsn, monkeypatch):
    monkeypatch.setattr(writers, "SLICE", 1)
    monkeypatch.setattr(fresh, "require_durable", lambda connection: None)
    report = fresh.run(dsn=dsn, seconds=1, scale=1, clients=2, lookups=3, say=lambda text: None)
    assert len(report.rows) == len(fresh.MODES) + 1
    assert all(row["with view"] > 0 for row in report.rows)
    assert [bar.op for bar in report.bars] == [">=", ">=", "<="]
    with psycopg.connect(dsn) as connection:
        left = connection.execute(
            "SELECT count(*) FROM pg_database WHERE datname LIKE 'idivm_bench%'"
        )
        assert left.fetchone() == (0,)


@pytest.mark.sampled(3)
@pytest.mark.slow
def test_capture_from_the_wal_is_measured(scratch, monkeypatch):
    monkeypatch.setattr(writers, "SLICE", 1)
    monkeypatch.setattr(from_wal, "BULK", 50)
    version = max(found_versions())
    arguments = f"{LOGICAL} -c max_slot_wal_keep_size=1GB"
    server = TestServer(found_versions()[version], scratch / "measured", arguments)
    try:
        with (
            server.database(migrated=False) as dsn,
            writers.databases(dsn, 1, print),
            connect(writers.database(dsn, writers.KEPT)) as orc,
        ):
            orc.create_view(fresh.VIEW, fresh.QUERY)
            rows = list(from_wal.measured(dsn, orc, fresh.VIEW, 2, 1, print))
    finally:
        server.stop()
    assert [row["unit"] for row, _ in rows] == ["transactions/s", "ms", "ms", "ms"]
    assert all(row["with view"] > 0 for row, _ in rows)


def test_a_size_below_one_is_refused():
    with pytest.raises(UsageError, match="--lookups of 1 or more"):
        fresh.run(lookups=0)
