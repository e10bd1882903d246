"""The measurement of a join kept factorized, over few houses."""

from __future__ import annotations

from orchestrator.api import connect
from orchestrator.bench.fivm.housing import measure


def test_both_representations_are_measured(dsn):
    with connect(dsn) as orchestrator:
        rows, bars = measure(orchestrator, (2,), 2, 1, 1, lambda text: None)
    assert bars == []
    assert {(row["name"], row["side"]) for row in rows} == {
        (f"housing, {what}", side)
        for what in ("a batch", "reading all", "stored at the end")
        for side in ("list", "fact")
    }
    assert all(row["rows"] == 2 * 2**3 and row["stored kB"] > 0 for row in rows)
    assert [row["ratio"] is not None for row in rows if "stored" in row["name"]] == [True, False]
