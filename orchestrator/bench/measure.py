"""Measure sides in turn: paired runs, buffers touched, the machine, a server with durable commits."""

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

import psycopg
from psycopg import Connection, sql
from psycopg.conninfo import make_conninfo

from orchestrator.api import accelerate
from orchestrator.errors import ServerError, UsageError
from orchestrator.server import EmbeddedServer, find
from orchestrator.server.cluster import NAME
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
"""Settings that keep background work of the server out of short measurements."""

COLD_MEMORY = "16MB"
"""The shared_buffers of PostgreSQL in a cold run."""


@dataclass(frozen=True)
class Paired:
    """The measurements of two sides in turn; runs with the same number are neighbors in time."""

    a: tuple[float, ...]
    b: tuple[float, ...]

    @property
    def medians(self) -> tuple[float, float]:
        """The median of each side."""
        return statistics.median(self.a), statistics.median(self.b)

    @property
    def ratio(self) -> float:
        """The median ratio of b to a over the pairs; slow drift cancels within a pair.

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
    """Run two measurements in turn (a b, b a, a b, ...), after warm-up runs that do not count.

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
    """Run any number of sides in turn (forwards, backwards, forwards, ...); return their runs.

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
    """Return the seconds that an action takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of ratios.

    >>> geometric_mean([2.0, 8.0])
    4.0
    """
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the exponent with which values grow, fitted to pairs (size, value).

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
    """The figures of EXPLAIN (ANALYZE, BUFFERS, WAL) for a statement."""

    milliseconds: float
    buffers: int
    """Pages touched, whether found in memory or read; the number is the same on every machine."""
    dirtied: int
    wal_records: int
    wal_bytes: int
    read: int
    """The touched pages that PostgreSQL had to read from the system."""


_WRAPPER = """
    CREATE FUNCTION pg_temp.measured(statement text) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE statement;
    END $$
"""


def prepare_explained(connection: Connection[Any]) -> None:
    """Create the function that `explained` needs, so that its first call writes nothing else."""
    known = connection.execute("SELECT to_regprocedure('pg_temp.measured(text)')").fetchone()
    if known == (None,):
        connection.execute(_WRAPPER)


def explained(connection: Connection[Any], statement: str) -> Execution:
    """Execute a statement and return its work in the server, including triggers.

    EXPLAIN only counts the work of AFTER triggers if the statement runs inside another statement.
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


def states_touched(connection: Connection[Any]) -> int:
    """Return the buffers of states that this transaction has touched so far."""
    row = connection.execute(
        "SELECT coalesce(sum(pg_stat_get_xact_blocks_fetched(oid)), 0)::bigint FROM pg_class"
        " WHERE relnamespace = 'idivm_state'::regnamespace"
    ).fetchone()
    assert row is not None
    return int(row[0])


def machine(connection: Connection[Any]) -> dict[str, str]:
    """Return the facts about the machine and the server that affect measurements."""
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
    """Reject a server without durable commits: everything else would look expensive there."""
    for name in ("fsync", "synchronous_commit"):
        row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
        if row is None or row[0] == "off":
            raise UsageError(
                f"This measurement needs durable commits, and {name} is off on this server: "
                "set it on, or leave --dsn out to measure on a server of its own."
            )


@contextmanager
def durable_server(version: int | None = None) -> Iterator[str]:
    """Yield the dsn of a fresh server with durable commits; remove the server afterwards."""
    with own_server(version) as server:
        yield server.up().dsn


def in_c_or_say(
    server: EmbeddedServer, otherwise: str, say: Callable[[str], None], database: str | None = None
) -> None:
    """Install the forms in C on a server; if the build fails, report why and the consequence."""
    try:
        accelerate(server, database)
    except ServerError as error:
        say(f"{error} {otherwise}\n")


def with_password(dsn: str) -> str:
    """Return the connection string with a new password, because JDBC connects over TCP."""
    password = secrets.token_hex(16)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            sql.SQL("ALTER ROLE CURRENT_USER PASSWORD {}").format(sql.Literal(password))
        )
    return make_conninfo(dsn, password=password)


@contextmanager
def own_server(
    version: int | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[EmbeddedServer]:
    """Yield a fresh server that can be restarted, with changed settings; remove it afterwards.

    A separate process removes the server after this process ends, however it ends.
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


@contextmanager
def logical_server(
    version: int | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[EmbeddedServer]:
    """Yield a fresh server on which changes can be read from the WAL."""
    with own_server(version, {**(settings or {}), **_LOGICAL}) as server:
        with psycopg.connect(server.up().superuser_dsn) as connection:
            connection.execute(sql.SQL("ALTER ROLE {} REPLICATION").format(sql.Identifier(NAME)))
        yield server


_LOGICAL = {"wal_level": "logical", "max_slot_wal_keep_size": "2GB"}


def restart_cold(server: EmbeddedServer) -> str:
    """Restart a server with empty caches; return its connection string.

    Any user may drop their own files from the system's cache. On a system without that call, only
    PostgreSQL's own memory is empty.
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
    """Wait for the end of the input, then stop the server in a folder and remove the folder."""
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
