"""The measurement of a join kept factorized, over few houses."""

from __future__ import annotations

from orchestrator.api import connect
from orchestrator.bench.fivm.housing import BATCHES, measure


def test_both_representations_are_measured_in_all_variants(dsn):
    with connect(dsn) as orchestrator:
        rows, bars = measure(orchestrator, (2,), 2, 1, 1, lambda text: None)
    assert bars == []
    assert {(row["name"], row["side"]) for row in rows} == {
        *(
            (f"housing, {what}", side)
            for what in ("a batch", "reading all")
            for side in ("list", "fact")
        ),
        *(
            (f"housing, {BATCHES} batches, read after each {interval}", f"{when}-{side}")
            for interval in (1, 10)
            for when in ("eager", "lazy")
            for side in ("list", "fact")
        ),
    }
    assert all(row["rows"] == 2 * 2**3 and row["buffers"] > 0 for row in rows)
    assert all(row["stored kB"] for row in rows if row["name"] == "housing, a batch")
