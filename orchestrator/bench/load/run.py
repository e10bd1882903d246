"""Compare bulk loads with psql's \\copy and with Spark's own JDBC writer, in speed and memory.

The benchmark also compares the time of views' initial states by Spark and by PostgreSQL.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

if TYPE_CHECKING:
    from orchestrator.spark.streams.batches import StreamBatch

from orchestrator.api import connect
from orchestrator.bench.load.states import measure
from orchestrator.bench.measure import (
    alternate,
    durable_server,
    machine,
    require_durable_commits,
    with_password,
)
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.errors import NameTakenError, ServerError, UsageError
from orchestrator.server import installations

SCHEMA = "idivm_bench_load"
TABLE = sql.Identifier(SCHEMA, "parts")
OF_COPY_AT_LEAST = 0.6
QUARANTINE_AT_MOST = 1.3
SMALL = 200_000
"""The rows of a small load. The next constants limit its seconds beyond those of \\copy."""
WARM_AT_MOST, COLD_AT_MOST = 4.0, 8.0
OF_JDBC_AT_LEAST = 2.0
MEMORY_AT_MOST = 1.1
"""For ten times the rows, the driver may need a tenth more memory."""


@dataclass(frozen=True)
class _Bench:
    dsn: str
    rows: int
    repeat: int
    users: int
    """The BSMA users, for the initial states."""
    jdbc_jar: str | None
    master: str
    part: str | None
    say: Callable[[str], None]


def run(
    *,
    dsn: str | None = None,
    rows: int = 5_000_000,
    repeat: int = 3,
    memory_rows: int = 1_000_000,
    users: int = 10_000,
    jdbc_jar: str | None = None,
    master: str = "local[*]",
    kills: int = 0,
    stream: bool = False,
    matrix: bool = False,
    part: str | None = None,
    seed: int = 1,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Measure loads of the parts schema on its own server, or in a schema of the database at `dsn`."""
    if min(rows, repeat) < 1:
        raise UsageError("The benchmark needs --rows and --repeat of 1 or more.")
    if stream:
        if not kills or dsn is not None:
            raise UsageError(
                "--stream kills the benchmark's own server: give --kills, and neither --dsn nor IDIVM_DSN."
            )
        from orchestrator.bench.load.streams import run_stream_kills

        return run_stream_kills(kills=kills, rows=rows, seed=seed, pg=pg, say=say)
    if dsn is None:
        with durable_server(pg) as own:
            return run(
                dsn=with_password(own),
                rows=rows,
                repeat=repeat,
                memory_rows=memory_rows,
                users=users,
                jdbc_jar=jdbc_jar,
                master=master,
                kills=kills,
                matrix=matrix,
                part=part,
                seed=seed,
                say=say,
            )
    if matrix:
        from orchestrator.bench.load.matrix.run import run_matrix

        return run_matrix(dsn, seed=seed, master=master, say=say)
    if kills:
        from orchestrator.bench.load.kills import run_kills

        url, properties = jdbc_target(dsn)
        given = urlencode([(name, properties.get(name, "")) for name in ("user", "password")])
        return run_kills(dsn, kills=kills, rows=rows, seed=seed, url=f"{url}?{given}", say=say)
    from orchestrator.spark.formats.jdbc import driver_jar

    jar = jdbc_jar or driver_jar()
    bench = _Bench(dsn, rows, repeat, users, jar, master, part, say)
    with _empty_table(dsn) as described, tempfile.TemporaryDirectory() as folder:
        speeds, bars = _throughput(bench, Path(folder))
        memory: tuple[dict[str, Any], ...] = ()
        if memory_rows and part is None:
            memory, flat = _memory(bench, Path(folder), memory_rows)
            bars = (*bars, flat)
        return Report("load", described, (*speeds, *memory), bars)


def _throughput(bench: _Bench, folder: Path) -> tuple[tuple[dict[str, Any], ...], tuple[Bar, ...]]:
    from orchestrator.spark.loading.load import SETTINGS
    from orchestrator.spark.session import spark_session

    rows: list[dict[str, Any]] = []
    bars: list[Bar] = []
    csv = folder / "parts.csv"
    if bench.part != "small":
        bench.say(f"writing {bench.rows:,} rows of CSV")
        write_parts(csv, bench.rows)
        _plain(bench, csv, rows, bars)
    if bench.part != "csv":
        config = {**SETTINGS, **({"spark.jars": bench.jdbc_jar} if bench.jdbc_jar else {})}
        with spark_session(bench.master, "idivm bench load", **config) as spark:
            bars += _small(replace(bench, rows=min(bench.rows, SMALL)), folder, spark, rows)
            if bench.part != "small":
                _by_spark(bench, csv, spark, rows, bars)
    return tuple(rows), tuple(bars)


def _load(bench: _Bench, path: Path, **said: Any) -> Callable[[], float]:
    def once() -> float:
        _truncate(bench.dsn)
        bench.say(f"idivm load of {path.name} {' '.join(map(str, said))}")
        with connect(bench.dsn) as orchestrator:
            report = orchestrator.load(path, f"{SCHEMA}.parts", again=True, **said)
        _verify(bench)
        return report.seconds

    return once


def _copy(bench: _Bench, path: Path) -> Callable[[], float]:
    def once() -> float:
        _truncate(bench.dsn)
        bench.say("psql \\copy")
        return _timed(lambda: _psql_copy(bench.dsn, path))

    return once


def _plain(bench: _Bench, csv: Path, rows: list[dict[str, Any]], bars: list[Bar]) -> None:
    """Measure loads of plain CSV, which need no Spark."""
    load = partial(_load, bench)
    beside_copy = alternate(load(csv), _copy(bench, csv), bench.repeat)
    quarantine = alternate(load(csv, on_bad_row="quarantine"), load(csv), bench.repeat, warm_up=0)
    rows += [
        _row(bench, "idivm load, CSV", beside_copy.medians[0]),
        _row(bench, "idivm load, CSV, with a quarantine", quarantine.medians[0]),
        _row(bench, "psql \\copy, CSV", beside_copy.medians[1]),
    ]
    bars += [
        Bar("idivm load from CSV, rate / psql \\copy", beside_copy.ratio, ">=", OF_COPY_AT_LEAST),
        Bar("seconds with a quarantine / without", 1 / quarantine.ratio, "<=", QUARANTINE_AT_MOST),
    ]


def _by_spark(
    bench: _Bench, csv: Path, spark: Any, rows: list[dict[str, Any]], bars: list[Bar]
) -> None:
    """Measure loads by Spark's tasks, streams, Spark's JDBC writer, and initial states."""
    from orchestrator.bench.load.streams import OF_BULK_AT_LEAST, measure_streams

    load, copy = partial(_load, bench), _copy(bench, csv)
    source = spark.read.option("header", "true").schema(_SCHEMA).csv(str(csv))
    parquet = csv.with_suffix(".parquet")
    source.write.parquet(str(parquet))

    def stream(path: Path, **said: Any) -> Callable[[], float]:
        def once() -> float:
            _truncate(bench.dsn)
            bench.say(f"idivm load --stream of {path.name}")
            batches: list[StreamBatch] = []
            with connect(bench.dsn) as orchestrator:
                orchestrator.load_stream(
                    path, f"{SCHEMA}.parts", once=True, on_batch=batches.append, **said
                )
                orchestrator.remove_stream(batches[0].stream)
            _verify(bench)
            return sum(batch.report.seconds for batch in batches)

        return once

    def jdbc() -> float:
        _truncate(bench.dsn)
        bench.say("Spark's JDBC writer")
        url, properties = jdbc_target(bench.dsn)
        writer = source.write.mode("append")
        return _timed(lambda: writer.jdbc(url, f"{SCHEMA}.parts", properties=properties))

    by_spark = alternate(load(csv, spark=spark), copy, bench.repeat)
    from_parquet = alternate(load(parquet, spark=spark), copy, bench.repeat, warm_up=0)
    rows += [
        _row(bench, "idivm load, CSV, by Spark's tasks", by_spark.medians[0]),
        _row(bench, "idivm load, Parquet", from_parquet.medians[0]),
    ]
    for name, seconds, ratio in measure_streams(load, stream, csv, bench.repeat):
        rows.append(_row(bench, name, seconds))
        bars.append(Bar(f"{name}, rate / idivm load", ratio, ">=", OF_BULK_AT_LEAST))
    if bench.jdbc_jar:
        beside_jdbc = alternate(load(csv), jdbc, 1, warm_up=0)
        rows.append(_row(bench, "Spark's JDBC writer", beside_jdbc.medians[1]))
        name = "idivm load from CSV, rate / Spark's JDBC writer"
        bars.append(Bar(name, beside_jdbc.ratio, ">=", OF_JDBC_AT_LEAST))
    else:
        bench.say("no JDBC driver found (--jdbc-jar; on Debian libpostgresql-jdbc-java)")
    if bench.users:
        states, equal = measure(
            bench.dsn, spark, users=bench.users, repeat=bench.repeat, say=bench.say
        )
        rows += states
        bars.append(equal)


def _small(bench: _Bench, folder: Path, spark: Any, rows: list[dict[str, Any]]) -> Iterator[Bar]:
    """Measure small files, both in a running session and by separate commands; the slowest counts."""
    import pyspark

    from orchestrator.spark.archive import create_in_background
    from orchestrator.spark.java import find_java

    csv, parquet = folder / "small.csv", folder / "small.parquet"
    write_parts(csv, bench.rows)
    source = spark.read.option("header", "true").schema(_SCHEMA).csv(str(csv))
    source.coalesce(1).write.parquet(str(parquet))
    # A command on this machine starts Spark with an archive of classes, unless it is the first.
    if recording := create_in_background(find_java(), Path(pyspark.__file__).parent):
        bench.say("preparing the archive of Spark's classes")
        recording.wait()

    def warm(path: Path, where: str | None) -> float:
        with connect(bench.dsn) as orchestrator:
            return _timed(
                lambda: orchestrator.load(
                    path, f"{SCHEMA}.parts", again=True, where=where, spark=spark
                )
            )

    def cold(path: Path, where: str | None) -> float:
        command = [sys.executable, "-m", "orchestrator.cli.main", "load", "--dsn", bench.dsn]
        command += [str(path), "--into", f"{SCHEMA}.parts", "--again", "--master", bench.master]
        return _timed(lambda: _run([*command, *(("--where", where) if where else ())]))

    def measured(
        side: Callable[[Path, str | None], float], path: Path, where: str | None
    ) -> Callable[[], float]:
        def once() -> float:
            _truncate(bench.dsn)
            bench.say(f"idivm load of {path.name} {where or ''}, {bench.rows:,} rows")
            seconds = side(path, where)
            _verify(bench)
            return seconds

        return once

    paths = (
        ("CSV", csv, None),
        ("CSV with --where", csv, "pid >= 0"),
        ("Parquet", parquet, None),
    )
    for name, side, limit in (
        ("in a running session", warm, WARM_AT_MOST),
        ("by a command of its own", cold, COLD_AT_MOST),
    ):
        beyond = []
        for kind, path, where in paths:
            pair = alternate(measured(side, path, where), _copy(bench, csv), bench.repeat)
            beyond.append(pair.medians[0] - pair.medians[1])
            rows.append(_row(bench, f"{kind}, {name}", pair.medians[0]))
        rows.append(_row(bench, "psql \\copy, CSV", pair.medians[1]))
        text = f"{bench.rows:,} rows {name}, seconds beyond \\copy, slowest of {len(paths)} kinds"
        yield Bar(text, max(beyond), "<=", limit)


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise ServerError(f"The load failed: {done.stderr.strip().splitlines()[-1]}.")
    return done.stdout


_SCHEMA = "pid int, price decimal(10,2), name string"


def write_parts(path: Path, rows: int) -> None:
    """Write a CSV file of the parts schema: a key, a price, a name."""
    with path.open("w") as file:
        file.write("pid,price,name\n")
        for first in range(0, rows, 10_000):
            file.writelines(
                f"{n},{n * 7919 % 100_000 / 100:.2f},part {n}\n"
                for n in range(first, min(first + 10_000, rows))
            )


def _row(bench: _Bench, name: str, seconds: float) -> dict[str, Any]:
    return {
        "measured": name,
        "rows": bench.rows,
        "seconds": seconds,
        "rows/s": bench.rows / seconds,
        "driver MiB": None,
    }


@contextmanager
def _empty_table(dsn: str) -> Iterator[dict[str, str]]:
    with connect(dsn) as orchestrator:
        connection = orchestrator.connection
        require_durable_commits(connection)
        schema = sql.Identifier(SCHEMA)
        if connection.execute("SELECT to_regnamespace(%s)", [SCHEMA]).fetchone() != (None,):
            raise NameTakenError(
                f"The database has a schema {SCHEMA} already: drop it (DROP SCHEMA {SCHEMA} "
                "CASCADE) if an earlier measurement left it, or measure in another database."
            )
        try:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
            connection.execute(
                sql.SQL(
                    "CREATE TABLE {} (pid integer PRIMARY KEY, price numeric(10,2) NOT NULL,"
                    " name text NOT NULL)"
                ).format(TABLE)
            )
            yield machine(connection)
        finally:
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(schema))


def _truncate(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("TRUNCATE {}").format(TABLE))


def _verify(bench: _Bench) -> None:
    with psycopg.connect(bench.dsn) as connection:
        row = connection.execute(
            sql.SQL("SELECT count(*), sum(pid::bigint) FROM {}").format(TABLE)
        ).fetchone()
    if row != (bench.rows, bench.rows * (bench.rows - 1) // 2):
        raise ServerError(f"The load is wrong: {row} came of {bench.rows:,} rows.")


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _psql_copy(dsn: str, path: Path) -> None:
    command = f"\\copy {SCHEMA}.parts FROM '{path}' (FORMAT csv, HEADER)"
    done = subprocess.run([_psql(), "-qX", dsn, "-c", command], capture_output=True, text=True)
    if done.returncode != 0:
        raise ServerError(f"psql failed, it says: {done.stderr.strip().splitlines()[-1]}.")


def _psql() -> str:
    for installation in installations():
        if os.access(installation.program("psql"), os.X_OK):
            return installation.program("psql")
    if result := shutil.which("psql"):
        return result
    raise ServerError("psql is not found here: install it (on Debian postgresql-client).")


def jdbc_target(dsn: str) -> tuple[str, dict[str, str]]:
    """Return the URL and the properties with which Spark's JDBC writer reaches the same server.

    JDBC does not support Unix sockets, so the server must also listen on the loopback.
    """
    values = conninfo_to_dict(dsn)
    host = str(values.get("host") or "127.0.0.1")
    host = "127.0.0.1" if host.startswith("/") else host
    url = f"jdbc:postgresql://{host}:{values.get('port', 5432)}/{values.get('dbname', 'postgres')}"
    properties = {"driver": "org.postgresql.Driver", "user": str(values.get("user", ""))}
    if password := values.get("password"):
        properties["password"] = str(password)
    return url, properties


_DRIVER = """
import re, sys
from orchestrator.api import connect
with connect(sys.argv[1]) as orchestrator:
    orchestrator.load(sys.argv[2], sys.argv[3], again=True, master=sys.argv[4])
# Not getrusage: what that tells of a young process is the peak of its parent.
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


def _memory(bench: _Bench, folder: Path, rows: int) -> tuple[tuple[dict[str, Any], ...], Bar]:
    """Measure the peak memory of the driver process for `rows` rows and for ten times as many."""
    peaks, texts = [], []
    for number in (rows, 10 * rows):
        path = folder / "memory.csv"
        bench.say(f"memory of the driver, {number:,} rows")
        write_parts(path, number)
        _truncate(bench.dsn)
        command = [sys.executable, "-c", _DRIVER, bench.dsn, str(path), f"{SCHEMA}.parts"]
        started = time.perf_counter()
        peak = int(_run([*command, bench.master]))
        seconds = time.perf_counter() - started
        peaks.append(peak)
        texts.append(
            {
                "measured": "driver process, CSV, start of Spark included",
                "rows": number,
                "seconds": seconds,
                "rows/s": number / seconds,
                "driver MiB": peak / 1024,
            }
        )
    name = f"peak memory of the driver, {10 * rows:,} / {rows:,} rows"
    return tuple(texts), Bar(name, peaks[1] / peaks[0], "<=", MEMORY_AT_MOST)
