"""Loads through a real Spark session, which all tests here share."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from client_scripts import ORDERS, run, scripts

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from orchestrator.api import Orchestrator
from orchestrator.errors import NotFoundError, UsageError
from orchestrator.spark.errors import LoadError
from orchestrator.spark.formats.jdbc import driver_jar, with_driver
from orchestrator.spark.loading.load import SETTINGS
from orchestrator.spark.session import spark_session

SMALL = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    settings = with_driver({**SETTINGS, **SMALL}, ["jdbc:postgresql:"])
    with spark_session("local[2]", "tests", **settings) as session:
        yield session


def rows(orc: Orchestrator, query: str) -> list[tuple[Any, ...]]:
    return orc.connection.execute(query).fetchall()  # type: ignore[arg-type]


def require_driver() -> None:
    if driver_jar() is None:
        pytest.skip("PostgreSQL's JDBC driver is missing (libpostgresql-jdbc-java)")


def test_the_documented_script_for_jdbc(orc: Orchestrator, spark: Any) -> None:
    require_driver()
    orc.execute(ORDERS)
    info = orc.connection.info
    url = f"jdbc:postgresql://127.0.0.1:{info.port}/{info.dbname}?user={info.user}"
    run(scripts()["JDBC"], {"spark": spark, "jdbc_url": url})
    assert orc.execute("SELECT to_regclass('totals')")[0].rows == [(None,)]


TYPES = """
    CREATE TYPE mood AS ENUM ('sad', 'ok');
    CREATE DOMAIN positive AS int CHECK (VALUE > 0);
    CREATE TABLE t (id positive PRIMARY KEY, n numeric(12,3), at timestamptz, local timestamp,
        u uuid, j jsonb, js json, tags text[], m mood, b bytea, s varchar(20), f float8, i interval,
        twice int GENERATED ALWAYS AS (id * 2) STORED, kept text DEFAULT 'kept');
    CREATE TABLE twin (LIKE t INCLUDING ALL);
"""
CSV = r"""id,n,at,local,u,j,js,tags,m,b,s,f,i
1,1.10,2024-01-01 10:00:00+02,2024-01-01 10:00:00,a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,"{""a"": ""x,y""}","{""k"":  1}","{a,""b c"",NULL}",ok,\x00ff,"",1e-7,1 day
2,,,,,,,,,,,,
3,-0.005,1999-12-31 23:59:59.999999-05,infinity,,[],"null",{},sad,\\x41,"say ""hi"" \ back",NaN,
"""


@pytest.mark.slow
def test_csv_is_read_as_postgresql_reads_it(orc: Orchestrator, spark: Any, tmp_path: Path) -> None:
    (path := tmp_path / "t.csv").write_text(CSV)
    orc.execute(TYPES)
    names = CSV.partition("\n")[0]
    with orc.connection.cursor().copy(
        f"COPY twin ({names}) FROM STDIN (FORMAT csv, HEADER)"
    ) as copy:
        copy.write(CSV)
    report = orc.load(path, "t", spark=spark)
    assert (report.tables[0].read, report.tables[0].loaded) == (3, 3)
    differing = "SELECT t::text FROM {} EXCEPT SELECT t::text FROM {}"
    assert rows(orc, differing.format("t", "twin AS t")) == []
    assert rows(orc, differing.format("twin AS t", "t")) == []
    assert rows(orc, "SELECT s, tags FROM t WHERE id < 3 ORDER BY id") == [
        ("", ["a", "b c", None]),
        (None, None),
    ]


@pytest.mark.slow
def test_a_table_made_after_a_typed_file(orc: Orchestrator, spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame(
        [
            (
                1,
                Decimal("1.50"),
                dt.datetime(2024, 1, 1),
                [1, None],
                {"k": [1, 2]},
                bytearray(b"\0"),
            ),
            (2, None, None, None, None, None),
        ],
        "id bigint, price decimal(10,2), at timestamp_ntz, a array<int>,"
        " deep struct<k: array<int>>, raw binary",
    )
    path = tmp_path / "t.parquet"
    frame.write.parquet(str(path))
    report = orc.load(path, "made", create=True, key=["id"], spark=spark)
    assert dict(report.tables[0].columns) == {
        "id": "bigint",
        "price": "numeric(10,2)",
        "at": "timestamp without time zone",
        "a": "integer[]",
        "deep": "jsonb",
        "raw": "bytea",
    }
    assert rows(orc, "SELECT * FROM made ORDER BY id") == [
        (1, Decimal("1.50"), dt.datetime(2024, 1, 1), [1, None], {"k": [1, 2]}, b"\0"),
        (2, None, None, None, None, None),
    ]
    cast = "id, cast(price AS decimal(12,4)) price, id * 2 twice"
    (chosen,) = orc.load(
        path, "chosen", create=True, select=cast, where="id = 1", spark=spark
    ).tables
    assert dict(chosen.columns) == {"id": "bigint", "price": "numeric(12,4)", "twice": "bigint"}
    assert rows(orc, "SELECT * FROM chosen") == [(1, Decimal("1.5000"), 2)]
    orc.execute("DROP TABLE made")
    assert not orc.load(path, "made", create=True, key=["id"], spark=spark).tables[0].again


def test_a_table_made_after_csv_keeps_what_its_fields_say(
    orc: Orchestrator, spark: Any, tmp_path: Path
) -> None:
    (path := tmp_path / "t.csv").write_text('a,b,c,d,e,f\n1,"",007,1.50,,-0\n2,5,1,3000000000,,1\n')
    (table,) = orc.load(path, "made", create=True, spark=spark).tables
    kinds = ["integer", "text", "text", "numeric", "text", "text"]
    assert [kind for _, kind in table.columns] == kinds
    assert rows(orc, "SELECT made::text FROM made ORDER BY a") == [
        ('(1,"",007,1.50,,-0)',),
        ("(2,5,1,3000000000,,1)",),
    ]
    with pytest.raises(UsageError, match=r"CSV files has no option comment: each line is a row"):
        orc.load(path, "made", options={"comment": "#"}, spark=spark)


def test_json_keeps_digits_and_documents(orc: Orchestrator, spark: Any, tmp_path: Path) -> None:
    lines = [
        '{"id": 1, "n": 0.10, "doc": {"a": [1, 2.50]}, "tags": ["x", null], "list": [1]}',
        '{"id": 2, "n": 12345678901234567890.5, "doc": [1, "2"]}',
    ]
    (path := tmp_path / "t.json").write_text("\n".join(lines))
    orc.execute("CREATE TABLE t (id int, n numeric, doc json, tags text[], list jsonb)")
    orc.load(path, "t", spark=spark)
    assert rows(orc, "SELECT id, n::text, doc::text, tags, list FROM t ORDER BY id") == [
        (1, "0.10", '{"a": [1, 2.50]}', ["x", None], [1]),
        (2, "12345678901234567890.5", '[1, "2"]', None, None),
    ]


def test_everything_that_does_not_fit_is_listed_at_once(orc: Orchestrator, spark: Any) -> None:
    orc.execute("CREATE TABLE t (a int, b timestamp, c uuid, d int NOT NULL, e numeric(4,1))")
    frame = spark.sql(
        "SELECT 1L a, current_timestamp() b, 'x' c, 1 extra, cast(1 AS decimal(9,3)) e"
    )
    with pytest.raises(LoadError) as wrong:
        orc.load(frame, "t")
    message = str(wrong.value)
    for part in (
        "a: bigint may be too large for integer",
        "b: timestamp has a time zone and the column has none",
        "extra is not in the table",
        "d is not in the source, and must not be NULL",
        "e: decimal(9,3) may be too large for numeric(4,1)",
    ):
        assert part in message
    assert "c:" not in message
    assert "\n" not in message


def messy(path: Path) -> list[int]:
    """A file with blank lines and four bad ones; gives the numbers of those."""
    lines = ["pid,price"]
    for n in range(1, 2001):
        line = {700: "x700,1", 800: "800", 900: "900,-5", 1000: "999,1"}.get(n, f"{n},{n}")
        lines += ["", line] if n == 500 else [line]
    path.write_text("\n".join(lines))
    return [lines.index(bad) + 1 for bad in ("x700,1", "800", "900,-5", "999,1")]


def test_bad_rows_stop_a_load_or_are_put_aside(
    orc: Orchestrator, spark: Any, tmp_path: Path
) -> None:
    bad = messy(path := tmp_path / "parts.csv")
    orc.execute("CREATE TABLE parts (pid int PRIMARY KEY, price numeric CHECK (price >= 0))")
    with pytest.raises(
        LoadError, match=rf"Nothing was loaded.*parts\.csv, line ({bad[0]}|{bad[1]}|{bad[2]})"
    ):
        orc.load(path, "parts", spark=spark)
    assert rows(orc, "SELECT * FROM parts") == []
    assert rows(orc, "SELECT * FROM pg_tables WHERE schemaname = 'idivm_load'") == []

    report = orc.load(path, "parts", on_bad_row="quarantine", partitions=3, spark=spark)
    table = report.tables[0]
    assert (table.read, table.loaded, table.rejected) == (2000, 1996, 4)
    assert [row.line for row in table.rejected_rows] == bad
    assert [row.row for row in table.rejected_rows] == [700, 800, 900, 1000]
    assert {row.file for row in table.rejected_rows} == {str(path)}
    assert table.rejected_rows[0].column == "pid"
    assert "1 field instead of 2" in table.rejected_rows[1].reason
    assert "parts_price_check" in table.rejected_rows[2].reason
    with pytest.raises(LoadError, match="More than 2 rows"):
        orc.load(path, "parts", on_bad_row="quarantine", max_bad_rows=2, again=True, spark=spark)
    assert rows(orc, "SELECT count(*) FROM parts") == [(1996,)]


def test_the_same_command_loads_once(orc: Orchestrator, spark: Any, tmp_path: Path) -> None:
    (path := tmp_path / "t.csv").write_text("a\n1\n2\n")
    orc.execute("CREATE TABLE t (a int)")
    assert not orc.load(path, "t", spark=spark).tables[0].again
    assert orc.load(path, "t", spark=spark).tables[0].again
    assert rows(orc, "SELECT count(*) FROM t") == [(2,)]
    orc.load(path, "t", again=True, spark=spark)
    assert rows(orc, "SELECT count(*) FROM t") == [(4,)]
    path.write_text("a\n3\n")
    orc.load(path, "t", spark=spark)
    assert rows(orc, "SELECT count(*) FROM t") == [(5,)]


def test_a_load_file_brings_tables_in_the_order_of_their_keys(
    orc: Orchestrator, spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "c.csv").write_text("id,p\n1,10\n2,20\n3,30\n")
    (tmp_path / "p.csv").write_text("10;x\n20;y\n")
    (path := tmp_path / "load.toml").write_text(
        """
        on_bad_row = "quarantine"
        [[table]]
        into = "c"
        source = "c.csv"
        where = "id <> '2'"
        [[table]]
        into = "p"
        source = ["p.csv"]
        options = { header = false, sep = ";" }
        """
    )
    orc.execute(
        "CREATE TABLE p (id int PRIMARY KEY, name text);"
        "CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p)"
    )
    report = orc.load(path, spark=spark)
    assert {table.table: table.loaded for table in report.tables} == {"c": 1, "p": 2}
    rejected = next(table for table in report.tables if table.table == "c").rejected_rows
    assert [(row.row, row.line) for row in rejected] == [(3, 4)]
    assert rows(orc, "SELECT * FROM c") == [(1, 10)]


@pytest.mark.parametrize("views", ["refresh", "rebuild", "auto", "leave"])
def test_views_follow_a_load(orc: Orchestrator, spark: Any, tmp_path: Path, views: str) -> None:
    (path := tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{n},{n % 3}\n" for n in range(90)))
    orc.execute(
        "CREATE TABLE t (a int PRIMARY KEY, b int); INSERT INTO t VALUES (1000, 1);"
        "CREATE VIEW v WITH (strategy = recompute) AS SELECT b, count(*) AS n FROM t GROUP BY b;"
        "CREATE VIEW w WITH (strategy = recompute) AS SELECT sum(n) AS n FROM v"
    )
    report = orc.load(path, "t", views=views, spark=spark)
    expected = [(1,)] if views == "leave" else [(91,)]
    assert rows(orc, "SELECT n FROM w") == expected
    if views != "leave":
        assert {name for name, _ in report.refreshed} == {"v", "w"}
    orc.execute("INSERT INTO t VALUES (2000, 2)")
    assert all(report.equal for report in orc.check())
    assert rows(orc, "SELECT n FROM w") == [(92,)]


@pytest.mark.slow
def test_columns_that_only_the_source_has_are_added(
    orc: Orchestrator, spark: Any, tmp_path: Path
) -> None:
    orc.execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
    orc.execute("CREATE VIEW v AS SELECT b, count(*) AS n FROM t GROUP BY b")
    (csv := tmp_path / "t.csv").write_text("a,b,when,C\n1,1,2024-01-01,007\n1,x,2024-01-02,\n")
    (documents := tmp_path / "t.json").write_text('{"a": 2, "b": 1, "more": {"x": 1.0}}\n')
    more = {"add_columns": True, "spark": spark}
    with pytest.raises(LoadError, match=r"columns? C is not in the table"):
        orc.load(csv, "t", spark=spark)
    with pytest.raises(LoadError, match="line 3, column b"):
        orc.load(csv, "t", **more)
    assert rows(orc, "SELECT * FROM t") == []
    assert orc.load(csv, "t", on_bad_row="quarantine", **more).tables[0].rejected == 1
    orc.load(documents, "t", **more)
    assert rows(orc, 'SELECT a, b, "when", "C", more::text FROM t ORDER BY a') == [
        (1, 1, dt.date(2024, 1, 1), "007", None),
        (2, 1, None, None, '{"x": 1.0}'),
    ]
    assert all(report.equal for report in orc.check())
    assert rows(orc, "SELECT * FROM v") == [(1, 2)]


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_the_data_source_by_itself(orc: Orchestrator, dsn: str, spark: Any) -> None:
    # Spark finds it by the module pyspark_idivm.
    orc.execute("CREATE TABLE t (a int PRIMARY KEY, b text, c bytea, d numeric(8,2), e date)")
    frame = spark.range(1000).selectExpr(
        "cast(id AS int) a",
        "CASE id % 3 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE concat('a\"\n,', id) END b",
        "unhex(hex(id)) c",
        "cast(id / 4 AS decimal(8,2)) d",
        "date_add(date'2000-01-01', cast(id AS int)) e",
    )
    writer = frame.write.format("idivm").option("dsn", dsn)
    writer.mode("append").save("t")
    writer.mode("overwrite").save("t")
    assert rows(orc, "SELECT count(*), count(b), sum(d) FROM t") == [
        (1000, 666, Decimal("124875.00"))
    ]

    def read(**options: str) -> Any:
        return spark.read.format("idivm").options(dsn=dsn, **options).load()

    orc.execute("CREATE VIEW v AS SELECT a, b, c, d, e FROM t WHERE a < 900")
    with orc.snapshot() as snapshot:
        orc.execute("DELETE FROM t WHERE a < 10; REFRESH MATERIALIZED VIEW v")
        for name, whole in (("t", frame), ("v", frame.where("a < 900"))):
            back = read(table=name, partitions="3", snapshot=snapshot)
            assert back.schema.simpleString() == (
                "struct<a:int,b:string,c:binary,d:decimal(8,2),e:date>"
            )
            assert back.rdd.getNumPartitions() == 3
            assert back.exceptAll(whole).count() == whole.exceptAll(back).count() == 0
    for options, message in (
        ({"table": "v", "partitions": "3"}, "cannot be read in 3 partitions without a snapshot"),
        ({"table": "v", "snapshots": "x"}, "no option snapshots; the options are"),
    ):
        with pytest.raises(Exception, match=message):
            read(**options)
    with pytest.raises(Exception, match="give one of them"):
        writer.option("key", "a").mode("overwrite").save("t")
    assert read(query="SELECT 1 AS one WHERE false").collect() == []


def test_what_is_asked_wrongly_is_said(orc: Orchestrator, spark: Any, tmp_path: Path) -> None:
    (path := tmp_path / "t.csv").write_text("a\n1\n")
    orc.execute("CREATE TABLE t (a int)")
    with pytest.raises(NotFoundError, match="no table nothing"):
        orc.load(path, "nothing", spark=spark)
    with pytest.raises(NotFoundError, match="no file or folder"):
        orc.load(tmp_path / "missing.csv", "t", spark=spark)
    with pytest.raises(UsageError, match=r"format of .*t.json is not clear"):
        orc.load([path, tmp_path / "t.json"], "t", spark=spark)
    with pytest.raises(LoadError, match="has no key that upsert could go by"):
        orc.load(path, "t", mode="upsert", spark=spark)
    with pytest.raises(UsageError, match="Name the table"):
        orc.load(path)
    for where, reason in (
        ("b > 1", r"`b` cannot be resolved.*\[`a`\]"),
        ("1 / (a - 1) > 0", "zero"),
    ):
        with pytest.raises(LoadError, match=rf"t.csv.*{reason}") as raised:
            orc.load(path, "t", where=where, spark=spark)
        assert not re.search("idivm:|ansi", str(raised.value))


@pytest.mark.sampled(4)
def test_columns_that_differ_only_in_case(orc: Orchestrator, spark: Any, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.orc
    import pyarrow.parquet

    orc.execute('CREATE TABLE t (id int, a date, "A" date); CREATE TABLE u (LIKE t)')
    orc.execute("INSERT INTO u VALUES (1, '0044-03-15 BC', 'infinity')")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"id,A,a\n1,infinity,0044-03-15 BC\n"))
    document = b'{"id": 1, "A": "infinity", "a": "0044-03-15 BC"}\n'
    (tmp_path / "t.json.gz").write_bytes(gzip.compress(document))
    info = orc.connection.info
    url = f"jdbc:postgresql://127.0.0.1:{info.port}/{info.dbname}?user={info.user}"
    days = pa.array([18_000], pa.int32()).cast(pa.date32())
    typed = pa.table({"id": pa.array([1], pa.int32()), "A": days, "a": days})
    pa.parquet.write_table(typed, tmp_path / "t.parquet")
    pa.orc.write_table(typed, tmp_path / "t.orc")
    for kind in ("parquet", "orc"):
        orc.load(tmp_path / f"t.{kind}", "t", spark=spark, select="A, a, id")
    assert rows(orc, 'SELECT DISTINCT id, a = "A" FROM t') == [(1, True)]
    sources: list[tuple[Any, dict[str, str]]] = [
        *((tmp_path / name, {}) for name in ("t.csv.gz", "t.json.gz")),
        *([(url, {"dbtable": "u"})] if driver_jar() else []),
    ]
    for source, options in sources:
        for select in (None, "*", "A, a, id"):
            orc.execute("TRUNCATE t")
            orc.load(source, "t", spark=spark, select=select, options=options, again=True)
            assert rows(orc, "SELECT t::text FROM t") == rows(orc, "SELECT u::text FROM u"), source


def test_the_ledger_says_what_came_from_where(
    orc: Orchestrator, spark: Any, tmp_path: Path
) -> None:
    (path := tmp_path / "t.csv").write_text("a\n1\n")
    orc.execute("CREATE TABLE t (a int)")
    orc.load(path, "t", spark=spark)
    name, status, sources = rows(orc, "SELECT name, status, sources FROM idivm.loads")[0]
    assert (name, status) == ('"t"', "done")
    assert [Path(source["file"]).name for source in sources] == ["t.csv"]
    assert json.dumps(sources).count("bytes") == 1


@pytest.mark.slow
def test_lines_that_postgresql_takes_apart(orc: Orchestrator, spark: Any, tmp_path: Path) -> None:
    orc.execute("CREATE TABLE t (a text, b text)")
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text(f'a,b\r\n\r\n{number},"x, ""y"""\r\na,b2\r\n')
    report = orc.load(str(tmp_path / "*.csv"), "t", spark=spark)
    assert (report.tables[0].read, report.tables[0].loaded) == (6, 6)
    assert rows(orc, 'SELECT * FROM t ORDER BY a COLLATE "C" LIMIT 4') == [
        *((str(number), 'x, "y"') for number in range(3)),
        ("a", "b2"),
    ]
    bad = {
        "torn": ('a,b\n1,2\n3,"x\ny"\n', "line 3.*multiLine"),
        "end": ("a,b\n1,2\n\\.\n3,4\n", "line 3: the line has 1 field"),
        "long": ("a,b\n1,2\n\n3,4,5\n", "line 4"),
        "other": ("b,a\n1,2\n", "different headers"),
    }
    for name, (text, reason) in bad.items():
        (path := tmp_path / f"z{name}.csv").write_text(text)
        paths = [path, tmp_path / "0.csv"] if name == "other" else [path]
        with pytest.raises(LoadError, match=reason):
            orc.load(paths, "t", spark=spark)
        if name in ("torn", "other"):
            with pytest.raises(LoadError, match=reason):
                orc.load(paths, "t", on_bad_row="quarantine", spark=spark)
    assert rows(orc, "SELECT count(*) FROM t") == [(6,)]
    (path := tmp_path / "many.csv").write_text('a,b\n1,"x\ny"\n')
    orc.load(path, "t", options={"multiLine": "true"}, spark=spark)
    assert rows(orc, "SELECT b FROM t WHERE a = '1' AND b LIKE 'x_y'") == [("x\ny",)]


def test_files_that_spark_takes_apart(orc: Orchestrator, spark: Any, tmp_path: Path) -> None:
    """Packed files, folders that are columns, headers that name nothing, another encoding."""
    orc.execute("CREATE TABLE t (a int, b text, year int)")
    with gzip.open(tmp_path / "packed.csv.gz", "wt") as packed:
        packed.write("a,b\n1,packed\n")
    (folder := tmp_path / "years" / "year=2024").mkdir(parents=True)
    (folder / "t.csv").write_text("a,b\n2,folder\n")
    (unnamed := tmp_path / "unnamed.csv").write_text("a,b,\n3,unnamed,x\n")
    (latin := tmp_path / "latin.csv").write_bytes("a,b\n4,\u00e4\n".encode("latin-1"))
    orc.load(tmp_path / "packed.csv.gz", "t", spark=spark)
    orc.load(tmp_path / "years", "t", spark=spark)
    orc.load(unnamed, "t", select="a, b", spark=spark)
    orc.load(latin, "t", options={"encoding": "ISO-8859-1"}, spark=spark)
    with pytest.raises(LoadError, match=r"latin\.csv, line 2: the byte 0xe4 is no character"):
        orc.load(latin, "t", options={"encoding": "ASCII"}, on_bad_row="quarantine", spark=spark)
    assert rows(orc, "SELECT * FROM t ORDER BY a") == [
        (1, "packed", None),
        (2, "folder", 2024),
        (3, "unnamed", None),
        (4, "\u00e4", None),
    ]


def test_a_database_as_the_source(orc: Orchestrator, spark: Any) -> None:
    require_driver()
    orc.execute(
        "CREATE TABLE there (id int PRIMARY KEY, n numeric(8,2), s text, u uuid, at timestamptz,"
        " local timestamp, tags text[], raw bytea, j jsonb);"
        "INSERT INTO there SELECT n, n / 4.0, nullif(repeat('x', n % 3), 'xx'),"
        " md5(n::text)::uuid, '2024-01-01Z'::timestamptz + n * '1 h'::interval,"
        " '2024-01-01'::timestamp + n * '1 h'::interval, ARRAY['a', NULL], '\\x00ff',"
        " jsonb_build_object('n', n) FROM generate_series(1, 100) AS n;"
        "CREATE TABLE here (LIKE there INCLUDING ALL)"
    )
    info = orc.connection.info
    url = f"jdbc:postgresql://127.0.0.1:{info.port}/{info.dbname}?user={info.user}&password=secret"
    several = {
        "partitionColumn": "id",
        "lowerBound": "1",
        "upperBound": "100",
        "numPartitions": "3",
    }
    report = orc.load(
        url, "here", options={"dbtable": "there", **several}, where="id > 10", spark=spark
    )
    assert report.tables[0].loaded == 90
    same = "SELECT h::text FROM here h EXCEPT SELECT t::text FROM there t"
    assert rows(orc, same) == []
    [(sources, parts)] = rows(orc, "SELECT sources, parts FROM idivm.loads")
    assert "secret" not in str(sources) and info.dbname in str(sources)
    assert parts == 3
    query = {"query": "SELECT id FROM there WHERE id <= 10"}
    with pytest.raises(LoadError, match="needs --options dbtable"):
        orc.load(url, "here", spark=spark)
    orc.load(url, "here", options=query, mode="upsert", spark=spark)
    assert rows(orc, "SELECT count(*) FROM here") == [(100,)]
    with pytest.raises(LoadError, match=r"no driver for jdbc:elsewhere: .*--config spark\.jars"):
        orc.load("jdbc:elsewhere://h/d", "here", options=query, spark=spark)
