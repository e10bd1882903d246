"""Measuring side by side: paired runs, buffers touched, the machine, a server that commits durably."""

from __future__ import annotations

import math
import os
import platform
import secrets
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg import Connection

from orchestrator.api import accelerate
from orchestrator.errors import ServerError, UsageError
from orchestrator.server import EmbeddedServer, find
from orchestrator.server.paths import cache_directory

_SETTINGS = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "wal_level",
    "data_checksums",
    "shared_buffers",
    "work_mem",
    "max_wal_size",
    "max_parallel_workers_per_gather",
    "random_page_cost",
    "jit",
    "autovacuum",
)


STEADY = {"max_wal_size": "8GB", "checkpoint_timeout": "1h", "autovacuum": "off"}
"""Settings that keep the server's own chores out of short measurements."""


@dataclass(frozen=True)
class Paired:
    """What two sides measured in turn; the runs of one number were neighbours in time."""

    a: tuple[float, ...]
    b: tuple[float, ...]

    @property
    def medians(self) -> tuple[float, float]:
        """The median of each side."""
        return statistics.median(self.a), statistics.median(self.b)

    @property
    def ratio(self) -> float:
        """The median, over the pairs, of b to a: what drifts slowly cancels within a pair.

        >>> Paired((1.0, 2.0, 4.0), (2.0, 4.0, 12.0)).ratio
        2.0
        """
        return statistics.median(b / a for a, b in zip(self.a, self.b, strict=True))

    @property
    def spread(self) -> tuple[float, float]:
        """The smallest and the largest ratio of a pair."""
        ratios = [b / a for a, b in zip(self.a, self.b, strict=True)]
        return min(ratios), max(ratios)


def alternate(
    a: Callable[[], float], b: Callable[[], float], repeat: int, warm_up: int = 1
) -> Paired:
    """Runs two measurements in turn, a b, b a, a b, ..., after runs that do not count.

    >>> order = []
    >>> def side(name):
    ...     return lambda: order.append(name) or 1.0
    >>> alternate(side("a"), side("b"), repeat=2, warm_up=0)
    Paired(a=(1.0, 1.0), b=(1.0, 1.0))
    >>> order
    ['a', 'b', 'b', 'a']
    """
    return Paired(*in_turn((a, b), repeat, warm_up))


def in_turn(
    sides: Sequence[Callable[[], float]], repeat: int, warm_up: int = 1
) -> tuple[tuple[float, ...], ...]:
    """The same for any number of sides: forwards, backwards, forwards, ...; gives the runs of each.

    >>> in_turn((lambda: 1.0, lambda: 2.0, lambda: 3.0), repeat=2)
    ((1.0, 1.0), (2.0, 2.0), (3.0, 3.0))
    """
    if repeat < 1:
        raise UsageError(
            "A measurement needs at least one run of each side; give --repeat 1 or more."
        )
    measured: tuple[list[float], ...] = tuple([] for _ in sides)
    for number in range(warm_up + repeat):
        forwards = (number - warm_up) % 2 == 0
        for side in range(len(sides)) if forwards else reversed(range(len(sides))):
            value = sides[side]()
            if number >= warm_up:
                measured[side].append(value)
    return tuple(map(tuple, measured))


def timed(action: Callable[[], object]) -> float:
    """How long an action takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def geometric_mean(values: Sequence[float]) -> float:
    """The mean of ratios.

    >>> geometric_mean([2.0, 8.0])
    4.0
    """
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The exponent with which values grow, fitted to (size, value).

    >>> slope([(10, 5), (100, 50), (1000, 500)]), slope([(10, 5), (100, 5)])
    (1.0, 0.0)
    """
    logs = [(math.log(x), math.log(y)) for x, y in points]
    x_mean, y_mean = (sum(side) / len(logs) for side in zip(*logs, strict=True))
    across: float = sum((x - x_mean) * (y - y_mean) for x, y in logs)
    spread: float = sum((x - x_mean) ** 2 for x, _ in logs)
    return round(across / spread, 4)


@dataclass(frozen=True)
class Execution:
    """What EXPLAIN (ANALYZE, BUFFERS, WAL) says of a statement."""

    milliseconds: float
    buffers: int
    """Pages touched, found in memory or read; the same on every machine."""
    dirtied: int
    wal_records: int
    wal_bytes: int
    read: int
    """Those of the pages touched that PostgreSQL had to ask the system for."""


_WRAPPER = """
    CREATE FUNCTION pg_temp.measured(statement text) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE statement;
    END $$
"""


def prepare_explained(connection: Connection[Any]) -> None:
    """Makes what `explained` needs in this session, so that its first call writes nothing else."""
    known = connection.execute("SELECT to_regprocedure('pg_temp.measured(text)')").fetchone()
    if known == (None,):
        connection.execute(_WRAPPER)


def explained(connection: Connection[Any], statement: str) -> Execution:
    """Executes a statement and tells what it did in the server, its triggers included.

    EXPLAIN leaves out what AFTER triggers do, unless the statement runs inside another.
    """
    prepare_explained(connection)
    row = connection.execute(
        "EXPLAIN (ANALYZE, BUFFERS, WAL, FORMAT JSON) SELECT pg_temp.measured(%s)",
        [statement],
    ).fetchone()
    assert row is not None
    top = row[0][0]
    plan = top["Plan"]
    return Execution(
        milliseconds=top["Execution Time"],
        buffers=plan["Shared Hit Blocks"] + plan["Shared Read Blocks"],
        dirtied=plan["Shared Dirtied Blocks"],
        wal_records=plan["WAL Records"],
        wal_bytes=plan["WAL Bytes"],
        read=plan["Shared Read Blocks"],
    )


def machine(connection: Connection[Any]) -> dict[str, str]:
    """The machine and the server as far as they bear on measurements."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    version = connection.execute("SELECT version()").fetchone()
    assert version is not None
    settings = connection.execute(
        "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY (%s) ORDER BY name",
        [list(_SETTINGS)],
    ).fetchall()
    return {
        "cpu": _cpu_model(),
        "cores": str(
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        ),
        "load before": f"{os.getloadavg()[0]:.1f}",
        "memory": f"{memory / 2**30:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "server": str(version[0]),
        **dict(settings),
    }


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith(("model name", "Model")):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def require_durable_commits(connection: Connection[Any]) -> None:
    """Refuses a server whose commits do not wait for the disk: there, everything else looks dear."""
    for name in ("fsync", "synchronous_commit"):
        row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
        if row is None or row[0] == "off":
            raise UsageError(
                f"This measurement needs durable commits, and {name} is off on this server: "
                "set it on, or leave --dsn out to measure on a server of its own."
            )


@contextmanager
def durable_server(version: int | None = None) -> Iterator[str]:
    """A fresh server of its own, with PostgreSQL's durable commits; gone with all data afterwards."""
    with own_server(version) as server:
        yield server.up().dsn


def in_c_or_say(
    server: EmbeddedServer, otherwise: str, say: Callable[[str], None], database: str | None = None
) -> None:
    """Has an own server use the forms in C; where they cannot be built, says why, and what follows."""
    try:
        accelerate(server, database)
    except ServerError as error:
        say(f"{error} {otherwise}\n")


@contextmanager
def own_server(
    version: int | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[EmbeddedServer]:
    """The same as a server that can be restarted, with settings of PostgreSQL changed.

    A process of its own takes it away once this one has let go of it, in whatever way it ended.
    """
    installation = find(version)
    folder = cache_directory()
    folder.mkdir(parents=True, exist_ok=True)
    home = folder / f"bench-{secrets.token_hex(4)}"
    janitor = subprocess.Popen(
        [sys.executable, "-m", "orchestrator.bench.measure", home],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        with _environment("IDIVM_PG_BIN", str(installation.bindir)):
            server = EmbeddedServer(home)
            server.up()
            if settings:
                server.down()
                with (server.data / "postgresql.conf").open("a") as configuration:
                    configuration.writelines(f"{k} = '{v}'\n" for k, v in settings.items())
                server.up()
        yield server
    finally:
        janitor.communicate()


def restart_cold(server: EmbeddedServer) -> str:
    """Restarts a server so that its data lies on the disk alone, and gives its connection string.

    Nobody needs rights to make the system forget files of one's own; where it knows no such call,
    only PostgreSQL's own memory is empty.
    """
    server.down()
    if hasattr(os, "posix_fadvise"):
        for path in server.data.rglob("*"):
            if path.is_file():
                file = os.open(path, os.O_RDONLY)
                try:
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(file)
    return server.up().dsn


def _take_away(home: Path) -> None:
    """Waits for the end of the input, then stops the server in a folder and removes the folder."""
    sys.stdin.read()
    EmbeddedServer(home).down()
    for mounted in filter(os.path.ismount, home.glob("*")):
        subprocess.run(["umount", "--lazy", mounted], check=False)
    shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


if __name__ == "__main__":
    _take_away(Path(sys.argv[1]))
