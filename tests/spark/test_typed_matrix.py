"""Sources with types by every path: the table holds what an independent reader finds in the source.

Values are generated for each type and stand in one file, which is loaded once by each path. PyArrow wrote the
files, so that it knows what is in them; of a database PostgreSQL does.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow.orc as arrow_orc  # noqa: E402
import pyarrow.parquet as arrow_parquet  # noqa: E402
from psycopg.sql import SQL, Identifier  # noqa: E402

from orchestrator.api import Orchestrator  # noqa: E402
from orchestrator.spark.errors import LoadError  # noqa: E402
from orchestrator.spark.formats.jdbc import driver_jar, with_driver  # noqa: E402
from orchestrator.spark.loading.load import SETTINGS  # noqa: E402
from orchestrator.spark.session import spark_session  # noqa: E402

SMALL = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
HOSTILE = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.legacy.parquet.nanosAsLong": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.orc.enableVectorizedReader": "false",
}
"""A session of somebody else's, set otherwise."""


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    settings = with_driver({**SETTINGS, **SMALL}, ["jdbc:postgresql:"])
    with spark_session("local[2]", "tests", **settings) as session:
        yield session


Shown = Callable[[Any], str]


@dataclass(frozen=True)
class Kind:
    """A type, its values, and how PostgreSQL and the test show one."""

    name: str
    arrow: Any
    type: str
    values: list[Any]
    sql: str = "{}::text"
    shown: Shown = str


CHANCE = random.Random(1582)
DAY = 86_400 * 10**6
FIRST, LAST = -2_440_588 + 1, 2_932_896
"""Days from 4713 BC, the first that PostgreSQL has, to the end of 9999."""
REFORM = -141_427
"""1582-10-15."""


def whole(low: int, high: int) -> list[int]:
    """Numbers around the powers of two within bounds, and others."""
    near = {
        sign * 2**power + step for power in range(64) for step in (-1, 0, 1) for sign in (-1, 1)
    }
    some = {CHANCE.randint(low, high) for _ in range(20)}
    return sorted({low, high, 0} | {one for one in near | some if low <= one <= high})


def decimals(precision: int, scale: int) -> list[Decimal]:
    most = 10**precision - 1
    numbers = {0, 1, -1, most, -most, most // 10 * 10, 10**scale if scale < precision else 0}
    numbers |= {CHANCE.randint(-most, most) for _ in range(10)}
    return [Decimal((one < 0, tuple(map(int, str(abs(one)))), -scale)) for one in sorted(numbers)]


def floats(code: str, whole_bits: int) -> list[float]:
    odd = [0.0, -0.0, 0.1, 1e-7, 16777217.0, float("inf"), float("-inf"), float("nan"), 1 / 3]
    bits = [1, 2**whole_bits - 1, *(CHANCE.getrandbits(whole_bits - 1) for _ in range(20))]
    drawn = [struct.unpack(">" + code, one.to_bytes(whole_bits // 8, "big"))[0] for one in bits]
    rounded: list[float] = [
        struct.unpack(">" + code, struct.pack(">" + code, one))[0] for one in odd
    ]
    return rounded + drawn


def days() -> list[int]:
    leaps = [-719_528 + 366 + 36_524 * n + n // 4 + 58 for n in range(-10, 20)]
    some = [CHANCE.randint(FIRST, LAST) for _ in range(20)]
    return [FIRST, LAST, 0, -1, REFORM, REFORM - 1, -719_162, -719_163, -719_528, *leaps, *some]


def moments(unit: int, low: int = FIRST * DAY, high: int = LAST * DAY) -> list[int]:
    """Microseconds, or what else there are so many of in a second as `unit`."""
    some = [CHANCE.randint(low, high) for _ in range(20)]
    # Hours that clocks in New York or Berlin pass over, or show twice.
    clocks = [1_710_055_800, 1_711_850_400 + 1800, 1_730_611_800, -2_717_650_800 + 60]
    known = [
        0,
        1,
        -1,
        999_999,
        -999_999,
        REFORM * DAY,
        REFORM * DAY - 1,
        low,
        high,
        -719_162 * DAY - 1,
    ]
    known += [one * 10**6 + 123_456 for one in clocks]
    return [one * unit // 10**6 for one in sorted({*known, *some}) if low <= one <= high]


def bits(code: str) -> Shown:
    return lambda one: struct.pack(">" + code, float("nan") if one != one else one).hex()


TEXTS = [
    "",
    " ",
    "\\N",
    "\\.",
    "NULL",
    "null",
    '"',
    "'",
    "{}",
    "a,b",
    "é😀",
    "x" * 5000,
    "\u2028",
    "\ufeff",
]
TEXTS += [f"a{chr(code)}b" for code in range(1, 128)]
BYTES = [b"", bytes(range(256)), b"\\x00", *(bytes([one]) for one in range(0, 256, 5))]
EPOCH = "trunc(extract(epoch FROM {}) * 1000000)::text"
NOW = 2**63 // 1000 - 10**6
"""The microseconds that 64 bits of nanoseconds reach."""


def kinds() -> list[Kind]:
    whole_numbers = [
        Kind(
            f"i{size}",
            getattr(pa, f"int{size}")(),
            kind,
            whole(-(2 ** (size - 1)), 2 ** (size - 1) - 1),
        )
        for size, kind in ((8, "smallint"), (16, "smallint"), (32, "integer"), (64, "bigint"))
    ]
    sized = ((1, 0), (4, 4), (9, 2), (18, 6), (19, 3), (38, 0), (38, 18), (38, 38))
    numbers = [
        Kind(
            f"n{p}_{s}",
            pa.decimal128(p, s),
            f"numeric({p},{s})",
            decimals(p, s),
            shown="{:f}".format,
        )
        for p, s in sized
    ]
    return [
        Kind("flag", pa.bool_(), "boolean", [True, False], shown=lambda one: str(one).lower()),
        *whole_numbers,
        *numbers,
        Kind("n", pa.decimal128(20, 5), "numeric", decimals(20, 5), shown="{:f}".format),
        Kind("f4", pa.float32(), "real", floats("f", 32), "encode(float4send({}), 'hex')", bits("f")),
        Kind("f8", pa.float64(), "double precision", floats("d", 64), "encode(float8send({}), 'hex')", bits("d")),
        Kind("f48", pa.float32(), "double precision", floats("f", 32), "encode(float8send({}), 'hex')", bits("d")),
        Kind("s", pa.string(), "text", TEXTS),
        Kind("v", pa.large_string(), "varchar(5000)", TEXTS),
        Kind("raw", pa.binary(), "bytea", BYTES, "encode({}, 'hex')", bytes.hex),
        Kind("d", pa.date32(), "date", days(), "({} - date '1970-01-01')::text"),
        Kind("at", pa.timestamp("us"), "timestamp", moments(10**6), EPOCH),
        Kind("z", pa.timestamp("us", "UTC"), "timestamptz", moments(10**6), EPOCH),
        Kind("far", pa.timestamp("us", "Asia/Tokyo"), "timestamptz", moments(10**6), EPOCH),
    ]  # fmt: skip


def of_parquet() -> list[Kind]:
    unsigned = [
        Kind(f"u{size}", getattr(pa, f"uint{size}")(), kind, whole(0, 2**size - 1))
        for size, kind in ((8, "smallint"), (16, "integer"), (32, "bigint"), (64, "numeric(20)"))
    ]
    near = [one * 1000 for one in moments(10**6, -NOW, NOW)]
    return [
        *unsigned,
        Kind("ns", pa.timestamp("ns"), "timestamp", near, EPOCH, lambda one: str(one // 1000)),
        Kind("nz", pa.timestamp("ns", "UTC"), "timestamptz", near, EPOCH, lambda one: str(one // 1000)),
        Kind("ms", pa.timestamp("ms"), "timestamp(3)", moments(1000), EPOCH, lambda one: str(one * 1000)),
        Kind("fixed", pa.binary(4), "bytea", [b"\0\\\n\xff"], "encode({}, 'hex')", bytes.hex),
        Kind("coded", pa.dictionary(pa.int32(), pa.string()), "text", ["a", "b", "a"]),
    ]  # fmt: skip


def of_orc() -> list[Kind]:
    """PyArrow writes fractions of seconds before 1970 as Java does not read them."""

    def clear(one: Kind) -> bool:
        return not pa.types.is_timestamp(one.arrow)

    return [
        one
        if clear(one)
        else replace(one, values=[v for v in one.values if v >= 0 or v % 10**6 == 0])
        for one in kinds()
    ]


ALONE = ("ns", "nz", "coded", "f48")
"""Columns that are not in arrays and documents as well."""


def column(kind: Kind, length: int) -> Any:
    """The values of a type, and NULL for as long as there are values of others."""
    values = kind.values + [None] * (length - len(kind.values))
    if pa.types.is_date(kind.arrow):
        return pa.array(values, pa.int32()).cast(kind.arrow)
    if pa.types.is_timestamp(kind.arrow):
        return pa.array(values, pa.int64()).cast(kind.arrow)
    return pa.array(values, kind.arrow)


def table(chosen: list[Kind]) -> Any:
    """A table of a column for each type, an array of each, and documents of them all."""
    length = max(len(one.values) for one in chosen)
    scalars = {one.name: column(one, length) for one in chosen}
    plain = {name: values for name, values in scalars.items() if name not in ALONE}
    whole_table = {"id": pa.array(range(length), pa.int32()), **scalars}
    for name, values in plain.items():
        # The first row has all values as an array, the second an empty one.
        lists = pa.ListArray.from_arrays(
            pa.array([0, length, *[length] * (length - 1)], pa.int32()), values
        )
        whole_table[f"a_{name}"] = lists
    document = pa.StructArray.from_arrays(list(plain.values()), names=list(plain))
    whole_table["doc"] = document
    ones = pa.array(range(length + 1), pa.int32())
    whole_table["docs"] = pa.ListArray.from_arrays(ones, document)
    keys = pa.array([str(one) + '"\\' for one in range(length)])
    whole_table["by_text"] = pa.MapArray.from_arrays(ones, keys, scalars["s"])
    whole_table["by_day"] = pa.MapArray.from_arrays(
        ones, scalars["d"].fill_null(pa.scalar(0, pa.int32()).cast(pa.date32())), scalars["z"]
    )
    return pa.table(whole_table)


def created(orc: Orchestrator, name: str, chosen: list[Kind]) -> None:
    listed = ["id int", *(f"{one.name} {one.type}" for one in chosen)]
    plain = [one for one in chosen if one.name not in ALONE]
    listed += [f"a_{one.name} {one.type.replace('(3)', '')}[]" for one in plain]
    listed += ["doc jsonb", "docs jsonb[]", "by_text jsonb", "by_day json"]
    orc.connection.execute(f"CREATE TABLE {name} ({', '.join(listed)})")  # type: ignore[arg-type]


def compare(orc: Orchestrator, name: str, chosen: list[Kind]) -> None:
    """Compares a loaded table with the values that were generated."""
    orc.connection.execute("SET TimeZone = 'UTC'; SET extra_float_digits = 1")
    shown = ", ".join(one.sql.format(one.name) for one in chosen)
    found = orc.connection.execute(f"SELECT {shown} FROM {name} ORDER BY id").fetchall()  # type: ignore[arg-type]
    for kind, values in zip(chosen, zip(*found, strict=True), strict=True):
        expected = [kind.shown(one) for one in kind.values]
        assert list(values[: len(expected)]) == expected, kind.name
        assert not any(values[len(expected) :]), kind.name
    plain = [one for one in chosen if one.name not in ALONE]
    fields = ", ".join(one.name for one in plain)
    documents = f"SELECT t.id, to_jsonb(r) AS it, t.d, t.z, t.s FROM {name} t, LATERAL (SELECT {fields}) AS r"
    whole_rows = f"""
        SELECT 'documents', count(*) FILTER (WHERE doc IS DISTINCT FROM it),
            count(*) FILTER (WHERE docs IS DISTINCT FROM ARRAY[it]),
            count(*) FILTER (WHERE by_text IS DISTINCT FROM jsonb_build_object(id || '"\\', q.s)),
            count(*) FILTER (WHERE by_day::jsonb IS DISTINCT FROM
                jsonb_build_object(to_jsonb(coalesce(q.d, '1970-01-01')) #>> '{{}}', q.z))
        FROM ({documents}) AS q JOIN {name} USING (id)"""
    assert orc.connection.execute(whole_rows).fetchall() == [("documents", 0, 0, 0, 0)]  # type: ignore[arg-type]
    for one in plain:
        lists = f"""SELECT (SELECT a_{one.name}::text FROM {name} WHERE id = 0)
            = (SELECT array_agg({one.name} ORDER BY id)::text FROM {name}),
            (SELECT bool_and(a_{one.name} = '{{}}') FROM {name} WHERE id > 0)"""
        assert orc.connection.execute(lists).fetchall() == [(True, True)], one.name  # type: ignore[arg-type]


def paths(spark: Any, names: list[str]) -> dict[str, dict[str, Any]]:
    """The ways a source can go."""
    theirs = spark.newSession()
    for name, value in HOSTILE.items():
        theirs.conf.set(name, value)
    return {
        "plain": {"spark": spark},
        "condition": {"spark": spark, "where": "id >= 0", "partitions": 3},
        "selection": {"spark": spark, "select": ", ".join(reversed(names)), "where": "id > -1"},
        "quarantine": {"spark": theirs, "on_bad_row": "quarantine", "select": "*"},
    }


def load_by_all(
    orc: Orchestrator,
    spark: Any,
    make: Callable[[str], None],
    names: list[str],
    *source: Any,
    **how: Any,
) -> None:
    """Loads a source by each path; all of them have to give what the plain one gives."""
    for path, options in paths(spark, names).items():
        make(path)
        report = orc.load(*source, path, **how, **options)
        assert report.rejected == 0, path
        same(orc, path)


def same(orc: Orchestrator, path: str) -> None:
    names = map(Identifier, ("plain", path))
    query = SQL(
        "SELECT count(*) FROM (SELECT p::text FROM {} AS p EXCEPT ALL SELECT q::text FROM {} AS q) AS r"
    )
    assert orc.connection.execute(query.format(*names)).fetchall() == [(0,)], path
    counts = SQL("SELECT (SELECT count(*) FROM {}) = (SELECT count(*) FROM {})")
    assert orc.connection.execute(
        counts.format(Identifier("plain"), Identifier(path))
    ).fetchall() == [(True,)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_files(orc: Orchestrator, spark: Any, tmp_path: Path, kind: str) -> None:
    chosen = kinds() + of_parquet() if kind == "parquet" else of_orc()
    written = table(chosen)
    path = tmp_path / f"t.{kind}"
    if kind == "parquet":
        arrow_parquet.write_table(written, path, row_group_size=50)
    else:
        arrow_orc.write_table(written, path)
    load_by_all(orc, spark, lambda name: created(orc, name, chosen), written.column_names, path)
    compare(orc, "plain", chosen)


@pytest.mark.slow
def test_orc_of_spark_and_frames(orc: Orchestrator, spark: Any, tmp_path: Path) -> None:
    """What Spark holds itself: as a DataFrame, through the data source, and in the ORC that it writes."""
    chosen = kinds()
    path = tmp_path / "t.parquet"
    arrow_parquet.write_table(table(chosen), path)
    frame = spark.read.parquet(str(path))
    for name in ("plain", "source"):
        created(orc, name, chosen)
    orc.load(frame, "plain")
    compare(orc, "plain", chosen)
    writer = frame.write.format("idivm")
    writer.options(dsn=orc.connection.info.dsn, table="source").mode("append").save()
    same(orc, "source")
    listed = "id, d, at, n38_18, s, raw, f8"
    # Spark's own writer moves days that the Julian calendar has and ours has not.
    kept = frame.where("coalesce(year(d), 0) <> 1582 AND coalesce(year(at), 0) <> 1582")
    kept.selectExpr(*listed.split(", ")).write.orc(str(tmp_path / "spark.orc"))
    orc.connection.execute(f"CREATE TABLE again AS SELECT {listed} FROM plain LIMIT 0")  # type: ignore[arg-type]
    report = orc.load(tmp_path / "spark.orc", "again", spark=spark)
    assert report.tables[0].loaded > 200
    differing = (
        f"SELECT count(*) FROM (SELECT {listed} FROM again EXCEPT SELECT {listed} FROM plain) AS q"
    )
    assert orc.connection.execute(differing).fetchall() == [(0,)]  # type: ignore[arg-type]


TIMES = [
    "infinity",
    "-infinity",
    "4713-11-24 00:00:00 BC",
    "0044-03-15 12:00:00.5 BC",
    "0001-01-01 00:00:00",
]
TIMES += [
    "1582-10-10 00:00:00.000001",
    "1883-11-18 12:03:58",
    "2024-03-10 02:30:00",
    "294276-12-31 23:59:59.999999",
]
NUMBERS = [
    "NaN",
    "Infinity",
    "-Infinity",
    "1.50",
    "-0.10",
    "0",
    f"1{'0' * 60}",
    f"0.{'0' * 40}1",
    "1e-16383",
]
SIZED = ["NaN", "1.5", "-0.1", "0"]
THERE: dict[str, list[str]] = {
    **{f"int{size // 8}": list(map(str, whole(-(2 ** (size - 1)), 2 ** (size - 1) - 1))) for size in (16, 32, 64)},
    "numeric": NUMBERS, "numeric(50,25)": [*SIZED, f"{'9' * 25}.{'9' * 25}"], "numeric(8,2)": SIZED,
    "numeric(38,38)": ["NaN", "0.1", f"0.{'9' * 38}"], "numeric(3,-2)": ["12300", "NaN"], "numeric(2,5)": ["0.00012"],
    "float4": ["NaN", "-Infinity", "-0", "1e-45", "0.1"], "float8": ["NaN", "Infinity", "-0", "5e-324", "0.1"],
    "date": ["infinity", "-infinity", "4713-01-01 BC", "0001-12-31 BC", "1582-10-10", "5874897-12-31"],
    "timestamp": TIMES, "timestamp(0)": ["infinity", "2024-01-01"], "timestamptz": [f"{one} UTC" for one in TIMES[4:]],
    "timestamptz(2)": ["infinity", "-infinity", "0044-03-15 00:00:00.25+00 BC"], "time": ["24:00", "00:00:00.000001"],
    "timetz": ["24:00+15:59", "12:00:00.5-07:30"], "interval": ["-1 year 3 days -04:05:06.789", "178000000 years"],
    "text": TEXTS, "varchar(5000)": TEXTS, "char(3)": ["a", "", "abc"], "name": ["", "x"], '"char"': ["", "a"],
    "bool": ["t", "f"], "bytea": [rf"\x{one.hex()}" for one in BYTES], "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "json": ['{"a":  1.0, "a": "1"}', '"x"', "null"], "jsonb": ['{"b": 1.50}', '"null"'],
    "inet": ["1.2.3.4", "::1/64"], "cidr": ["10.0.0.0/8"], "macaddr": ["08:00:2b:01:02:03"], "money": ["-1.50"],
    "bit(3)": ["101"], "varbit": ["", "1"], "point": ["(0.1,-0)"], "path": ["[(0,0),(1,1)]"], "circle": ["<(0,0),1>"],
    "int4range": ["[1,5)", "empty"], "tstzrange": ['["0044-03-15 BC",infinity)'], "tsmultirange": ["{}", "{[2024-01-01,)}"],
    "oid": ["4294967295"], "pg_lsn": ["16/B374D848"], "tsvector": ["'a':1A"], "tsquery": ["'a' & !'b'"],
    "int[]": ["{1,NULL}", "{}", "{{1,2},{3,4}}", "[0:1]={1,2}"], "numeric[]": ["{1.50,NaN}"], "date[]": ["{infinity}"],
    "text[]": ['{"","NULL",NULL,"a\\"b"}'], "timestamptz[]": ['{"0044-03-15 00:00:00+00 BC",-infinity}'],
    "mood": ["a b"], "mood[]": ['{"a b"}'], "pair": ['(1,"x y")', "(,)"], "digits": ["1.50"],
}  # fmt: skip


@pytest.mark.slow
def test_a_database(orc: Orchestrator, spark: Any) -> None:
    if driver_jar() is None:
        pytest.skip("PostgreSQL's JDBC driver is missing (libpostgresql-jdbc-java)")
    orc.execute(
        "CREATE TYPE mood AS ENUM ('a b'); CREATE TYPE pair AS (a int, b text); CREATE DOMAIN digits AS numeric"
    )
    names = [f"c{number}" for number, _ in enumerate(THERE)]
    listed = ", ".join(f"{name} {kind}" for name, kind in zip(names, THERE, strict=True))
    orc.connection.execute(f"CREATE TABLE there (id int, {listed})")  # type: ignore[arg-type]
    for name, (kind, values) in zip(names, THERE.items(), strict=True):
        for number, value in enumerate(values):
            orc.connection.execute(
                f"INSERT INTO there (id, {name}) VALUES (%s, (%s::text)::{kind})",  # type: ignore[arg-type]
                [number, value],
            )
    info = orc.connection.info
    url = f"jdbc:postgresql://127.0.0.1:{info.port}/{info.dbname}?user={info.user}"

    def make(name: str) -> None:
        orc.connection.execute(SQL("CREATE TABLE {} (LIKE there)").format(Identifier(name)))

    load_by_all(orc, spark, make, ["id", *names], url, options={"dbtable": "there"})
    same(orc, "there")
    by = names[list(THERE).index("timestamp")]
    divided = {"query": "SELECT * FROM there", "partitionColumn": by, "numPartitions": "3"}
    divided |= {"lowerBound": "1900-01-01 00:00:00", "upperBound": "2100-01-01 00:00:00"}
    make("divided")
    assert orc.load(url, "divided", options=divided, spark=spark).tables[0].loaded
    same(orc, "divided")
    orc.load(url, "made", options={"dbtable": "there"}, create=True, spark=spark)
    same(orc, "made")
    with pytest.raises(
        LoadError, match=r"column c\d+: Spark cannot compute with the value NaN as decimal\(8,2\)"
    ):
        sized = names[list(THERE).index("numeric(8,2)")]
        orc.load(
            url,
            "again",
            options={"dbtable": "there"},
            select=f"{sized} + 1 AS it",
            create=True,
            spark=spark,
        )


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


@pytest.mark.slow
def test_what_does_not_fit_is_named_or_put_aside(
    orc: Orchestrator, spark: Any, tmp_path: Path
) -> None:
    sound = 3
    length = sound + len(UNFIT)
    columns = {"id": pa.array(range(length), pa.int32())}
    for number, (name, arrow, _, value, _) in enumerate(UNFIT):
        values = [value if one == sound + number else None for one in range(length)]
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
    # Of a character 0 and of a CHECK PostgreSQL tells the row and no column.
    nameless = ("s", "c")
    expected = {
        (path.as_posix(), sound + 1 + n, None if one[0] in nameless else one[0])
        for n, one in enumerate(UNFIT)
    }
    for name, how in paths(spark, list(columns)).items():
        orc.connection.execute(f"CREATE TABLE {name} (id int, {listed})")  # type: ignore[arg-type]
        if how.get("on_bad_row") == "quarantine":
            report = orc.load(path, name, **how)
            query = "SELECT file, row_number, column_name FROM idivm.rejected_rows WHERE load = %s"
            assert (
                set(orc.connection.execute(query, [report.tables[0].load]).fetchall()) == expected
            )
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
    found = orc.connection.execute("SELECT * FROM t ORDER BY a").fetchall()
    assert found == [(1, None, None, "00"), (2, "x", None, "01"), (3, None, 0.5, "02")]
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
