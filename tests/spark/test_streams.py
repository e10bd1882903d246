"""Streams: batches of files and of Spark's streaming sources, each row once, also after an interruption."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from orchestrator.api import Orchestrator, connect
from orchestrator.catalog import streams
from orchestrator.cli.main import main
from orchestrator.errors import UsageError
from orchestrator.spark.errors import LoadError, SparkError
from orchestrator.spark.loading.load import SETTINGS
from orchestrator.spark.session import spark_session

SMALL = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def rows(orc: Orchestrator, query: str) -> list[tuple[Any, ...]]:
    return orc.connection.execute(query).fetchall()  # type: ignore[arg-type]


def test_files_are_loaded_once_each(orc: Orchestrator, tmp_path: Path) -> None:
    orc.execute(
        "CREATE TABLE visits (page text, n int);"
        "CREATE VIEW totals AS SELECT page, sum(n) AS n FROM visits GROUP BY page"
    )
    batches = []

    def load(**options: Any) -> None:
        orc.load_stream(
            tmp_path, "visits", once=True, format="csv", on_batch=batches.append, **options
        )

    load()
    assert not batches
    (tmp_path / "1.csv").write_text("page,n\na,1\nb,2\n")
    (tmp_path / "_2.csv").write_text("page,n\na,1")
    load()
    assert [(batch.number, batch.files) for batch in batches] == [(0, 1)]
    assert rows(orc, "SELECT page, n FROM totals ORDER BY 1") == [("a", 1), ("b", 2)]
    (tmp_path / "_2.csv").rename(tmp_path / "2.csv")
    (tmp_path / "3.csv").write_text("page,n\nb,10\n")
    load(most_files=1)
    load()
    assert [(batch.number, batch.files) for batch in batches] == [(0, 1), (1, 1), (2, 1)]
    assert rows(orc, "SELECT page, n FROM totals ORDER BY 1") == [("a", 2), ("b", 12)]
    (status,) = orc.streams()
    assert (status.batch, status.files, status.rows, status.running) == (2, 3, 4, False)
    # Only the last load is still recorded.
    assert rows(orc, "SELECT count(*) FROM idivm.loads") == [(1,)]
    orc.remove_stream(status.name)
    assert orc.streams() == []


def test_a_batch_that_fails_is_not_recorded(orc: Orchestrator, tmp_path: Path) -> None:
    orc.execute("CREATE TABLE t (a int PRIMARY KEY)")
    (tmp_path / "1.csv").write_text("a\n1\n")
    orc.load_stream(tmp_path, "t", once=True)
    (tmp_path / "2.csv").write_text("a\n2\nx\n")
    with pytest.raises(LoadError, match=r"2\.csv, line 3, column a"):
        orc.load_stream(tmp_path, "t", once=True)
    assert rows(orc, "SELECT a FROM t") == [(1,)]
    (tmp_path / "2.csv").write_text("a\n2\n3\n")
    orc.load_stream(tmp_path, "t", once=True)
    assert rows(orc, "SELECT a FROM t ORDER BY 1") == [(1,), (2,), (3,)]


CHANGES = """op,at,id,price,note
insert,1,1,10,first
insert,2,2,20,second
update,4,1,12,later
update,3,1,11,earlier
delete,5,2,,
insert,6,3,30,third
delete,7,9,,
"""


def test_changes_are_applied_in_their_order(orc: Orchestrator, tmp_path: Path) -> None:
    orc.execute(
        "CREATE TABLE items (id int PRIMARY KEY, price int NOT NULL, note text);"
        "INSERT INTO items VALUES (9, 90, 'old');"
        "CREATE VIEW prices AS SELECT sum(price) AS total FROM items"
    )
    (tmp_path / "1.csv").write_text(CHANGES)
    changes: Any = {"mode": "upsert", "op": "op", "order": "at"}
    orc.load_stream(tmp_path, "items", once=True, **changes)
    assert rows(orc, "SELECT * FROM items ORDER BY id") == [(1, 12, "later"), (3, 30, "third")]
    assert rows(orc, "SELECT * FROM prices") == [(42,)]
    (tmp_path / "2.csv").write_text("op,at,id,price,note\nD,8,3,,\nvanish,9,1,,\n")
    with pytest.raises(LoadError, match="vanish in column op is no operation"):
        orc.load_stream(tmp_path, "items", once=True, **changes)
    # Copies of a change are harmless; other changes of a row need an order.
    (tmp_path / "2.csv").write_text("op,at,id,price,note\nD,8,3,,\nD,8,3,,\nu,8,1,13,\ni,8,1,14,\n")
    with pytest.raises(LoadError, match="id = 1 more than once with the same value in at"):
        orc.load_stream(tmp_path, "items", once=True, **changes)
    (tmp_path / "2.csv").write_text("op,id,price,note\nD,3,,\nD,3,,\nu,1,13,\ni,1,14,\n")
    with pytest.raises(LoadError, match=r"id = 1 more than once.*--order"):
        orc.load_stream(tmp_path, "items", once=True, mode="upsert", op="op")
    (tmp_path / "2.csv").write_text("op,at,id,price,note\nD,8,3,,\nD,8,3,,\nd,,1,,\n")
    with pytest.raises(LoadError, match="NULL in column at"):
        orc.load_stream(tmp_path, "items", once=True, **changes)
    (tmp_path / "2.csv").write_text("op,at,id,price,note\nD,8,3,,\nD,8,3,,\n-U,9,1,12,\n")
    orc.load_stream(tmp_path, "items", once=True, **changes)
    assert rows(orc, "SELECT id FROM items") == [(1,)]


def test_late_changes_do_not_overwrite_later_rows(orc: Orchestrator, tmp_path: Path) -> None:
    orc.execute("CREATE TABLE items (id int PRIMARY KEY, at int, price int)")

    def load(text: str) -> list[tuple[Any, ...]]:
        (tmp_path / f"{len(list(tmp_path.iterdir()))}.csv").write_text(f"op,at,id,price\n{text}")
        orc.load_stream(tmp_path, "items", once=True, mode="upsert", op="op", order="at")
        return rows(orc, "SELECT id, at, price FROM items ORDER BY id")

    assert load("i,5,1,50\ni,5,2,50\n") == [(1, 5, 50), (2, 5, 50)]
    assert load("u,4,1,40\nd,4,2,\n") == [(1, 5, 50), (2, 5, 50)]
    assert load("u,6,1,60\nd,6,2,\n") == [(1, 6, 60)]


def test_a_quarantine_takes_changes_that_cannot_be_applied(
    orc: Orchestrator, tmp_path: Path
) -> None:
    orc.execute("CREATE TABLE items (id int PRIMARY KEY, price int NOT NULL)")
    (tmp_path / "1.csv").write_text(
        "op,at,id,price\ni,1,1,10\ni,1,2,20\nvanish,2,1,5\nu,,1,6\ni,1,3,\nd,3,2,\nu,4,1,x\n"
    )
    changes: Any = {"mode": "upsert", "op": "op", "order": "at", "on_bad_row": "quarantine"}
    orc.load_stream(tmp_path, "items", once=True, **changes)
    assert rows(orc, "SELECT * FROM items") == [(1, 10)]
    rejected = rows(orc, "SELECT line, column_name FROM idivm.rejected_rows ORDER BY 1")
    assert rejected == [(4, "op"), (5, "at"), (6, "price"), (8, "price")]


def test_rows_stay_in_their_files_and_sums_in_the_table(orc: Orchestrator, tmp_path: Path) -> None:
    orc.execute(
        "CREATE TABLE products (id int PRIMARY KEY, kind text);"
        "INSERT INTO products VALUES (1, 'food'), (2, 'food'), (3, 'book');"
        "CREATE TABLE sales (product int REFERENCES products, day date, n int NOT NULL CHECK (n >= 0),"
        " amount numeric(10,2), PRIMARY KEY (product, day));"
        "CREATE VIEW by_kind AS SELECT kind, sum(n) AS n, sum(amount) AS amount"
        " FROM sales JOIN products ON id = product GROUP BY kind"
    )
    add: Any = {"mode": "add", "op": "op"}

    def load(number: int, content: str, **more: Any) -> list[tuple[Any, ...]]:
        (tmp_path / f"{number}.csv").write_text(f"op,product,day,n,amount\n{content}")
        orc.load_stream(tmp_path, "sales", once=True, **add, **more)
        assert all(report.equal for report in orc.check("by_kind"))
        return rows(orc, "SELECT kind, n, amount::text FROM by_kind ORDER BY kind")

    first = "i,1,2026-01-01,1,10.10\ni,1,2026-01-01,2,5.05\ni,2,2026-01-01,1,\ni,3,2026-01-02,1,7\n"
    assert load(1, first) == [("book", 1, "7.00"), ("food", 4, "15.15")]
    assert rows(orc, "SELECT count(*) FROM sales") == [(3,)]
    later = "d,1,2026-01-01,2,5.05\n-U,3,2026-01-02,1,7\n+U,3,2026-01-02,1,9\ni,2,2026-01-01,1,3\n"
    assert load(2, later) == [("book", 1, "9.00"), ("food", 3, "13.10")]
    # The same files are not added twice, by a stream or by a load.
    load(2, later)
    assert rows(orc, "SELECT sum(n) FROM sales") == [(4,)]
    files = str(tmp_path / "1.csv")
    for _ in range(2):
        orc.load(files, "sales", **add)
    assert rows(orc, "SELECT sum(n) FROM sales") == [(9,)]
    # Bad rows.
    bad = "i,9,2026-01-01,1,1\ngone,1,2026-01-01,1,1\ni,1,2026-01-01,,1\ni,1,2026-01-03,1,1\n"
    load(3, bad, on_bad_row="quarantine")
    assert rows(orc, "SELECT sum(n) FROM sales") == [(10,)]
    assert rows(orc, "SELECT count(*) FROM idivm.rejected_rows") == [(3,)]


def test_tables_without_exact_sums_are_refused(orc: Orchestrator, tmp_path: Path) -> None:
    orc.execute(
        "CREATE TABLE a (k int PRIMARY KEY, x double precision); CREATE TABLE b (k int, x int);"
        "CREATE TABLE c (j int DEFAULT 0, k int, x int, PRIMARY KEY (j, k))"
    )
    (tmp_path / "1.csv").write_text("k,x\n1,1\n")
    for table, why in (
        ("a", "x of .*a is double precision, which has no exact sum"),
        ("b", "b has no key to add by"),
        ("c", "lacks j, the key of c"),
    ):
        with pytest.raises(LoadError, match=why):
            orc.load_stream(tmp_path, table, once=True, mode="add")


def test_an_upsert_with_a_key_twice_is_explained(orc: Orchestrator, tmp_path: Path) -> None:
    orc.execute("CREATE TABLE items (id int PRIMARY KEY, price int)")
    (tmp_path / "1.csv").write_text("id,price\n1,10\n1,20\n")
    with pytest.raises(LoadError, match=r"same key: \(1\).*--order"):
        orc.load_stream(tmp_path, "items", once=True, mode="upsert")
    orc.load_stream(tmp_path, "items", once=True, mode="upsert", order="price")
    assert rows(orc, "SELECT * FROM items") == [(1, 20)]


def test_what_a_killed_stream_left_is_removed(orc: Orchestrator, tmp_path: Path) -> None:
    orc.execute("CREATE TABLE t (a int)")
    (tmp_path / "1.csv").write_text("a\n1\n")
    # The load of a stream whose process was killed while it copied.
    orc.execute(
        "INSERT INTO idivm.loads (id, name, mode, command) VALUES (900, 't', 'append', 'x');"
        "CREATE UNLOGGED TABLE idivm_load.l900 (a int)"
    )
    orc.load_stream(tmp_path, "t", once=True)
    assert rows(orc, "SELECT status FROM idivm.loads WHERE id = 900") == [("failed",)]
    assert rows(orc, "SELECT to_regclass('idivm_load.l900')") == [(None,)]


def test_a_file_that_grows_is_reported(orc: Orchestrator, tmp_path: Path) -> None:
    orc.execute("CREATE TABLE t (a int)")
    path, said = tmp_path / "1.csv", []
    path.write_text("a\n1\n")
    orc.load_stream(tmp_path, "t", once=True)
    path.write_text("a\n1\n2\n")
    orc.load_stream(tmp_path, "t", once=True, say=lambda text, stays=False: said.append(text))
    assert rows(orc, "SELECT a FROM t") == [(1,)]
    assert any("1.csv has changed since it was loaded" in text for text in said)


def test_only_one_session_runs_a_stream(
    orc: Orchestrator, tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "PATIENCE", "1ms")
    orc.execute("CREATE TABLE t (a int)")
    (tmp_path / "1.csv").write_text("a\n1\n")
    errors = []
    stop = threading.Event()

    def second(_: Any) -> None:
        with connect(dsn) as other:
            try:
                other.load_stream(tmp_path, "t", name="s", once=True)
            except UsageError as error:
                errors.append(str(error))
        stop.set()

    orc.load_stream(tmp_path, "t", name="s", on_batch=second, stop=stop)
    assert errors == ["Another session runs the stream s: stop it first."]
    with pytest.raises(UsageError, match="another name"):
        orc.execute("CREATE TABLE u (a int)")
        orc.load_stream(tmp_path, "u", name="s", once=True)
    orc.execute("DROP TABLE t; CREATE TABLE t (a int)")
    with pytest.raises(UsageError, match="was dropped: remove the stream"):
        orc.load_stream(tmp_path, "t", name="s", once=True)
    assert [status.table for status in orc.streams()] == ["(dropped)"]


COMMAND = [sys.executable, "-m", "orchestrator.cli.main"]


@pytest.mark.sampled(4)
def test_the_command_survives_lost_connections_and_ends_at_a_signal(
    orc: Orchestrator, tmp_path: Path, dsn: str
) -> None:
    orc.execute("CREATE TABLE t (a int)")

    def arrive(number: int, content: str) -> None:
        (path := tmp_path / f"_{number}.csv").write_text(f"a\n{content}\n")
        path.rename(tmp_path / f"{number}.csv")

    arrive(1, "1")
    stream = ["load", "--stream", "--dsn", dsn, str(tmp_path), "--into", "t", "--interval", "10ms"]
    with subprocess.Popen([*COMMAND, *stream], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(
                "batch 0: 1 files, 1 rows read, 1 loaded in"
            )
            (status,) = orc.streams()
            assert (status.table, status.running) == ("public.t", True)
            orc.connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1768187767"
            )
            arrive(2, "2")
            assert process.stdout.readline().startswith("batch 1: 1 files")
        finally:
            process.terminate()
    assert process.returncode == 0
    assert rows(orc, "SELECT a FROM t ORDER BY a") == [(1,), (2,)]

    arrive(3, "x")
    failed = subprocess.run([*COMMAND, *stream], capture_output=True, text=True)
    assert failed.returncode == 2
    assert "3.csv, line 2, column a" in failed.stderr
    listed = subprocess.run(
        [*COMMAND, "stream", "list", "--dsn", dsn, "--json"], capture_output=True, text=True
    )
    (entry,) = json.loads(listed.stdout)
    assert (entry["running"], entry["batch"], entry["rows"]) == (False, 1, 2)
    removed = subprocess.run(
        [*COMMAND, "stream", "remove", entry["name"], "--dsn", dsn], capture_output=True, text=True
    )
    assert removed.returncode == 0
    assert orc.streams() == []


@pytest.mark.sampled(3)
@pytest.mark.slow
def test_a_command_killed_in_its_last_transaction_continues(
    orc: Orchestrator, tmp_path: Path, dsn: str
) -> None:
    orc.execute("CREATE TABLE t (a int)")
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text(f"a\n{number}\n")
    stream = ["load", "--stream", "--dsn", dsn, str(tmp_path), "--into", "t", "--max-files", "1"]
    waits = "SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass AND NOT granted"
    for batch in range(3):
        with psycopg.connect(dsn) as blocker:
            # The last transaction of the batch waits for this lock.
            blocker.execute("LOCK TABLE t IN SHARE MODE")
            with subprocess.Popen([*COMMAND, *stream], stdout=subprocess.DEVNULL) as process:
                while rows(orc, waits) == [(0,)]:
                    assert process.poll() is None
                process.kill()
        once = subprocess.run([*COMMAND, *stream, "--once"], capture_output=True, text=True)
        assert once.returncode == 0, once.stderr
        (tmp_path / f"{batch + 3}.csv").write_text(f"a\n{batch + 3}\n")
    assert rows(orc, "SELECT a FROM t ORDER BY a") == [(number,) for number in range(5)]
    # Nothing is left of the killed batches.
    orc.load_stream(tmp_path, "t", once=True)
    assert rows(orc, "SELECT count(*) FROM t") == [(6,)]
    assert rows(orc, "SELECT count(*) FROM idivm.loads WHERE status = 'loading'") == [(0,)]
    left = "SELECT count(*) FROM pg_class WHERE relnamespace = 'idivm_load'::regnamespace AND relkind = 'r'"
    assert rows(orc, left) == [(0,)]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["--stream", "--create"], "a single table that exists"),
        (["--stream", "--again"], "omit --resume and --again"),
        (["--stream", "--mode", "replace"], "mode replace and create do not apply"),
        (["--stream", "--format", "jdbc"], "A database is no stream"),
        (["--once"], "belong to a stream"),
        (["--op", "x"], "give the mode upsert"),
    ],
)
def test_options_that_do_not_apply_are_refused(
    orc: Orchestrator, dsn: str, given: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    orc.execute("CREATE TABLE t (a int)")
    assert main(["load", "--dsn", dsn, "x.csv", "--into", "t", *given]) == 2
    assert why in capsys.readouterr().err


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session("local[2]", "tests", **{**SETTINGS, **SMALL}) as session:
        yield session


@pytest.mark.sampled(3)
@pytest.mark.slow
def test_a_streaming_source_of_spark_continues_from_the_database(
    orc: Orchestrator, spark: Any, tmp_path: Path
) -> None:
    orc.execute("CREATE TABLE lines (value text)")

    def load(**options: Any) -> None:
        orc.load_stream(tmp_path, "lines", format="text", once=True, spark=spark, **options)

    (tmp_path / "1.txt").write_text("a\nb\n")
    load()
    (tmp_path / "2.txt").write_text("c\n")
    load()
    load()
    assert rows(orc, "SELECT value FROM lines ORDER BY 1") == [("a",), ("b",), ("c",)]
    # A batch whose transaction fails is loaded by the next run.
    orc.execute("ALTER TABLE lines ADD CHECK (value <> 'd')")
    (tmp_path / "3.txt").write_text("d\n")
    with pytest.raises(LoadError, match="violates check constraint"):
        load()
    load(where="value <> 'd'")
    (tmp_path / "4.txt").write_text("e\n")
    load()
    assert rows(orc, "SELECT value FROM lines ORDER BY 1") == [("a",), ("b",), ("c",), ("e",)]


def test_a_source_without_its_package_is_named(orc: Orchestrator, spark: Any) -> None:
    orc.execute("CREATE TABLE t (a int)")
    with pytest.raises(SparkError, match=r"kafka"):
        orc.load_stream("topic", "t", format="kafka", once=True, spark=spark)
    assert [status.running for status in orc.streams()] == [False]


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_spark_sums_up_typed_rows(orc: Orchestrator, spark: Any, tmp_path: Path) -> None:
    orc.execute(
        "CREATE TABLE sales (product text PRIMARY KEY, n int, amount numeric(12,2) CHECK (amount < 1000))"
    )
    lines = [f"p{i % 3},{i},{i}.25" for i in range(20)]
    (tmp_path / "1.txt").write_text("\n".join(lines) + "\n")
    columns = (
        "split(value, ',')[0] AS product, cast(split(value, ',')[1] AS int) AS n,"
        " cast(split(value, ',')[2] AS decimal(10,2)) AS amount"
    )
    staged: list[tuple[Any, ...]] = []

    def load(**more: Any) -> list[tuple[Any, ...]]:
        orc.load_stream(
            *(tmp_path, "sales"),
            mode="add",
            format="text",
            select=columns,
            once=True,
            spark=spark,
            on_batch=lambda batch: staged.append((batch.report.tables[0].read,)),
            **more,
        )
        return rows(orc, "SELECT product, n, amount::text FROM sales ORDER BY product")

    expected = [
        (f"p{k}", sum(range(k, 20, 3)), f"{sum(i + 0.25 for i in range(k, 20, 3)):.2f}")
        for k in range(3)
    ]
    assert load() == expected
    # PostgreSQL got a row for each key.
    assert staged == [(3,)]
    (tmp_path / "2.txt").write_text("p9,1,1000\n")
    with pytest.raises(LoadError, match="violates check constraint"):
        load()
    assert load(where="value NOT LIKE 'p9%'") == expected
