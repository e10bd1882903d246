"""A full disk at any point leaves the old or the new state, and nothing to tidy up by hand."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest
from harness import TestServer, found_versions
from psycopg import sql
from stepping import differences

import orchestrator
from orchestrator.api import Orchestrator
from orchestrator.catalog.objects import orphans
from orchestrator.errors import IdivmError
from orchestrator.runtime.diagnosis.doctor import examine
from orchestrator.runtime.migrate import migrate, shipped

MEGABYTES = 64

ROOMS = (0, *(8192 * 8**n for n in range(5)))
"""Bytes left free, more with every attempt: each comes further than the one before."""

TABLES = """
    CREATE TABLE s (k int PRIMARY KEY, name text);
    CREATE TABLE t (id int PRIMARY KEY, k int, n int);
    INSERT INTO s SELECT i, 'name ' || i FROM generate_series(0, 99) AS i;
    INSERT INTO t SELECT i, i % 100, i FROM generate_series(1, 4000) AS i
"""

WIDE = "SELECT t.id, t.n, s.name FROM t JOIN s USING (k)"
SUMS = "SELECT s.name, sum(t.n) AS total FROM t JOIN s USING (k) GROUP BY s.name"


@dataclass(frozen=True)
class Disk:
    """A small file system that databases lie on."""

    folder: Path

    def fill(self, room: int) -> None:
        """Leaves so many bytes free."""
        ballast = self.folder / "ballast"
        ballast.touch()
        while (free := shutil.disk_usage(self.folder).free - room) > 0:
            # The server may be writing, too.
            with ballast.open("ab") as file, suppress(OSError):
                os.posix_fallocate(file.fileno(), file.tell(), free)

    def clear(self) -> None:
        """Takes away what filled it."""
        (self.folder / "ballast").unlink(missing_ok=True)


@pytest.fixture(scope="module")
def own(scratch: Path) -> Iterator[TestServer]:
    version = next(iter(found_versions()))
    server = TestServer(found_versions()[version], scratch / "out_of_space")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def disk(own: TestServer) -> Iterator[Disk]:
    folder = Path(own.base_dir, "small")
    folder.mkdir()
    options = f"size={MEGABYTES}m,mode=0777"
    mount = ["mount", "-t", "tmpfs", "-o", options, "idivm-test", str(folder)]
    program = shutil.which("mount")
    done = program and subprocess.run(mount, capture_output=True, text=True)
    if not done or done.returncode != 0:
        pytest.skip("no file system can be mounted here, which takes root and the right to do so")
    try:
        own.run("mkdir", f"{folder}/data")
        with psycopg.connect(own.conninfo("postgres"), autocommit=True) as connection:
            # Its work makes room, or takes it, whenever it likes.
            connection.execute("ALTER SYSTEM SET autovacuum = off")
            connection.execute("SELECT pg_reload_conf()")
            connection.execute(
                sql.SQL("CREATE TABLESPACE small LOCATION {}").format(f"{folder}/data")
            )
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(params=[True, False], ids=["migrated", "empty"])
def database(own: TestServer, disk: Disk, request: pytest.FixtureRequest) -> Iterator[str]:
    with own.database(migrated=request.param) as dsn:
        name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
        with psycopg.connect(own.conninfo("postgres"), autocommit=True) as connection:
            connection.execute(
                sql.SQL("ALTER DATABASE {} SET TABLESPACE small").format(sql.Identifier(str(name)))
            )
        yield dsn
        disk.clear()


def attempted(disk: Disk, room: int, act: Callable[[], object]) -> bool:
    """Whether something is done with so much room; it may fail for nothing but the want of it."""
    disk.fill(room)
    try:
        act()
    except (IdivmError, psycopg.Error) as error:
        assert "No space left on device" in str(error)
        return False
    finally:
        disk.clear()
    return True


def right(orc: Orchestrator) -> None:
    """Nothing is left over, and every view is what its query answers after its next refresh."""
    assert orphans(orc.connection) == []
    orc.refresh()
    for view in orc.views():
        assert differences(orc.connection, view.name) == []
    assert [f for f in examine(orc.connection) if not f.fine] == []


def names(orc: Orchestrator) -> list[str]:
    return [view.name for view in orc.views()]


def create(orc: Orchestrator) -> None:
    orc.create_view("more", SUMS, cache="on")


def drop(orc: Orchestrator) -> None:
    orc.drop_view("wide", cascade=True)


def collect(orc: Orchestrator) -> None:
    orc.connection.execute("SELECT idivm.collect(0)")


def refresh(orc: Orchestrator) -> None:
    orc.refresh()


def refresh_all(orc: Orchestrator) -> None:
    orc.connection.execute("CALL idivm.refresh_all()")


def keep(orc: Orchestrator) -> None:
    orc.alter_view("wide", maintain="eager")


def write(orc: Orchestrator) -> None:
    orc.connection.execute("UPDATE t SET n = n + 1")


LITTLE = (drop, collect)
"""These take away, and may find room enough in what they free."""


@pytest.mark.slow
@pytest.mark.parametrize("database", [True], indirect=True, ids=["migrated"])
@pytest.mark.parametrize(
    ("mode", "act"),
    [
        *(("deferred", act) for act in (create, refresh, refresh_all, keep, write, collect, drop)),
        *(("eager", act) for act in (create, write, drop)),
    ],
)
def test_the_old_state_or_the_new(
    disk: Disk, database: str, mode: str, act: Callable[[Orchestrator], None]
) -> None:
    with orchestrator.connect(database) as orc:
        orc.execute(TABLES)
        orc.create_view("wide", WIDE, maintain=mode)
        orc.create_view("above", "SELECT name, count(*) AS c FROM wide GROUP BY name")
        failures = 0
        for room in ROOMS:
            orc.execute("UPDATE t SET n = n + 1, k = (k + 1) % 100 WHERE id % 3 = 0")
            if act is collect:
                orc.refresh()
            before = names(orc)
            done = attempted(disk, room, lambda: act(orc))
            if done and act in (create, drop):
                assert names(orc) != before
            else:
                assert names(orc) == before
            right(orc)
            if done:
                break
            failures += 1
        assert done
        assert failures > 0 or act in LITTLE
        with suppress(IndexError):
            orc.drop_view(names(orc)[0], cascade=True)
        assert orphans(orc.connection) == []


@pytest.mark.parametrize("database", [False], indirect=True, ids=["empty"])
def test_migrations(disk: Disk, database: str) -> None:
    failures = 0
    with psycopg.connect(database, autocommit=True) as connection:
        migrate(connection, replace(shipped(), declarations=""))
        for room in ROOMS:
            if attempted(disk, room, lambda: migrate(connection)):
                break
            failures += 1
    assert failures > 0
    with orchestrator.connect(database) as orc:
        orc.execute(TABLES)
        orc.create_view("wide", WIDE)
        right(orc)
