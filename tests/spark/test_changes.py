"""The feed of a view as a source of Spark: each change once, also when the query is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException

from orchestrator.api import Orchestrator
from orchestrator.spark.changes import SNAPSHOT, FeedReader, feed_named
from orchestrator.spark.errors import LoadError
from orchestrator.spark.loading.load import SETTINGS
from orchestrator.spark.session import spark_session

SHORT = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

TABLES = """
CREATE TABLE t (id int PRIMARY KEY, g text, n numeric(8,2), at timestamptz, raw bytea);
INSERT INTO t SELECT i, 'g' || i % 3, i, '2026-01-01', '\\x00ff' FROM generate_series(1, 6) AS i;
CREATE VIEW v WITH (feed = on) AS SELECT id, g, n, at, raw FROM t;
"""


@pytest.fixture
def shop(orc: Orchestrator) -> Orchestrator:
    orc.execute(TABLES)
    return orc


def change(orc: Orchestrator, number: int) -> None:
    orc.connection.execute(
        f"INSERT INTO t VALUES ({100 + number}, NULL, 1.25, NULL, NULL); UPDATE t SET n = n + 1 WHERE id = {number};"
        f"DELETE FROM t WHERE id = {7 - number}; SELECT FROM idivm.refresh('v')"
    )


def position(orc: Orchestrator) -> int:
    return orc.connection.execute("SELECT position FROM idivm.feeds").fetchone()[0]  # type: ignore[index]


def replayed(batches: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """The content that changes lead to. Each has to fit."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for item in sorted(batches, key=lambda item: (item["_refresh"], item["_seq"])):
        row = tuple(item[name] for name in ("id", "g", "n"))
        if item["_change_type"] in ("insert", "update_postimage"):
            rows[row] += 1
        else:
            assert rows[row] > 0
            rows[row] -= 1
    return +rows


def content(orc: Orchestrator) -> Counter[tuple[Any, ...]]:
    return Counter(orc.connection.execute("SELECT id, g, n FROM v").fetchall())


def test_the_changes_between_two_offsets_never_vary(shop: Orchestrator, dsn: str) -> None:
    reader = FeedReader(feed_named({"dsn": dsn, "view": "v", "consumer": "lake", "refreshes": "1"}))

    def read(start: dict[str, int], end: dict[str, int]) -> list[dict[str, Any]]:
        (part,) = reader.partitions(start, end)
        return [row for batch in reader.read(part) for row in batch.to_pylist()]

    start = reader.initialOffset()
    assert start == {"refresh": SNAPSHOT}
    first = reader.latestOffset(start, None)
    contents = {first["refresh"]: content(shop)}
    for number in (1, 2, 3):
        change(shop, number)
        contents[position(shop)] = content(shop)
    # The snapshot of the first batch is read after later changes, as after a restart.
    rows = read(start, first)
    assert replayed(rows) == contents[first["refresh"]]
    offset, batches = first, 0
    while (end := reader.latestOffset(offset, None)) != offset:
        part = read(offset, end)
        assert part == read(offset, end)
        rows += part
        assert replayed(rows) == contents[end["refresh"]]
        reader.commit(end)
        offset, batches = end, batches + 1
    assert batches == 3
    assert reader.partitions(offset, offset) == []
    assert shop.connection.execute("SELECT position FROM idivm.consumers").fetchone() == (
        position(shop),
    )
    assert {row["_change_type"] for row in rows} == {
        "insert",
        "update_preimage",
        "update_postimage",
        "delete",
    }
    assert [type(row["at"]).__name__ for row in rows[:1]] == ["datetime"] and rows[0][
        "raw"
    ] == b"\x00\xff"
    # A lost connection is opened again.
    shop.connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    assert reader.latestOffset(offset, None) == offset
    shop.execute("CREATE OR REPLACE VIEW v WITH (feed = on) AS SELECT id FROM t")
    with pytest.raises(LoadError, match="has other columns since this query began"):
        reader.partitions(offset, reader.latestOffset(offset, None))
    reader.stop()
    for options, message in (
        ({"view": "t"}, "t has no feed of its changes"),
        ({"view": "v", "since": "x"}, "The option since is a number"),
        ({"view": "v", "refreshes": "0"}, "at least 1"),
    ):
        with pytest.raises(LoadError, match=message):
            feed_named({"dsn": dsn, **options})


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session("local[2]", "tests", **{**SETTINGS, **SHORT}) as session:
        yield session


@pytest.mark.sampled(6)
@pytest.mark.slow
def test_a_stream_of_changes_goes_to_parquet(
    shop: Orchestrator, dsn: str, spark: Any, tmp_path: Path
) -> None:
    def run() -> None:
        changes = spark.readStream.format("idivm").option("dsn", dsn).option("view", "v").load()
        writer = changes.writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        for attempt in range(5):
            try:
                writer.trigger(availableNow=True).start().awaitTermination()
                return
            except StreamingQueryException as error:
                # On a busy machine, Python starts more slowly than Spark waits for it.
                if "connect back" not in str(error) or attempt == 4:
                    raise

    def stored() -> list[dict[str, Any]]:
        return [row.asDict() for row in spark.read.parquet(str(tmp_path / "rows")).collect()]

    run()
    for number in (1, 2):
        change(shop, number)
        run()
        assert replayed(stored()) == content(shop)
    run()
    assert replayed(stored()) == content(shop)
    # The same changes in one batch.
    whole = spark.read.format("idivm").options(dsn=dsn, view="v", since="1").load()
    assert whole.columns == ["id", "g", "n", "at", "raw", "_change_type", "_refresh", "_seq", "_at"]
    assert whole.count() == len([row for row in stored() if row["_refresh"] > 1])
    table = spark.readStream.format("idivm").option("dsn", dsn).load("v")
    nowhere = table.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "other"))
    with pytest.raises(Exception, match="needs the option view"):
        nowhere.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_a_query_that_is_killed_goes_on_with_each_change_once(
    shop: Orchestrator, dsn: str, tmp_path: Path, connect: Any
) -> None:
    """It is killed between two batches, and in one, while it waits for the rows of the feed."""
    import pyarrow.dataset

    command = [
        sys.executable,
        str(Path(__file__).with_name("follow_steps.py")),
        dsn,
        "v",
        str(tmp_path),
    ]

    def start() -> subprocess.Popen[str]:
        with (tmp_path / "errors").open("a") as errors:
            return subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )

    def done(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("done"), (tmp_path / "errors").read_text()[-4000:]

    def kill(process: subprocess.Popen[str]) -> None:
        # Spark's other processes hold the pipe for as long as they wait for the database.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    first = start()
    try:
        done(first)
        change(shop, 1)
        done(first)
    finally:
        kill(first)
    change(shop, 2)
    blocker: psycopg.Connection[Any] = connect(autocommit=False)
    blocker.execute("LOCK TABLE idivm_feed.refreshes IN ACCESS EXCLUSIVE MODE")
    second = start()
    try:
        waits = "SELECT count(*) FROM pg_locks WHERE relation = 'idivm_feed.refreshes'::regclass AND NOT granted"
        while shop.connection.execute(waits).fetchone() == (0,):
            assert second.poll() is None
    finally:
        kill(second)
    blocker.rollback()
    change(shop, 3)
    third = start()
    try:
        done(third)
        if position(shop) != max(item["_refresh"] for item in _stored(pyarrow.dataset, tmp_path)):
            done(third)
    finally:
        kill(third)
    rows = _stored(pyarrow.dataset, tmp_path)
    assert replayed(rows) == content(shop)
    assert (
        max(Counter((row["_refresh"], row["_seq"], row["_change_type"]) for row in rows).values())
        == 1
    )


def _stored(dataset: Any, folder: Path) -> list[dict[str, Any]]:
    """The rows that the sink has committed: those of the files that its log names."""
    import json

    files = set()
    for log in (folder / "rows" / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            files.add(json.loads(line)["path"].removeprefix("file://"))
    rows: list[dict[str, Any]] = (
        dataset.dataset(sorted(files), format="parquet").to_table().to_pylist()
    )
    return rows
