"""`idivm bench orders` on a small scale: no transaction fails, and nothing is left behind."""

import psycopg
import pytest

from orchestrator.bench import orders
from orchestrator.errors import UsageError


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_writers_in_random_orders_do_not_fail(dsn, monkeypatch):
    monkeypatch.setattr(orders, "SLICE", 1)
    report = orders.run(dsn=dsn, writers=3, pause=5, seconds=1, say=lambda text: None)
    assert [(row["mode"], row["pause, ms"]) for row in report.rows] == [
        *(("eager", 5), ("eager", 0)),
        *(("on_commit", 5), ("on_commit", 0)),
    ]
    assert all(row["failed"] == 0 and row["with views"] > 0 for row in report.rows)
    assert [bar.op for bar in report.bars] == [">=", "=", ">=", "="]
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT to_regnamespace('idivm_bench')").fetchone() == (None,)


def test_more_statements_than_tables_are_refused():
    with pytest.raises(UsageError, match="--statements of 1 to 5"):
        orders.run(statements=6)
