"""Options of sources: a load honors an option or refuses it, and ignores none."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("pyarrow")

from orchestrator.errors import UsageError
from orchestrator.spark.formats.options import as_spark_spells, checked
from orchestrator.spark.loading.messages import described_row
from orchestrator.spark.loading.report import RejectedRow
from orchestrator.spark.loading.sources import Source

REFUSED = [
    ("csv", {"comment": "#"}, "CSV files has no option comment: each line is a row"),
    ("csv", {"sep": ";", "delimiter": "|"}, "options sep and delimiter mean the same"),
    ("csv", {"Header": "true", "header": "false"}, "options Header and header mean the same"),
    ("csv", {"lineSep": ";"}, "no option lineSep: a line ends with"),
    ("json", {"sep": ";"}, "JSON files has no option sep; the options are basePath, charset"),
    ("json", {"mode": "PERMISSIVE"}, "no option mode: --on-bad-row stop"),
    ("parquet", {"header": "true"}, "Parquet files has no option header; the options are"),
    ("orc", {"ignoreCorruptFiles": "true"}, "no option ignoreCorruptFiles: a load reads all"),
    ("orc", {"fs.s3a.endpoint": "x"}, "--config spark.hadoop.fs.s3a.endpoint=VALUE"),
    ("jdbc", {"dbtable": "t", "query": "SELECT 1"}, "give dbtable or query, not both"),
    ("jdbc", {"dbtable": "t", "numPartitions": "4"}, "lowerbound, partitioncolumn, upperbound is"),
    ("jdbc", {"dbtable": "t", "batchsize": "4"}, "batchsize has no effect on a load"),
    ("jdbc", {"dbtable": "t", "URL": "jdbc:x"}, "not as the option url"),
    ("frame", {"header": "true"}, "DataFrame has no options"),
]


@pytest.mark.parametrize("kind, options, message", REFUSED)
def test_an_option_without_effect_is_refused(
    kind: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        checked(kind, options)


def test_options_reach_readers_under_their_names() -> None:
    assert checked("jdbc", {"dbTable": "t", "sslmode": "require"}) == {
        "dbtable": "t",
        "sslmode": "require",
    }
    options = as_spark_spells("parquet", checked("parquet", {"MERGESCHEMA": "false"}))
    assert options == {"mergeSchema": "false"}


def test_a_row_without_a_place_is_shown() -> None:
    row = RejectedRow(None, None, None, "a", "too large", "1\t" + "x" * 300)
    message = described_row(row, [Source(("jdbc:postgresql://user@host/shop?password=x",))])
    assert message.startswith("jdbc:postgresql://host/shop, the row (1, xxx")
    assert message.endswith("xxx...), column a: too large")
    placed = described_row(replace(row, file="t.csv", line=3), [Source(("frame:",))])
    assert placed == "t.csv, line 3, column a: too large"
