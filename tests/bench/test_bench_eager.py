"""`idivm bench eager` on a small scale: it measures what it says, and leaves nothing behind."""

import psycopg
import pytest

from orchestrator.bench.eager import run
from orchestrator.errors import UsageError


def test_both_sizes_are_measured_and_right(dsn):
    report = run(dsn=dsn, parts=400, repeat=2, say=lambda text: None)
    assert [row["rows updated"] for row in report.rows] == [1, 200]
    assert all(row["without views, ms"] > 0 for row in report.rows)
    assert [bar.op for bar in report.bars] == ["<=", "<="]
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT to_regnamespace('idivm_bench')").fetchone() == (None,)


def test_fewer_rows_than_are_updated_are_refused():
    with pytest.raises(UsageError, match="--parts of 200 or more"):
        run(parts=10)
