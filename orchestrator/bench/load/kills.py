"""Kill the driver or executors of loads at random moments; check for missing rows and leftovers.

The source is a table that the executors read by JDBC, so the workers need no shared folder.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from psycopg import Connection
from psycopg.sql import SQL

from orchestrator.bench.load.cluster import Cluster, family
from orchestrator.bench.measure import machine
from orchestrator.bench.report import Bar, Report
from orchestrator.errors import ServerError
from orchestrator.runtime.migrate import migrate

MOMENTS = {
    "start": "SELECT count(*) > 0 FROM idivm.loads WHERE status = 'loading'",
    "copying": "SELECT count(*) > 0 FROM pg_stat_progress_copy",
    "end": "SELECT count(*) > 0 FROM pg_stat_activity WHERE state = 'active'"
    ' AND pid <> pg_backend_pid() AND query LIKE \'INSERT INTO "public"."t"%\'',
}
"""The moments at which a process is killed, each with a query that tells when it has come."""
WEIGHTS = {"start": 1, "copying": 2, "end": 2}
VICTIMS = ("driver", "driver and its Java", "executor", "all executors")
_PARTS = 8
_PATIENCE = 300


def run_kills(
    dsn: str, *, kills: int, rows: int, seed: int, url: str, say: Callable[[str], None]
) -> Report:
    """Kill `kills` loads on a cluster of two workers, and repeat each command until it completes."""
    chosen = random.Random(seed)
    counted: Counter[tuple[str, str]] = Counter()
    wrong = left = 0
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        psycopg.connect(dsn, autocommit=True) as connection,
    ):
        folder = Path(name)
        (temporary := folder / "temporary").mkdir()
        migrate(connection)
        connection.execute("DROP TABLE IF EXISTS t, source")
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        connection.execute(
            SQL(
                "CREATE TABLE source AS SELECT a, 'row ' || a AS b FROM generate_series(0, {}) AS a"
            ).format(rows - 1)
        )
        cluster = Cluster(folder)
        try:
            for number in range(kills):
                moment = chosen.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
                victim = chosen.choice(VICTIMS)
                say(f"kill {number + 1} of {kills}: {victim}, {moment}")
                command = _command(dsn, url, cluster.master, rows, number)
                environment = {**os.environ, "TMPDIR": str(temporary)}
                connection.execute("TRUNCATE t")
                met = _kill(connection, cluster, command, environment, moment, victim, chosen)
                counted[moment if met else "missed", victim] += 1
                _complete(connection, cluster, command, environment)
                wrong += not _right(connection, rows)
                left += left_over(connection) + len(list(temporary.glob("idivm-spark-*")))
        finally:
            cluster.stop()
        described = machine(connection)
    report_rows = tuple(
        {"moment": moment, "killed": victim, "times": times}
        for (moment, victim), times in sorted(counted.items())
    )
    return Report(
        "load",
        described,
        report_rows,
        (
            Bar("loads that did not end with each row once", wrong, "<=", 0),
            Bar("tables, parts and folders left over", left, "<=", 0),
            *(
                Bar(
                    f"kills at the moment: {moment}",
                    _at(counted, moment),
                    ">=",
                    share * kills // 60,
                )
                for moment, share in (("copying", 15), ("end", 10))
            ),
        ),
    )


def _at(counted: Counter[tuple[str, str]], moment: str) -> int:
    return sum(times for (when, _), times in counted.items() if when == moment)


def _command(dsn: str, url: str, master: str, rows: int, number: int) -> list[str]:
    # Each load needs a different command, because a completed load is not repeated.
    query = f"SELECT * FROM source WHERE {number} = {number}"  # noqa: S608 - numbers
    options = {
        "query": query,
        "partitionColumn": "a",
        "lowerBound": "0",
        "upperBound": str(rows),
        "numPartitions": str(_PARTS),
    }
    return [
        *(sys.executable, "-m", "orchestrator.cli.main", "load", "--dsn", dsn, url),
        *("--format", "jdbc", "--into", "t", "--master", master),
        *(part for name, value in options.items() for part in ("--options", f"{name}={value}")),
        *("--config", "spark.driver.memory=1g", "--config", "spark.executor.memory=512m"),
        *("--config", "spark.driver.host=127.0.0.1"),
    ]


def _kill(
    connection: Connection[Any],
    cluster: Cluster,
    command: list[str],
    environment: dict[str, str],
    moment: str,
    victim: str,
    chosen: random.Random,
) -> bool:
    """Run a load and kill a process at a moment; return whether the moment came."""
    with cluster.started.start(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as driver:
        while connection.execute(MOMENTS[moment].encode()).fetchone() != (True,):
            if driver.poll() is not None:
                return False
            time.sleep(0.005)
        time.sleep(chosen.random() * (3 if moment == "start" else 0.2))
        if victim.startswith("driver"):
            killed = [driver.pid, *(family(driver.pid) if victim != "driver" else ())]
        else:
            killed = cluster.executors()
            killed = killed if victim == "all executors" else killed[-1:]
        for pid in killed:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        driver.wait(_PATIENCE)
    return True


def _complete(
    connection: Connection[Any], cluster: Cluster, command: list[str], environment: dict[str, str]
) -> None:
    """Repeat the command, as a user would, until it succeeds."""
    for _ in range(4):
        _await_end(connection)
        with cluster.started.start(
            [*command, "--resume"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as again:
            _, errors = again.communicate()
        if again.returncode == 0:
            return
    raise ServerError(f"The load did not end after four runs: {errors.strip()}")


def _await_end(connection: Connection[Any]) -> None:
    """Wait until the server has noticed that a driver and its tasks are gone."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'idivm%'"
            " AND datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
        if row == (0,):
            return
        time.sleep(0.1)


def _right(connection: Connection[Any], rows: int) -> bool:
    row = connection.execute("SELECT count(*), count(DISTINCT a), sum(a) FROM t").fetchone()
    return row == (rows, rows, rows * (rows - 1) // 2)


def left_over(connection: Connection[Any]) -> int:
    """Return the number of staging tables, parts and unfinished loads."""
    row = connection.execute(
        "SELECT (SELECT count(*) FROM pg_class WHERE relkind = 'r'"
        "  AND relnamespace = to_regnamespace('idivm_load'))"
        " + (SELECT count(*) FROM idivm.load_parts)"
        " + (SELECT count(*) FROM idivm.loads WHERE status = 'loading')"
    ).fetchone()
    assert row is not None
    return int(row[0])
