"""`idivm bench adopt` on a small scale: nothing gets lost, and nothing is left behind."""

import psycopg

from orchestrator.bench.adopt import run


def test_views_of_each_kind_are_adopted_and_released(dsn):
    report = run(dsn=dsn, views=5, orders=1000, repeat=1, say=lambda text: None)
    assert [(bar.op, bar.limit) for bar in report.bars] == [("<=", 0), ("<=", 1.5)]
    assert report.bars[0].holds
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT to_regnamespace('idivm_bench')").fetchone() == (None,)
