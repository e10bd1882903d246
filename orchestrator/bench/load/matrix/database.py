"""A table of PostgreSQL read by JDBC, compared with the table itself."""

# ruff: noqa: E501 - tables of values

from __future__ import annotations

from random import Random

from orchestrator.bench.load.matrix.comparing import Matrix
from orchestrator.bench.load.matrix.typed import load_by_all
from orchestrator.bench.load.matrix.values import BYTES, TEXTS, integers
from orchestrator.spark.errors import LoadError

LATE = [
    "0001-01-01 00:00:00",
    "1582-10-10 00:00:00.000001",
    "1883-11-18 12:03:58",
    "2024-03-10 02:30:00",
    "294276-12-31 23:59:59.999999",
]
TIMES = ["infinity", "-infinity", "4713-11-24 00:00:00 BC", "0044-03-15 12:00:00.5 BC", *LATE]
SIZED = ["NaN", "1.5", "-0.1", "0"]
NUMBERS = ["NaN", "Infinity", "-Infinity", "1.50", "-0.10", "0"]
NUMBERS += [f"1{'0' * 60}", f"0.{'0' * 40}1", "1e-16383"]
TYPES = "CREATE TYPE mood AS ENUM ('a b'); CREATE TYPE pair AS (a int, b text); CREATE DOMAIN digits AS numeric"


def values(chance: Random) -> dict[str, list[str]]:
    """Return values of PostgreSQL's types; Spark can hold only some of them."""
    return {
        "numeric(8,2)": SIZED,
        "timestamp": TIMES,
        **{f"int{size // 8}": list(map(str, integers(chance, -(2 ** (size - 1)), 2 ** (size - 1) - 1))) for size in (16, 32, 64)},
        "numeric": NUMBERS, "numeric(50,25)": [*SIZED, f"{'9' * 25}.{'9' * 25}"],
        "numeric(38,38)": ["NaN", "0.1", f"0.{'9' * 38}"], "numeric(3,-2)": ["12300", "NaN"], "numeric(2,5)": ["0.00012"],
        "float4": ["NaN", "-Infinity", "-0", "1e-45", "0.1"], "float8": ["NaN", "Infinity", "-0", "5e-324", "0.1"],
        "date": ["infinity", "-infinity", "4713-01-01 BC", "0001-12-31 BC", "1582-10-10", "5874897-12-31"],
        "timestamp(0)": ["infinity", "2024-01-01"], "timestamptz": [f"{time} UTC" for time in LATE],
        "timestamptz(2)": ["infinity", "-infinity", "0044-03-15 00:00:00.25+00 BC"], "time": ["24:00", "00:00:00.000001"],
        "timetz": ["24:00+15:59", "12:00:00.5-07:30"], "interval": ["-1 year 3 days -04:05:06.789", "178000000 years"],
        "text": TEXTS, "varchar(5000)": TEXTS, "char(3)": ["a", "", "abc"], "name": ["", "x"], '"char"': ["", "a"],
        "bool": ["t", "f"], "bytea": [rf"\x{raw.hex()}" for raw in BYTES], "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
        "json": ['{"a":  1.0, "a": "1"}', '"x"', "null"], "jsonb": ['{"b": 1.50}', '"null"'],
        "inet": ["1.2.3.4", "::1/64"], "cidr": ["10.0.0.0/8"], "macaddr": ["08:00:2b:01:02:03"], "money": ["-1.50"],
        "bit(3)": ["101"], "varbit": ["", "1"], "point": ["(0.1,-0)"], "path": ["[(0,0),(1,1)]"], "circle": ["<(0,0),1>"],
        "int4range": ["[1,5)", "empty"], "tstzrange": ['["0044-03-15 BC",infinity)'], "tsmultirange": ["{}", "{[2024-01-01,)}"],
        "oid": ["4294967295"], "pg_lsn": ["16/B374D848"], "tsvector": ["'a':1A"], "tsquery": ["'a' & !'b'"],
        "int[]": ["{1,NULL}", "{}", "{{1,2},{3,4}}", "[0:1]={1,2}"], "numeric[]": ["{1.50,NaN}"], "date[]": ["{infinity}"],
        "text[]": ['{"","NULL",NULL,"a\\"b"}'], "timestamptz[]": ['{"0044-03-15 00:00:00+00 BC",-infinity}'],
        "mood": ["a b"], "mood[]": ['{"a b"}'], "pair": ['(1,"x y")', "(,)"], "digits": ["1.50"],
    }  # fmt: skip


def run_database(matrix: Matrix) -> None:
    """Load a table of all types by each way, divided by a column, and into a table that the load creates."""
    generated = values(Random(matrix.seed))
    # The first two types are needed below.
    chosen = {kind: generated[kind] for kind in matrix.taken([*generated], keep=2)}
    names = {kind: f"c{number}" for number, kind in enumerate(chosen)}
    columns = ", ".join(f"{name} {kind}" for kind, name in names.items())
    matrix.execute(f"{TYPES}; CREATE TABLE there (id int, {columns})")
    for kind, some in chosen.items():
        matrix.orc.connection.execute(
            f"INSERT INTO there (id, {names[kind]}) SELECT n, v::{kind}"  # noqa: S608 - our own names
            " FROM unnest(%s::text[]) WITH ORDINALITY AS t (v, n)".encode(),
            [some],
        )
    info = matrix.orc.connection.info
    url = f"jdbc:postgresql://127.0.0.1:{info.port}/{info.dbname}?user={info.user}"
    if info.password:
        url += f"&password={info.password}"

    def make(name: str) -> None:
        matrix.execute(f"DROP TABLE IF EXISTS {name}; CREATE TABLE {name} (LIKE there)")

    whole = {"dbtable": "there"}
    listed = ["id", *names.values()]
    load_by_all(matrix, url, make, listed, "JDBC", {**chosen}, options=whole)
    matrix.same("JDBC", "there", "plain")
    number = sum(map(len, chosen.values()))
    divided = {"query": "SELECT * FROM there", "partitionColumn": names["timestamp"]}
    divided |= {"numPartitions": "3", "lowerBound": "1900-01-01 00:00:00"}
    divided |= {"upperBound": "2100-01-01 00:00:00"}
    for path, create, options in matrix.taken(
        [("JDBC, divided", False, divided), ("JDBC, --create", True, whole)]
    ):
        make("other")
        if create:
            matrix.execute("DROP TABLE other")
        matrix.orc.load(url, "other", options=options, create=create, spark=matrix.spark)
        matrix.same(path, "there", "other")
        matrix.went(path, chosen, number)
    try:
        matrix.execute("DROP TABLE other")
        expression = f"{names['numeric(8,2)']} + 1 AS sum"
        matrix.orc.load(
            url, "other", options=whole, select=expression, create=True, spark=matrix.spark
        )
    except LoadError as error:
        if "cannot compute with the value NaN as decimal(8,2)" not in str(error):
            matrix.differs("JDBC, computed", "message", str(error), "cannot compute with NaN")
    else:
        matrix.differs("JDBC, computed", "NaN + 1", "loaded", "refused")
