"""Backups, failover, upgrades and crashes: a view is right afterwards, or its next refresh rebuilds it."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from harness import _INITDB, SURE, TestServer, found_versions
from psycopg import Connection
from stepping import differences, until

import orchestrator
from orchestrator.api import Orchestrator
from orchestrator.runtime.doctor import examine

REPLICATED = SURE.replace("wal_level=minimal", "wal_level=replica").replace(
    "max_wal_senders=0", "max_wal_senders=4"
)

VIEWS = ("totals", "kept", "later", "fleeting", "above")


class Copy(TestServer):
    """A server over a base backup of another."""

    def __init__(self, primary: TestServer, folder: Path, *, standby: bool) -> None:
        self.primary, self.standby = primary, standby
        super().__init__(primary.installation, folder, REPLICATED)

    def make(self, data: Path) -> None:
        program = self.installation.program("pg_basebackup")
        options = ["-X", "stream", "-c", "fast", *(["-R"] if self.standby else [])]
        self.run(str(program), "-D", str(data), "-d", self.primary.conninfo("postgres"), *options)


@pytest.fixture
def started(scratch: Path) -> Iterator[Callable[..., Any]]:
    """Starts servers of a test's own."""
    running: list[TestServer] = []
    numbers = itertools.count(1)

    def start(kind: Callable[..., TestServer], *arguments: Any, **options: Any) -> TestServer:
        folder = scratch / f"own{next(numbers)}"
        while folder.exists():
            folder = scratch / f"own{next(numbers)}"
        running.append(kind(*arguments, folder, **options))
        return running[-1]

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def primary(started: Callable[..., Any], pg_version: int) -> TestServer:
    server: TestServer = started(
        lambda installation, folder: TestServer(installation, folder, REPLICATED),
        found_versions()[pg_version],
    )
    return server


def views_and_changes(dsn: str) -> None:
    """Views of every mode, one over another and one over an unlogged table, with changes pending."""
    with orchestrator.connect(dsn) as orc:
        orc.execute(
            """
            CREATE TABLE items (id int PRIMARY KEY, kind text, price numeric);
            CREATE UNLOGGED TABLE visits (id int PRIMARY KEY, item int);
            INSERT INTO items SELECT n, chr(97 + n % 3), n FROM generate_series(1, 30) n;
            INSERT INTO visits SELECT n, n % 5 FROM generate_series(1, 30) n;
            CREATE VIEW totals AS SELECT kind, sum(price) AS total, count(*) AS n FROM items GROUP BY kind;
            CREATE VIEW kept WITH (maintain = eager) AS SELECT kind, count(*) AS n FROM items GROUP BY kind;
            CREATE VIEW later WITH (maintain = on_commit) AS SELECT id, price FROM items WHERE kind = 'a';
            CREATE VIEW fleeting AS SELECT item, count(*) AS n FROM visits GROUP BY item;
            CREATE VIEW above AS SELECT sum(total) AS s FROM totals;
            UPDATE items SET price = 100 WHERE id = 1;
            INSERT INTO visits VALUES (31, 2)
            """
        )
        orc.refresh("totals")
        orc.execute(
            "UPDATE items SET price = 7, kind = 'c' WHERE id < 5; DELETE FROM items WHERE id = 9"
        )


def write(connection: Connection[Any]) -> None:
    connection.execute("INSERT INTO items SELECT max(id) + 1, 'b', 3 FROM items")
    connection.execute("UPDATE items SET price = price + 1 WHERE id % 2 = 0")
    connection.execute("INSERT INTO visits SELECT coalesce(max(id), 0) + 1, 1 FROM visits")


def right(orc: Orchestrator) -> bool:
    return all(differences(orc.connection, view) == [] for view in VIEWS)


def lasts(dsn: str) -> None:
    """All is right now, after further changes in plain SQL, and after those of idivm's own."""
    with psycopg.connect(dsn, autocommit=True) as plain:
        for _ in range(3):
            write(plain)
            plain.execute("CALL idivm.refresh_all()")
            assert all(differences(plain, view) == [] for view in VIEWS)
    with orchestrator.connect(dsn) as orc:
        orc.refresh()
        assert right(orc)
        write(orc.connection)
        orc.refresh()
        assert right(orc)
        found = [f for f in examine(orc.connection) if not f.fine]
        assert found == []
        orc.create_view("new", "SELECT kind, sum(price) AS s FROM items GROUP BY kind")
        write(orc.connection)
        assert all(report.equal for report in orc.check())
        for view in ("new", "above", *VIEWS[:-1]):
            orc.drop_view(view)


def numbers(dsn: str) -> list[tuple[int, int]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return [
            (row[0], connection.execute(f"SELECT nextval('idivm_log.s{row[0]}_seq')").fetchone()[0])
            for row in connection.execute("SELECT id FROM idivm.sources ORDER BY id").fetchall()
        ]


def test_a_crash_of_the_server(primary: TestServer) -> None:
    dsn = primary.conninfo("test")
    views_and_changes(dsn)
    before = numbers(dsn)
    open_one = psycopg.connect(dsn)
    write(open_one)
    primary.kill()
    open_one.close()
    primary.restart()
    # Numbers may be left out, and are never given twice.
    assert all(now > then for (_, then), (_, now) in zip(before, numbers(dsn), strict=True))
    with psycopg.connect(dsn, autocommit=True) as plain:
        assert plain.execute("SELECT count(*) FROM visits").fetchone() == (0,)
    lasts(dsn)


def test_a_standby_that_is_promoted(primary: TestServer, started: Callable[..., Any]) -> None:
    dsn = primary.conninfo("test")
    views_and_changes(dsn)
    standby = started(lambda folder: Copy(primary, folder, standby=True))
    with psycopg.connect(dsn, autocommit=True) as plain:
        for _ in range(3):
            write(plain)
            plain.execute("CALL idivm.refresh_all('totals')")
        write(plain)
        before = numbers(dsn)
        write(plain)
        with psycopg.connect(standby.conninfo("test"), autocommit=True) as copy:
            position = plain.execute("SELECT pg_current_wal_lsn()").fetchone()
            until(
                lambda: (
                    copy.execute(
                        "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", position
                    ).fetchone()
                    == (True,)
                )
            )
            primary.kill()
            copy.execute("SELECT pg_promote()")
    dsn = standby.conninfo("test")
    assert all(now > then for (_, then), (_, now) in zip(before, numbers(dsn), strict=True))
    lasts(dsn)


def test_a_base_backup_that_goes_its_own_way(
    primary: TestServer, started: Callable[..., Any]
) -> None:
    views_and_changes(primary.conninfo("test"))
    copy = started(lambda folder: Copy(primary, folder, standby=False))
    lasts(copy.conninfo("test"))
    lasts(primary.conninfo("test"))


@contextmanager
def database(server: TestServer, name: str) -> Iterator[str]:
    with psycopg.connect(server.conninfo("postgres"), autocommit=True) as connection:
        connection.execute(
            psycopg.sql.SQL("CREATE DATABASE {}").format(psycopg.sql.Identifier(name))
        )
    yield server.conninfo(name)


@pytest.mark.parametrize("clone", [False, True], ids=["another cluster", "a clone"])
@pytest.mark.parametrize("first", ["refresh", "create"])
def test_a_dump_whose_transactions_are_yet_to_come(
    primary: TestServer, started: Callable[..., Any], clone: bool, first: str
) -> None:
    """Its log rows would look pending for ever, and be applied on top of tables that have them."""
    dsn = primary.conninfo("test")
    if clone:
        other = started(lambda folder: Copy(primary, folder, standby=False))
    else:
        # One of the same version and yet with an identifier of its own.
        other = started(_afresh, primary.installation)
    with psycopg.connect(dsn, autocommit=True) as plain:
        plain.execute(
            "DO $$ BEGIN FOR i IN 1..20000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
        )
    views_and_changes(dsn)
    program = primary.installation.program
    dump = subprocess.run([program("pg_dump"), dsn], capture_output=True, check=True).stdout
    with database(other, "restored") as restored:
        psql = [program("psql"), "-qX", "-v", "ON_ERROR_STOP=1", restored]
        subprocess.run(psql, input=dump, capture_output=True, check=True)
        if first == "create":
            with orchestrator.connect(restored) as orc:
                orc.create_view("early", "SELECT kind, sum(price) AS s FROM items GROUP BY kind")
                write(orc.connection)
                orc.connection.execute("CALL idivm.refresh_all('early')")
                assert differences(orc.connection, "early") == []
                orc.drop_view("early")
        lasts(restored)


def _afresh(installation: Any, folder: Path) -> TestServer:
    class Fresh(TestServer):
        def make(self, data: Path) -> None:
            initdb = str(self.installation.program("initdb"))
            self.run(initdb, "--no-sync", "--wal-segsize=1", *_INITDB, "-D", str(data))

    return Fresh(installation, folder, REPLICATED)


def test_an_upgrade_of_the_server(started: Callable[..., Any], scratch: Path) -> None:
    """pg_upgrade keeps transactions and files; the cluster gets another identifier."""
    versions = sorted(found_versions())
    if len(versions) < 2:
        pytest.skip("there is one version of PostgreSQL here")
    # The two newest: an old server of a late minor release may write what a new one of an earlier
    # release does not know.
    oldest, newest = (found_versions()[version] for version in versions[-2:])
    old = started(TestServer, oldest)
    views_and_changes(old.conninfo("test"))
    old.terminate()

    class Upgraded(TestServer):
        def make(self, data: Path) -> None:
            plain = ["--no-data-checksums"] if self.version >= 18 else []
            initdb = str(self.installation.program("initdb"))
            self.run(initdb, "--no-sync", "--wal-segsize=1", *_INITDB, *plain, "-D", str(data))
            self.run(
                *(str(self.installation.program("pg_upgrade")), "-U", "postgres", "--no-sync"),
                *("-b", str(old.installation.bindir), "-B", str(self.installation.bindir)),
                *("-d", f"{old.base_dir}/data", "-D", str(data), "-s", str(self.base_dir)),
            )

    new = started(Upgraded, newest)
    dsn = new.conninfo("test")
    with orchestrator.connect(dsn) as orc:
        assert [view.name for view in orc.views()] == list(VIEWS)
    lasts(dsn)
