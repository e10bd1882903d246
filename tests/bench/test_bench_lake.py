"""`idivm bench lake`: views over a stream beside views over a stored table."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from orchestrator.bench.lake import run as lake
from orchestrator.errors import UsageError


@pytest.mark.slow
def test_views_over_a_stream_grow_with_their_groups_and_stay_right() -> None:
    report = lake.run(rows=3_000, batches=1, batch_rows=100, say=lambda text: None)
    by_name = {bar.name: bar for bar in report.bars}
    assert by_name["views that differ when computed anew"].holds
    assert [row["part"] for row in report.rows] == ["views", "whole batch", "bytes"]


def test_it_needs_rows() -> None:
    with pytest.raises(UsageError, match="1 or more"):
        lake.run(rows=0)
