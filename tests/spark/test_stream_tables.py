"""Streams whose rows stay in files: views over them follow the files, and PostgreSQL holds no row."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from orchestrator.api import Orchestrator, connect
from orchestrator.api.session import Session
from orchestrator.catalog import streams
from orchestrator.catalog.streams import stream_tables
from orchestrator.cli.main import main
from orchestrator.errors import IdivmError, UnsupportedError, UsageError

COLUMNS = "shop int NOT NULL, item text, price numeric(10, 2)"

BY_SHOP = "SELECT shop, count(*) AS n, sum(price) AS total FROM sales GROUP BY shop"


def rows(orc: Orchestrator, query: str) -> list[tuple[Any, ...]]:
    return orc.connection.execute(query).fetchall()  # type: ignore[arg-type]


def create(orc: Orchestrator, folder: Path, **options: Any) -> None:
    orc.create_stream("sales", COLUMNS, folder, format="csv", **options)


def write(folder: Path, name: str, *lines: str, head: str = "shop,item,price") -> None:
    (folder / name).write_text("\n".join((head, *lines, "")))


def load(orc: Orchestrator) -> list[Any]:
    batches: list[Any] = []
    orc.run_stream("sales", once=True, on_batch=batches.append)
    return batches


def test_views_follow_the_files_and_the_table_stays_empty(
    orc: Orchestrator, tmp_path: Path
) -> None:
    create(orc, tmp_path)
    write(tmp_path, "1.csv", "1,a,2.50", "1,b,1.00", "2,a,4.00")
    (first,) = load(orc)
    assert first.files == 1
    assert not first.report.tables
    view = orc.create_view("by_shop", BY_SHOP)
    assert view.strategy == "id"
    assert rows(orc, "SELECT * FROM by_shop ORDER BY 1") == [(1, 2, 3.5), (2, 1, 4)]
    write(tmp_path, "2.csv", "2,c,1.00", "3,a,7.00")
    (second,) = load(orc)
    assert second.report.tables[0].loaded == 2
    assert rows(orc, "SELECT * FROM by_shop ORDER BY 1") == [(1, 2, 3.5), (2, 2, 5), (3, 1, 7)]
    assert rows(orc, "SELECT * FROM sales") == []
    assert [report.equal for report in orc.check()] == [True]
    assert load(orc) == []
    # Another view starts with the rows of all files.
    orc.create_view("items", "SELECT item, count(*) AS n FROM sales GROUP BY item")
    assert rows(orc, "SELECT * FROM items ORDER BY 1") == [("a", 3), ("b", 1), ("c", 1)]
    assert rows(orc, "SELECT * FROM sales") == []


def test_joins_keep_their_states_and_follow_both_sides(orc: Orchestrator, tmp_path: Path) -> None:
    orc.execute(
        "CREATE TABLE shops (id int PRIMARY KEY, city text NOT NULL);"
        "INSERT INTO shops VALUES (1, 'x'), (2, 'x'), (3, 'y')"
    )
    create(orc, tmp_path)
    write(tmp_path, "1.csv", "1,a,2.50", "1,b,1.00", "2,a,4.00", "3,a,8.00")
    load(orc)
    view = orc.create_view(
        "by_city",
        "SELECT city, count(*) AS n, sum(price) AS total FROM sales JOIN shops ON id = shop GROUP BY city",
    )
    assert view.strategy == "viewtree"
    by_city = "SELECT * FROM by_city ORDER BY 1"
    assert rows(orc, by_city) == [("x", 3, 7.5), ("y", 1, 8)]
    orc.execute("UPDATE shops SET city = 'y' WHERE id = 1")
    orc.refresh()
    assert rows(orc, by_city) == [("x", 1, 4), ("y", 3, 11.5)]
    write(tmp_path, "2.csv", "1,a,1.00", "2,c,0.50")
    load(orc)
    assert rows(orc, by_city) == [("x", 2, 4.5), ("y", 4, 12.5)]
    assert [report.equal for report in orc.check()] == [True]


def test_deleted_rows_leave_the_views(orc: Orchestrator, tmp_path: Path) -> None:
    create(orc, tmp_path, op="op")
    head = "op,shop,item,price"
    write(tmp_path, "1.csv", "i,1,a,2.50", "i,1,a,2.50", "i,2,b,1.00", head=head)
    load(orc)
    for name, maintain in (
        ("deferred_one", "deferred"),
        ("eager_one", "eager"),
        ("late_one", "on_commit"),
    ):
        orc.create_view(name, BY_SHOP, maintain=maintain)
    # A row that comes and goes within a batch leaves no trace.
    write(
        tmp_path,
        "2.csv",
        "d,1,a,2.50",
        "i,3,c,1.00",
        "d,3,c,1.00",
        "d,2,b,1.00",
        "u,2,b,9.00",
        head=head,
    )
    (batch,) = load(orc)
    assert (batch.report.tables[0].loaded, batch.report.tables[0].removed) == (1, 2)
    for name in ("deferred_one", "eager_one", "late_one"):
        assert rows(orc, f"SELECT * FROM {name} ORDER BY 1") == [(1, 1, 2.5), (2, 1, 9)], name
    assert [report.equal for report in orc.check()] == [True] * 3
    write(tmp_path, "3.csv", "vanish,1,a,2.50", head=head)
    with pytest.raises(IdivmError, match="vanish in column op is no operation"):
        load(orc)


@pytest.mark.parametrize("maintain", ["deferred", "eager", "on_commit"])
def test_a_view_that_must_be_computed_anew_reads_the_files(
    orc: Orchestrator, tmp_path: Path, maintain: str
) -> None:
    orc.execute("CREATE FUNCTION rate(int) RETURNS int IMMUTABLE LANGUAGE sql RETURN 2 * $1")
    create(orc, tmp_path)
    write(tmp_path, "1.csv", "1,a,2.50", "2,b,1.00")
    load(orc)
    orc.create_view(
        "rates", "SELECT rate(shop) AS r, count(*) AS n FROM sales GROUP BY 1", maintain=maintain
    )
    orc.execute(
        "CREATE OR REPLACE FUNCTION rate(int) RETURNS int IMMUTABLE LANGUAGE sql RETURN 3 * $1"
    )
    if maintain == "deferred":
        # PostgreSQL alone says what is missing, and changes nothing.
        orc.connection.execute("SELECT idivm.refresh('rates')")
        ((error,),) = (rows(orc, "SELECT message FROM idivm.view_errors"),)
        assert "only be computed anew from the files of the stream public.sales" in error[0]
    orc.refresh()
    assert rows(orc, "SELECT * FROM rates ORDER BY 1") == [(3, 1), (6, 1)]
    write(tmp_path, "2.csv", "2,b,1.00")
    load(orc)
    assert rows(orc, "SELECT * FROM rates ORDER BY 1") == [(3, 1), (6, 2)]
    assert [report.equal for report in orc.check()] == [True]
    # Wrong rows are found, and mended from the files.
    orc.connection.execute("UPDATE idivm_state.rates_1 SET n = 7 WHERE r = 3")
    assert [report.equal for report in orc.check()] == [False]
    assert [finding.subject for finding in orc.doctor() if not finding.fine] == ["view rates"]
    assert rows(orc, "SELECT * FROM rates ORDER BY 1") == [(3, 1), (6, 2)]


def test_what_needs_the_rows_is_refused(orc: Orchestrator, tmp_path: Path) -> None:
    create(orc, tmp_path, op="op")
    with pytest.raises(
        UnsupportedError, match=r"would read the rows of a stream: .*\(lost . sales\)"
    ):
        orc.create_view("m", "SELECT shop, max(price) FROM sales GROUP BY shop")
    with pytest.raises(UnsupportedError, match="would read the rows of a stream: now"):
        orc.create_view("m", "SELECT shop, now() AS at FROM sales")
    with pytest.raises(UnsupportedError, match="take maintain = deferred"):
        orc.create_view("m", BY_SHOP, maintain="on_read")
    with pytest.raises(UnsupportedError, match="would read the rows of a stream"):
        orc.create_view("m", BY_SHOP, strategy="recompute")
    with pytest.raises(psycopg.Error, match=r"reads the stream public\.sales"):
        orc.connection.execute("SELECT idivm.create_view('m', 'SELECT * FROM sales')")
    for statement in (
        "INSERT INTO sales VALUES (1)",
        "UPDATE sales SET shop = 1",
        "DELETE FROM sales",
        "TRUNCATE sales",
    ):
        with pytest.raises(psycopg.Error, match="whose rows are in files"):
            orc.connection.execute(statement.encode())
    write(tmp_path, "1.csv", "1,a,2.50")
    with pytest.raises(UsageError, match="idivm stream run"):
        orc.load(tmp_path / "1.csv", "sales")
    with pytest.raises(UsageError, match="idivm stream run"):
        orc.load_stream(tmp_path, "sales", once=True)
    for columns, what in (
        ("a int PRIMARY KEY", "a key"),
        ("a int GENERATED ALWAYS AS IDENTITY", "a default or computed column"),
        ("a int DEFAULT 1", "a default or computed column"),
    ):
        with pytest.raises(IdivmError, match=f"cannot have {what}"):
            orc.create_stream("other", columns, tmp_path)
    with pytest.raises(IdivmError, match="the schema idivm_state is idivm's own"):
        orc.create_stream("idivm_state.other", "a int", tmp_path)


def test_rows_that_only_come_keep_their_extremes(orc: Orchestrator, tmp_path: Path) -> None:
    create(orc, tmp_path)
    write(tmp_path, "1.csv", "1,a,2.50", "2,b,1.00", "2,b,")
    load(orc)
    for maintain in ("deferred", "eager"):
        for strategy in ("id", "tuple"):
            orc.create_view(
                f"{maintain}_{strategy}",
                "SELECT shop, min(price) AS low, max(price) AS high, max(item) AS last FROM sales GROUP BY shop",
                maintain=maintain,
                strategy=strategy,
            )
    write(tmp_path, "2.csv", "1,a,2.00", "1,c,9.00", "3,a,", "2,a,1.50", "1,,2.10")
    load(orc)
    for view in orc.views():
        assert rows(orc, f"SELECT * FROM {view.relation} ORDER BY 1") == [
            (1, Decimal("2.00"), Decimal("9.00"), "c"),
            (2, Decimal("1.00"), Decimal("1.50"), "b"),
            (3, None, None, "a"),
        ]
    assert [report.equal for report in orc.check()] == [True] * 4


def test_files_that_have_changed_are_refused(orc: Orchestrator, tmp_path: Path) -> None:
    create(orc, tmp_path)
    write(tmp_path, "1.csv", "1,a,2.50")
    load(orc)
    write(tmp_path, "1.csv", "1,a,2.50", "1,a,2.50")
    with pytest.raises(IdivmError, match=r"1\.csv has changed since"):
        orc.create_view("by_shop", BY_SHOP)
    (tmp_path / "1.csv").unlink()
    with pytest.raises(IdivmError, match=r"1\.csv"):
        orc.create_view("by_shop", BY_SHOP)
    assert orc.views() == []
    assert rows(orc, "SELECT count(*) FROM idivm.loads") == [(0,)]
    orc.drop_stream("sales")
    assert rows(orc, "SELECT to_regclass('sales')::text") == [(None,)]
    create(orc, tmp_path)


def test_a_batch_that_comes_while_a_view_is_created_is_not_lost(
    orc: Orchestrator, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(orc, tmp_path)
    write(tmp_path, "1.csv", "1,a,2.50")
    load(orc)
    held = streams.batches_held

    @contextmanager
    def after_a_batch(connection: Any, ids: Any) -> Iterator[None]:
        # The first reading is done; a view reads the stream now, so that this batch is logged.
        write(tmp_path, "2.csv", "1,b,1.50")
        with connect(dsn) as other:
            assert load(other)[0].report.tables[0].loaded == 1
        with held(connection, ids):
            yield

    monkeypatch.setattr(streams, "batches_held", after_a_batch)
    orc.create_view("by_shop", BY_SHOP)
    assert rows(orc, "SELECT * FROM by_shop") == [(1, 2, 4)]
    monkeypatch.setattr(streams, "batches_held", held)
    write(tmp_path, "3.csv", "1,c,1.00")
    load(orc)
    assert rows(orc, "SELECT * FROM by_shop") == [(1, 3, 5)]
    assert [report.equal for report in orc.check()] == [True]


def test_batches_wait_while_a_view_is_computed_anew(
    orc: Orchestrator, dsn: str, tmp_path: Path
) -> None:
    create(orc, tmp_path)
    write(tmp_path, "1.csv", "1,a,2.50")
    load(orc)
    orc.create_view("by_shop", BY_SHOP)
    write(tmp_path, "2.csv", "1,b,1.50")
    (stream,) = stream_tables(
        orc.connection, [r[0] for r in rows(orc, "SELECT 'sales'::regclass::oid")]
    ).values()
    done: list[Any] = []

    def run() -> None:
        with connect(dsn) as other:
            done.extend(load(other))

    other = threading.Thread(target=run)
    waits = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        " AND classid = idivm.lock_class()::oid AND objid = (4294967296 - %s)::oid"
    )
    with streams.batches_held(orc.connection, [stream.id]):
        other.start()
        while orc.connection.execute(waits, [stream.id]).fetchone() != (1,):
            assert not done
    other.join()
    assert [batch.report.tables[0].loaded for batch in done] == [1]
    assert rows(orc, "SELECT * FROM by_shop") == [(1, 2, 4)]


def test_parquet_files_of_two_streams(orc: Orchestrator, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "sales").mkdir()
    (tmp_path / "visits").mkdir()
    orc.create_stream(
        "sales", "shop bigint, price numeric(10, 2), at date", tmp_path / "sales", format="parquet"
    )
    orc.create_stream(
        *("visits", "shop int NOT NULL, n bigint", tmp_path / "visits"),
        format="parquet",
        where="n > 0",
        select="cast(shop AS int) AS shop, n",
    )
    sales = pa.table(
        {
            "shop": [1, 1, 2, None],
            "price": [Decimal("1.50"), None, Decimal("2.00"), Decimal("3.00")],
        }
    )
    pq.write_table(sales, tmp_path / "sales" / "1.parquet")
    pq.write_table(
        pa.table({"shop": [1, 2, 2, 1], "n": [10, 20, 30, -1]}), tmp_path / "visits" / "1.parquet"
    )
    query = "SELECT shop, sum(price * n) AS v, count(*) AS n FROM sales JOIN visits USING (shop) GROUP BY shop"
    for name in ("sales", "visits"):
        orc.run_stream(name, once=True)
    assert orc.create_view("pairs", query).strategy == "viewtree"
    pairs = "SELECT * FROM pairs ORDER BY 1"
    assert rows(orc, pairs) == [(1, 15, 2), (2, 100, 2)]
    pq.write_table(
        pa.table(
            {
                "shop": [2, 3],
                "price": [Decimal("1.00"), Decimal("7.00")],
                "at": pa.array([None, None], pa.date32()),
            }
        ),
        tmp_path / "sales" / "2.parquet",
    )
    orc.run_stream("sales", once=True)
    pq.write_table(pa.table({"shop": [3], "n": [1]}), tmp_path / "visits" / "2.parquet")
    orc.run_stream("visits", once=True)
    assert rows(orc, pairs) == [(1, 15, 2), (2, 150, 4), (3, 7, 1)]
    assert [report.equal for report in orc.check()] == [True]
    assert rows(orc, "SELECT * FROM sales UNION ALL SELECT *, NULL FROM visits") == []


def test_the_command_line_creates_runs_and_drops_a_stream(
    dsn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def idivm(*arguments: str) -> str:
        assert main([*arguments, "--dsn", dsn]) == 0
        return capsys.readouterr().out

    write(tmp_path, "1.csv", "1,a,2.50")
    assert "CREATE STREAM sales" in idivm(
        "stream", "create", "sales", COLUMNS, "--from", str(tmp_path)
    )
    assert "1 files are known (no view reads the stream)" in idivm(
        "stream", "run", "sales", "--once"
    )
    idivm("sql", "-c", f"CREATE VIEW by_shop AS {BY_SHOP}")
    write(tmp_path, "2.csv", "1,a,2.50")
    assert "1 rows read, 1 loaded" in idivm("stream", "run", "sales", "--once")
    assert "public.sales" in idivm("stream", "list")
    assert "(1 row)" in idivm("sql", "-c", "SELECT n FROM by_shop WHERE n = 2")
    assert main(["stream", "drop", "sales", "--dsn", dsn]) == 2
    assert "by_shop" in capsys.readouterr().err
    idivm("drop", "by_shop")
    assert "DROP STREAM sales" in idivm("stream", "drop", "sales")


def test_spark_computes_the_states_from_the_files_alone(
    orc: Orchestrator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def batch(name: str, op: list[str], shop: list[int], n: list[int]) -> None:
        numbers = {"shop": pa.array(shop, pa.int64()), "n": pa.array(n, pa.int32())}
        pq.write_table(pa.table({"op": op, **numbers}), tmp_path / name)
        orc.run_stream("sales", once=True)

    orc.execute(
        "CREATE TABLE shops (id bigint PRIMARY KEY, city text NOT NULL);"
        "INSERT INTO shops VALUES (1, 'x'), (2, 'y'), (3, 'y')"
    )
    columns = "shop bigint NOT NULL, n int NOT NULL, at date"
    orc.create_stream("sales", columns, tmp_path, format="parquet", op="op")
    # Files come in any order: the row to delete is in the second one.
    batch("1.parquet", ["i", "i", "i", "d"], [1, 2, 3, 1], [15, 25, 35, 90])
    batch("2.parquet", ["i", "i"], [1, 1], [90, 40])
    options: Any = {"initialise": "spark"}
    query = "SELECT city, count(*) AS n, sum(n) AS total FROM sales JOIN shops ON id = shop GROUP BY city"
    view = orc.create_view("by_city", query, **options)
    assert {item.by for item in view.plan.evidence.initialised} == {"Spark"}
    by_city = "SELECT * FROM by_city ORDER BY 1"
    assert rows(orc, by_city) == [("x", 2, 55), ("y", 2, 60)]
    batch("3.parquet", ["d", "i"], [2, 3], [25, 10])
    orc.execute("UPDATE shops SET city = 'z' WHERE id = 3")
    orc.refresh()
    right = [("x", 2, 55), ("z", 2, 45)]
    assert rows(orc, by_city) == right
    orc.connection.execute("UPDATE idivm.views SET status = 'invalid'")
    with monkeypatch.context() as patch:
        # No row of the stream comes to PostgreSQL.
        patch.setattr(Session, "_stream_rows", None)
        orc.refresh()
    assert rows(orc, by_city) == right
    assert [report.equal for report in orc.check()] == [True]
    # What Spark does not compute exactly, PostgreSQL computes from a copy.
    query = "SELECT md5(city) AS city, sum(n) AS n FROM sales JOIN shops ON id = shop GROUP BY 1"
    view = orc.create_view("digests", query, **options)
    assert "the function md5" in str(view.plan.evidence.initialised)
    assert [report.equal for report in orc.check("digests")] == [True]
    # Files that no view read when they were recorded are checked now.
    (tmp_path / "odd").mkdir()
    orc.create_stream("odd", "n int", tmp_path / "odd", format="parquet", op="op")
    numbers = pa.array([1, 2], pa.int32())
    pq.write_table(pa.table({"op": ["vanish", None], "n": numbers}), tmp_path / "odd" / "1.parquet")
    orc.run_stream("odd", once=True)
    for given in (options, {}):
        with pytest.raises(IdivmError, match=r"(vanish|NULL) in column op is no operation"):
            orc.create_view("odds", "SELECT n, count(*) AS c FROM odd GROUP BY n", **given)
