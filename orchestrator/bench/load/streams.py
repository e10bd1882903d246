"""Measure streams beside bulk loads, and kill streams at random moments.

A killed stream is started again, as a service manager would. At the end, each row of each file must be in the
table once, and nothing may be left over.
"""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from orchestrator.api import connect
from orchestrator.bench.load.cluster import Cluster, family
from orchestrator.bench.load.kills import MOMENTS, WEIGHTS, left_over
from orchestrator.bench.measure import alternate, machine, own_server
from orchestrator.bench.report import Bar, Report
from orchestrator.errors import IdivmError, ServerError
from orchestrator.server import EmbeddedServer

OF_BULK_AT_LEAST = 0.5
FILES, BATCHES = 20, 5
_PATIENCE = 300
_AHEAD = 3
"""The files that wait for the next batches while streams are killed."""


@dataclass(frozen=True)
class Kind:
    """A way to run a stream, and what of it can be killed."""

    table: str
    format: str
    by_spark: bool
    share: int
    victims: tuple[str, ...]


KINDS = (
    Kind("by_threads", "csv", False, 6, ("driver", "server", "session")),
    Kind(
        *("by_tasks", "json", True, 3),
        ("driver", "driver and its Java", "Java", "executor", "all executors", "server"),
    ),
    Kind(
        *("structured", "text", True, 3),
        ("driver", "driver and its Java", "Java", "executor", "all executors", "server"),
    ),
)


def measure_streams(
    load: Callable[..., Callable[[], float]],
    stream: Callable[..., Callable[[], float]],
    csv: Path,
    repeat: int,
) -> Iterator[tuple[str, float, float]]:
    """Yield the name of each kind of stream, its seconds, and its rate divided by that of a bulk load."""
    folder = csv.parent / "arrived"
    folder.mkdir()
    _split(csv, folder, FILES)
    pair = alternate(
        stream(folder, format="csv", most_files=FILES // BATCHES),
        load(folder, format="csv"),
        repeat,
    )
    yield "idivm load --stream, CSV", pair.medians[0], pair.ratio


def _split(csv: Path, folder: Path, parts: int) -> None:
    """Write a CSV file as several files with its header."""
    share = csv.stat().st_size // parts + 1
    with csv.open() as lines:
        header = lines.readline()
        for number in range(parts):
            with (folder / f"{number:03}.csv").open("w") as part:
                part.write(header)
                part.writelines(lines.readlines(share))


def run_stream_kills(
    *, kills: int, rows: int, seed: int, pg: int | None, say: Callable[[str], None]
) -> Report:
    """Kill streams and the server at least `kills` times, with files of `rows` rows; check the tables at the end."""
    chance = random.Random(seed)
    counted: Counter[tuple[str, str]] = Counter()
    wrong = left = 0
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        own_server(pg) as server,
    ):
        folder = Path(name)
        cluster = Cluster(folder)
        try:
            for kind in KINDS:
                number = math.ceil(kills * kind.share / sum(item.share for item in KINDS))
                run = _Run(kind, server, cluster, folder / kind.table, rows, chance, say)
                run.kill(number, counted)
                wrong += not run.is_right()
                left += run.left()
        finally:
            cluster.stop()
        with psycopg.connect(server.up().dsn, autocommit=True) as connection:
            described = machine(connection)
    report_rows = tuple(
        {"stream": table, "killed": victim, "times": times}
        for (table, victim), times in sorted(counted.items())
    )
    return Report(
        "load",
        described,
        report_rows,
        (
            Bar("streams that did not load each row once", wrong, "<=", 0),
            Bar("tables, parts and folders left over", left, "<=", 0),
            Bar("kills", sum(counted.values()), ">=", kills),
        ),
    )


class _Run:
    """A stream, the files that arrive, and the kills."""

    def __init__(
        self,
        kind: Kind,
        server: EmbeddedServer,
        cluster: Cluster,
        folder: Path,
        rows: int,
        chance: random.Random,
        say: Callable[[str], None],
    ) -> None:
        self.kind, self.server, self.cluster, self.rows = kind, server, cluster, rows
        self.chance, self.say, self.files = chance, say, 0
        self.source, self.temporary = folder / "source", folder / "temporary"
        self.source.mkdir(parents=True)
        self.temporary.mkdir()
        self.environment = {**os.environ, "TMPDIR": str(self.temporary)}
        with connect(self.dsn) as orchestrator:
            statements = SQL(
                "CREATE TABLE {0} (a int, value text); CREATE VIEW {1} AS SELECT a % 10 AS k, count(*) AS n,"
                " sum(a) AS s FROM {0} GROUP BY a % 10"
            ).format(Identifier(kind.table), Identifier(f"sums_{kind.table}"))
            orchestrator.execute(statements.as_string(orchestrator.connection))

    @property
    def dsn(self) -> str:
        """The connection string of the server, which starts again if it was killed."""
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                dsn = self.server.up().dsn
                psycopg.connect(dsn).close()
                return dsn
            except (psycopg.Error, IdivmError):
                # A killed process may look alive for a moment, and a recovery may take long.
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def command(self) -> list[str]:
        """Return the command that runs the stream."""
        kind = self.kind
        command = [
            *(sys.executable, "-m", "orchestrator.cli.main", "load", "--stream", "--dsn", self.dsn),
            *(
                str(self.source),
                "--into",
                kind.table,
                "--name",
                kind.table,
                "--format",
                kind.format,
            ),
            *("--interval", "50ms", "--max-files", "1"),
        ]
        if kind.by_spark:
            command += [
                *("--master", self.cluster.master, "--config", "spark.driver.memory=1g"),
                *("--config", "spark.executor.memory=512m"),
                *("--config", "spark.driver.host=127.0.0.1"),
            ]
        if kind.format == "text":
            command += ["--select", "cast(split(value, ',')[0] as int) as a, value"]
        return command

    def start(self) -> subprocess.Popen[bytes]:
        """Start the stream."""
        return self.cluster.started.start(
            self.command(),
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def write(self) -> None:
        """Write the next file, whole."""
        first = self.files * self.rows
        numbers = range(first, first + self.rows)
        if self.kind.format == "json":
            texts = [f'{{"a": {n}, "value": "row {n}"}}\n' for n in numbers]
        else:
            header = ["a,value\n"] if self.kind.format == "csv" else []
            texts = [*header, *(f"{n},row {n}\n" for n in numbers)]
        path = self.source / f"_{self.files:06}.{self.kind.format}"
        path.write_text("".join(texts))
        path.rename(path.with_name(path.name[1:]))
        self.files += 1

    def kill(self, kills: int, counted: Counter[tuple[str, str]]) -> None:
        """Kill parts of the stream while files arrive, and let it end."""
        process = self.start()
        try:
            for number in range(kills):
                victim = self.chance.choice(self.kind.victims)
                moment = self.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
                self.say(f"{self.kind.table}: kill {number + 1} of {kills}: {victim}, {moment}")
                process = self._until(moment, process)
                time.sleep(self.chance.random() * 0.1)
                self._kill(victim, process)
                counted[self.kind.table, victim] += 1
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE)
            for pid in [*family(process.pid), process.pid]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.write()
        for _ in range(4):
            done = subprocess.run(
                [*self.command(), "--once"], env=self.environment, capture_output=True, text=True
            )
            if done.returncode == 0:
                return
        raise ServerError(f"The stream did not end after four runs: {done.stderr.strip()}")

    def _until(self, moment: str, process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """Write files and keep the stream running until the moment comes in one of its batches."""
        until = time.monotonic() + _PATIENCE
        query = MOMENTS[moment].replace('"t"', f'"{self.kind.table}"')
        while time.monotonic() < until:
            try:
                with psycopg.connect(self.dsn, autocommit=True) as connection:
                    while time.monotonic() < until:
                        if process.poll() is not None:
                            process = self.start()
                        if connection.execute(query.encode()).fetchone() == (True,):
                            return process
                        if self.files - self._loaded(connection) < _AHEAD:
                            self.write()
                        time.sleep(0.002)
            except psycopg.Error:
                continue
        raise ServerError(f"The stream into {self.kind.table} loads nothing.")

    def _loaded(self, connection: psycopg.Connection[Any]) -> int:
        row = connection.execute(
            "SELECT rows / %s FROM idivm.streams WHERE name = %s", [self.rows, self.kind.table]
        ).fetchone()
        return int(row[0]) if row else 0

    def _kill(self, victim: str, process: subprocess.Popen[bytes]) -> None:
        children = family(process.pid)
        if victim == "server":
            endpoint = self.server.status().endpoint
            pids = [endpoint.pid] if endpoint else []
        elif victim == "session":
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
                    " AND classid = 1768187767 AND pid <> pg_backend_pid()"
                )
            return
        elif victim == "Java":
            pids = children
        elif victim.startswith("driver"):
            pids = [process.pid, *(children if victim != "driver" else ())]
        else:
            executors = self.cluster.executors()
            pids = executors if victim == "all executors" else executors[-1:]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if victim.startswith("driver"):
            process.wait(_PATIENCE)

    def is_right(self) -> bool:
        """Return whether each row is in the table once, and whether the view is right."""
        expected = self.files * self.rows
        with connect(self.dsn) as orchestrator:
            row = orchestrator.connection.execute(
                SQL("SELECT count(*), count(DISTINCT a), sum(a) FROM {}").format(
                    Identifier(self.kind.table)
                )
            ).fetchone()
            equal = all(report.equal for report in orchestrator.check(f"sums_{self.kind.table}"))
        self.say(f"{self.kind.table}: {row} of {expected:,} rows")
        return equal and row == (expected, expected, expected * (expected - 1) // 2)

    def left(self) -> int:
        """Return the number of staging tables, parts, loads and folders that are left over."""
        with psycopg.connect(self.dsn) as connection:
            return left_over(connection) + len(list(self.temporary.glob("idivm-spark-*")))
