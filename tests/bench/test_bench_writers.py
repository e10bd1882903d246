"""`idivm bench writers` on a small scale: it measures what it says, and leaves nothing behind."""

import psycopg
import pytest

from orchestrator.bench import writers
from orchestrator.bench.writers import _Staleness, run
from orchestrator.errors import UsageError


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(writers, "SLICE", 1)
    # The tests' servers commit to memory alone.
    monkeypatch.setattr(writers, "require_durable", lambda connection: None)


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_both_modes_are_measured_and_right(dsn, quick):
    report = run(dsn=dsn, seconds=1, scale=1, clients=2, say=lambda text: None)
    assert [row["measured"].startswith("pgbench") for row in report.rows] == [True, True, False]
    assert all(row["with view"] > 0 for row in report.rows[:2])
    assert [bar.op for bar in report.bars] == [">=", "<="]
    assert report.bars[1].value > 0
    with psycopg.connect(dsn) as connection:
        left = connection.execute(
            "SELECT count(*) FROM pg_database WHERE datname LIKE 'idivm_bench%'"
        )
        assert left.fetchone() == (0,)


def test_a_size_below_one_is_refused():
    with pytest.raises(UsageError, match="--clients of 1 or more"):
        run(clients=0)


def test_percentiles():
    ages = _Staleness(1, [float(age) for age in range(100)])
    assert (ages.percentile(0.5), ages.percentile(0.99), ages.percentile(1)) == (50, 99, 99)
