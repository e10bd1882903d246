"""The matrix of loads, or a part of it that changes each day; and what typed files cannot give to a table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow.orc as arrow_orc  # noqa: E402
import pyarrow.parquet as arrow_parquet  # noqa: E402

from orchestrator.api import Orchestrator  # noqa: E402
from orchestrator.bench.load.matrix.comparing import Matrix  # noqa: E402
from orchestrator.bench.load.matrix.run import SOURCES, bars  # noqa: E402
from orchestrator.spark.errors import LoadError  # noqa: E402
from orchestrator.spark.formats.jdbc import driver_jar, with_driver  # noqa: E402
from orchestrator.spark.loading.load import SETTINGS  # noqa: E402
from orchestrator.spark.session import spark_session  # noqa: E402

SMALL = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
SHARE = 5
"""Unless everything runs, a run takes one of so many types, values and paths, of half of the sources."""


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    settings = with_driver({**SETTINGS, **SMALL}, ["jdbc:postgresql:"])
    with spark_session("local[2]", "tests", **settings) as session:
        yield session


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_the_matrix(orc: Orchestrator, spark: Any, tmp_path: Path, whole: bool, part: int) -> None:
    """Loads values of all types by all paths; `idivm bench load --matrix` does the same."""
    matrix = Matrix(orc, spark, tmp_path, share=1 if whole else SHARE, part=part)
    sources = [*SOURCES] if whole else [*SOURCES][part % 2 :: 2]
    for source in sources:
        if source != "JDBC" or driver_jar() is not None:
            SOURCES[source](matrix)
    assert not matrix.wrong
    assert matrix.compared > 500
    if whole and driver_jar() is not None:
        # The bars count the comparisons of all sources.
        assert all(bar.holds for bar in bars(matrix))


UNFIT: list[tuple[str, Any, str, Any, str]] = [
    ("ns", pa.timestamp("ns"), "timestamp", 1, "00:00.000000001"),
    ("nz", pa.timestamp("ns", "UTC"), "timestamptz", -1, "59:59.999999999"),
    ("at", pa.timestamp("us"), "timestamp(3)", 123_456, "00:00:00.123456"),
    ("far", pa.timestamp("us"), "timestamp", 2**63 - 1, "out of range.*294247-01-10"),
    ("d", pa.date32(), "date", 2**31 - 1, "out of range: 2147483647"),
    ("s", pa.string(), "text", "a\0b", "invalid byte sequence"),
    ("v", pa.string(), "varchar(3)", "abcd", "too long"),
    ("c", pa.int32(), "int CHECK (c <> 5)", 5, "check constraint"),
    ("doc", pa.struct([("x", pa.string())]), "jsonb", {"x": "a\0b"}, "escape sequence"),
]


@pytest.mark.sampled(4)
@pytest.mark.slow
def test_what_does_not_fit_is_named_or_put_aside(
    orc: Orchestrator, spark: Any, tmp_path: Path
) -> None:
    sound = 3
    length = sound + len(UNFIT)
    columns = {"id": pa.array(range(length), pa.int32())}
    for number, (name, arrow, _, value, _) in enumerate(UNFIT):
        values = [value if position == sound + number else None for position in range(length)]
        base = (
            pa.int32()
            if pa.types.is_date(arrow)
            else pa.int64()
            if pa.types.is_timestamp(arrow)
            else None
        )
        columns[name] = pa.array(values, base).cast(arrow) if base else pa.array(values, arrow)
    path = tmp_path / "t.parquet"
    arrow_parquet.write_table(pa.table(columns), path, row_group_size=2)
    listed = ", ".join(f"{name} {kind}" for name, _, kind, _, _ in UNFIT)
    expected = {(path.as_posix(), sound + 1 + n, case[0]) for n, case in enumerate(UNFIT)}
    orc.connection.execute(f"CREATE TABLE plain (id int, {listed})")  # type: ignore[arg-type]
    theirs = Matrix(orc, spark, tmp_path).their_session()
    report = orc.load(path, "plain", spark=theirs, on_bad_row="quarantine", select="*")
    query = "SELECT file, row_number, column_name FROM idivm.rejected_rows WHERE load = %s"
    rejected = orc.connection.execute(query, [report.tables[0].load]).fetchall()
    assert set(rejected) == expected
    assert report.tables[0].loaded == sound
    for number, (name, _, _, _, reason) in enumerate(UNFIT):
        place = rf"t\.parquet, row {sound + 1 + number}, column {name}: .*{reason}"
        if number in (0, 4, 6):
            with pytest.raises(LoadError, match=place):
                orc.load(path, "plain", where=f"id = {sound + number}", spark=spark)
    with pytest.raises(
        LoadError, match=r"column ns: Spark cannot compute with the value 1970.*t\.parquet"
    ):
        orc.load(path, "plain", select="id, ns + interval '1' hour AS ns", spark=spark)


def test_parquet_whose_files_differ(orc: Orchestrator, spark: Any, tmp_path: Path) -> None:
    for number, columns in enumerate(({"a": [1]}, {"a": [2], "b": ["x"]}, {"c": [0.5], "a": [3]})):
        (folder := tmp_path / "t" / f"part=0{number}").mkdir(parents=True)
        arrow_parquet.write_table(pa.table(columns), folder / "t.parquet")
    orc.connection.execute("CREATE TABLE t (a bigint, b text, c float8, part text)")
    orc.load(tmp_path / "t", "t", spark=spark)
    rows = orc.connection.execute("SELECT * FROM t ORDER BY a").fetchall()
    assert rows == [(1, None, None, "00"), (2, "x", None, "01"), (3, None, 0.5, "02")]
    other = tmp_path / "t" / "part=03"
    other.mkdir()
    for values, reason in (
        (
            ["text"],
            "Column a has the type int64 a in .*part=00/t.parquet and binary a .STRING. in .*part=03/t",
        ),
        (
            pa.array([1.5], pa.float16()),
            "part=03/t.parquet: Spark cannot read column a, whose type is .*FLOAT16",
        ),
    ):
        arrow_parquet.write_table(pa.table({"a": values}), other / "t.parquet")
        with pytest.raises(LoadError, match=reason):
            orc.load(tmp_path / "t", "t", spark=spark)


def test_old_timestamps_of_parquet(orc: Orchestrator, spark: Any, tmp_path: Path) -> None:
    orc.execute("CREATE TABLE t (a timestamptz)")
    path = tmp_path / "t.parquet"
    for last in (3000, 3001):
        values = pa.array([None, 1000, last], pa.timestamp("ns"))
        arrow_parquet.write_table(
            pa.table({"a": values}), path, use_deprecated_int96_timestamps=True
        )
        if last == 3000:
            assert orc.load(path, "t", spark=spark).tables[0].loaded == 3
    with pytest.raises(
        LoadError, match=r"t\.parquet, row 3, column a: 1970-01-01 00:00:00\.000003001"
    ):
        orc.load(path, "t", spark=spark)


@pytest.mark.slow
@pytest.mark.sampled(4)
def test_orc_that_cannot_be_read_the_same(orc: Orchestrator, spark: Any, tmp_path: Path) -> None:
    orc.execute("CREATE TABLE t (a timestamp, z timestamptz)")
    for values, place in (
        ([0, 1001], "row 2, column a: .*00:00.000001001"),
        ([0, -500_000_000], "row 2, column a: .*C"),
    ):
        stamps = pa.array(values, pa.timestamp("ns"))
        written = {"a": stamps, "z": stamps.cast(pa.timestamp("ns", "UTC"))}
        for column in ("a", "z"):
            path = tmp_path / f"{column}.orc"
            arrow_orc.write_table(pa.table({column: written[column]}), path)
            with pytest.raises(LoadError, match=place.replace("column a", f"column {column}")):
                orc.load(path, "t", spark=spark)


@pytest.mark.sampled(3)
@pytest.mark.slow
def test_constraints_at_the_end_name_the_row(orc: Orchestrator, spark: Any, tmp_path: Path) -> None:
    orc.execute(
        "CREATE TABLE p (id int PRIMARY KEY); CREATE TABLE c (id int PRIMARY KEY, p int REFERENCES p)"
    )
    orc.execute("INSERT INTO p VALUES (1); INSERT INTO c VALUES (7, 1)")
    for name, ids, parents, reason in (
        (
            "twice",
            [1, 2, 1],
            [1, 1, 1],
            r"twice.parquet, row 3, column id: the source has a row .*same key: \(1\)",
        ),
        (
            "taken",
            [1, 7],
            [1, 1],
            r"taken.parquet, row 2, column id: the table has a row with the same key: \(7\)",
        ),
        (
            "gone",
            [1, 2],
            [1, 5],
            r"gone.parquet, row 2, column p: the row that it refers to is missing .*\(5\)",
        ),
    ):
        path = tmp_path / f"{name}.parquet"
        arrow_parquet.write_table(
            pa.table(
                {"id": ids, "p": parents}, schema=pa.schema([("id", pa.int32()), ("p", pa.int32())])
            ),
            path,
        )
        with pytest.raises(LoadError, match=reason):
            orc.load(path, "c", spark=spark)
    assert orc.connection.execute(
        "SELECT count(*), (SELECT count(*) FROM idivm.rejected_rows) FROM c"
    ).fetchall() == [(1, 0)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_a_damaged_file_is_named_with_the_reason(
    orc: Orchestrator, spark: Any, tmp_path: Path, kind: str
) -> None:
    orc.execute("CREATE TABLE t (a int)")
    path = tmp_path / f"t.{kind}"
    if kind == "parquet":
        arrow_parquet.write_table(pa.table({"a": pa.array(range(9999), pa.int32())}), path)
    else:
        arrow_orc.write_table(pa.table({"a": pa.array(range(9999), pa.int32())}), path)
    sound = path.read_bytes()
    for data in (b"something else", sound[:-10], sound[:30] + bytes(20_000) + sound[20_030:]):
        path.write_bytes(data)
        with pytest.raises(LoadError, match=rf"t.{kind}.*: \S+") as raised:
            orc.load(path, "t", spark=spark)
        internal = r"calling o\d|Py4J|java\.|org\.apache|Job aborted|reading file \S+$"
        assert not re.search(internal, str(raised.value))
    assert orc.connection.execute("SELECT count(*) FROM t").fetchone() == (0,)
