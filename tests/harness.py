"""Throw-away PostgreSQL servers for tests, and databases in them that cost milliseconds."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import itertools
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg
import testing.postgresql
from psycopg import sql
from psycopg.conninfo import make_conninfo

from orchestrator.errors import ServerError
from orchestrator.server import Installation, find
from orchestrator.server.paths import cache_directory
from orchestrator.server.unprivileged import reachable, run_as, server_account

VERSIONS = (18, 17, 16, 15)
"""The PostgreSQL versions that idivm is tested on where they are found, the one for everything first."""

_INITDB = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--lc-ctype=C.UTF-8")
_FAST = (
    "-h 127.0.0.1 -F -c logging_collector=off -c synchronous_commit=off -c full_page_writes=off "
    "-c shared_buffers=64MB -c max_prepared_transactions=10 -c wal_level=minimal "
    "-c max_wal_senders=0 -c jit=off"
)
SURE = f"{_FAST} -c synchronous_commit=on -c wal_level=replica"
"""For servers that are killed: what was committed before is there afterwards. With wal_level=minimal
PostgreSQL loses the indexes of unlogged tables in a database that was copied from a template."""

_ROOM = 8 << 30
"""Bytes of memory that have to be free for servers' data to be kept there."""

# What runs below a folder is stopped and removed once the write end of this pipe is closed, in
# whatever way the process that holds it came to its end.
_JANITOR = """
cat >/dev/null
find "$1" -name postmaster.pid -exec sh -c 'kill -QUIT "$(head -n 1 "$1")"' sh {} ';'
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    chmod -R u+rwX "$1"; rm -rf "$1" && break
    sleep 1
done
"""


@functools.cache
def found_versions() -> Mapping[int, Installation]:
    """Those of the tested versions that this machine has, the preferred one first."""
    installations = {}
    for version in VERSIONS:
        try:
            installations[version] = find(version)
        except ServerError:
            continue
    return installations


def _place() -> Path:
    """In memory where there is room: a database is hundreds of files, and each test has its own."""
    memory = Path("/dev/shm")
    try:
        known = Path("/proc/meminfo").read_text()
        available = int(known.partition("MemAvailable:")[2].split()[0]) * 1024
        room = min(available, shutil.disk_usage(memory).free)
    except (OSError, ValueError, IndexError):
        room = 0
    return memory if room >= _ROOM else Path("/tmp")


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that servers' users may enter; nothing in it survives this process."""
    folder = Path(tempfile.mkdtemp(prefix="idivm-test-", dir=_place()))
    folder.chmod(0o755)
    janitor = subprocess.Popen(
        ["/bin/sh", "-c", _JANITOR, "sh", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield folder
    finally:
        assert janitor.stdin is not None
        janitor.stdin.close()
        janitor.wait()


class TestServer(testing.postgresql.Postgresql):  # type: ignore[misc]
    """A server of one version, run as an ordinary user, over a copy of a cached cluster."""

    __test__ = False
    DEFAULT_BOOT_TIMEOUT = 60.0

    def __init__(self, installation: Installation, folder: Path, arguments: str = _FAST) -> None:
        self.version = installation.version
        self.account = server_account()
        self.installation = reachable(installation, self.account)
        self._numbers = itertools.count(1)
        self._template: str | None = None
        folder.mkdir()
        self.account.own(folder)
        wrapped = {name: str(self._wrapper(folder, name)) for name in ("initdb", "postgres")}
        super().__init__(base_dir=str(folder), postgres_args=arguments, boot_timeout=120, **wrapped)

    def setup(self) -> None:
        """Makes the cluster, as the user that will run it."""
        self.make(Path(self.base_dir, "data"))
        self.run("mkdir", f"{self.base_dir}/tmp")

    def make(self, data: Path) -> None:
        """Copies the cached cluster."""
        self.run("cp", "-R", str(_template_cluster(self.installation)), str(data))

    def run(self, *command: str) -> str:
        """Runs a command as the server's user."""
        done = run_as(self.account, command, cwd=self.base_dir)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def restore(self, dsn: str, restored: str, *options: str) -> None:
        """Restore a dump of a database into another one, of which any error is an error of the test."""
        dump, psql = map(self.installation.program, ("pg_dump", "psql"))
        dumped = subprocess.run([dump, *options, dsn], capture_output=True, check=True)
        done = subprocess.run(
            [psql, "-qX", "-v", "ON_ERROR_STOP=1", restored],
            input=dumped.stdout,
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr.decode()

    def kill(self) -> None:
        """Ends the server as a failure of power does, but for what the system has yet to write."""
        os.kill(self.child_process.pid, signal.SIGKILL)
        self.child_process.wait()

    def restart(self) -> None:
        """Starts it again after `kill`, once the sessions of the old one have noticed."""
        for _ in range(600):
            self.child_process = None
            try:
                self.start()
            except RuntimeError:
                # They still hold the shared memory.
                time.sleep(0.1)
                continue
            return
        raise AssertionError("the server does not start again")

    def conninfo(self, database: str) -> str:
        """The connection string of a database, as superuser over the server's socket."""
        return make_conninfo(
            host=f"{self.base_dir}/tmp",
            port=self.settings["port"],
            user="postgres",
            dbname=database,
        )

    @contextmanager
    def database(self, *, migrated: bool) -> Iterator[str]:
        """A fresh database, with or without idivm's catalog; yields its connection string."""
        template = self._migrated() if migrated else "template1"
        name = f"test_{next(self._numbers)}"
        self._admin(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        try:
            yield self.conninfo(name)
        finally:
            self._end_prepared(name)
            self._admin(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
            )

    def _end_prepared(self, name: str) -> None:
        """Rolls back what a failed test has left, for which later tests on this server would wait."""
        left = "SELECT gid FROM pg_prepared_xacts WHERE database = %s"
        with psycopg.connect(self.conninfo("postgres"), autocommit=True) as connection:
            prepared = connection.execute(left, [name]).fetchall()
        for (gid,) in prepared:
            with psycopg.connect(self.conninfo(name), autocommit=True) as connection:
                connection.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))

    def _migrated(self) -> str:
        if self._template is None:
            from orchestrator.runtime.migrate import migrate

            name = "idivm_template"
            self._admin(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            with psycopg.connect(self.conninfo(name), autocommit=True) as connection:
                migrate(connection)
            self._template = name
        return self._template

    def _admin(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.conninfo("postgres"), autocommit=True) as connection:
            connection.execute(statement)

    def _wrapper(self, folder: Path, name: str) -> Path:
        command = [
            sys.executable,
            "-m",
            "orchestrator.server.unprivileged",
            self.installation.program(name),
        ]
        wrapper = folder / name
        wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        wrapper.chmod(0o755)
        return wrapper


def find_module(conninfo: str, folder: Path) -> None:
    """Lets new connections to a database find modules in a folder."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(
            sql.SQL("ALTER DATABASE {} SET dynamic_library_path = {}").format(
                sql.Identifier(connection.info.dbname), f"{folder}:$libdir"
            )
        )


def _template_cluster(installation: Installation) -> Path:
    """A cluster made once for each build of PostgreSQL and kept between test runs."""
    account = server_account()
    version = run_as(account, [installation.program("postgres"), "--version"]).stdout
    key = hashlib.sha256(f"{version}{_INITDB}".encode()).hexdigest()[:12]
    folder = cache_directory() / "test-clusters"
    folder.mkdir(parents=True, exist_ok=True)
    template = folder / f"{installation.version}-{key}"
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not template.is_dir():
            staging = Path(tempfile.mkdtemp(dir=folder))
            account.own(staging)
            initdb = [installation.program("initdb"), "--no-sync", "--wal-segsize=1", *_INITDB]
            try:
                done = run_as(account, [*initdb, "-D", str(staging)])
                assert done.returncode == 0, done.stdout
                staging.rename(template)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    finally:
        os.close(lock)
    return template
