"""Backups, failover, upgrades and crashes: a view is right afterwards, or its next refresh rebuilds it."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from conftest import add_module
from harness import _INITDB, SURE, TestServer, found_versions
from psycopg import Connection
from stepping import differences, until

import orchestrator
from orchestrator.api import Orchestrator
from orchestrator.cli.main import main
from orchestrator.errors import ServerError
from orchestrator.runtime.diagnosis.doctor import examine
from orchestrator.server import Installation
from orchestrator.server.module import build_modules

REPLICATED = SURE.replace("wal_level=minimal", "wal_level=replica").replace(
    "max_wal_senders=0", "max_wal_senders=4"
)

VIEWS = ("totals", "kept", "later", "live", "visited", "recent", "fleeting", "above")


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
            CREATE TABLE items (id int PRIMARY KEY, kind text, price numeric, weight float, note json,
                at timestamptz DEFAULT now());
            CREATE UNLOGGED TABLE visits (id int PRIMARY KEY, item int);
            INSERT INTO items SELECT n, chr(97 + n % 3), n, n / 2.0, '1', now() FROM generate_series(1, 30) n;
            INSERT INTO visits SELECT n, n % 5 FROM generate_series(1, 30) n;
            CREATE VIEW totals WITH (relation = table) AS
                SELECT kind, sum(price) AS total, count(*) AS n FROM items GROUP BY kind;
            ALTER TABLE totals ADD PRIMARY KEY (kind);
            CREATE INDEX ON totals (total);
            CREATE VIEW kept WITH (maintain = eager) AS SELECT kind, count(*) AS n FROM items GROUP BY kind;
            CREATE VIEW later WITH (maintain = on_commit, relation = table) AS SELECT id, price, weight, note FROM items WHERE kind = 'a';
            CREATE VIEW fleeting AS SELECT item, count(*) AS n FROM visits GROUP BY item;
            CREATE VIEW live WITH (maintain = on_read) AS SELECT kind, sum(price) AS total FROM items GROUP BY kind;
            CREATE VIEW visited WITH (common_join = on) AS
                SELECT kind, count(*) AS n FROM visits JOIN items ON items.id = item GROUP BY kind;
            CREATE VIEW recent AS SELECT id, at FROM items WHERE at > now() - interval '1 day';
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
        findings = [f for f in examine(orc.connection) if not f.fine]
        assert findings == []
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


@pytest.mark.slow
def test_a_crash_of_the_server(primary: TestServer) -> None:
    dsn = primary.conninfo("test")
    views_and_changes(dsn)
    with orchestrator.connect(dsn) as orc:
        orc.execute("CREATE TABLE loaded (id int PRIMARY KEY); INSERT INTO loaded VALUES (1), (2)")
        orc.create_view("loads", "SELECT id FROM loaded")
        orc.execute("ALTER TABLE loaded SET UNLOGGED")
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
        plain.execute("ALTER TABLE loaded SET LOGGED; INSERT INTO loaded VALUES (2), (3)")
        plain.execute("CALL idivm.refresh_all()")
        assert plain.execute("SELECT id FROM loads ORDER BY id").fetchall() == [(2,), (3,)]
    lasts(dsn)


def replayed(primary: Connection[Any], standby: Connection[Any]) -> None:
    """Wait until a standby has what its primary has."""
    position = primary.execute("SELECT pg_current_wal_lsn()").fetchone()
    reached = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
    until(lambda: standby.execute(reached, position).fetchone() == (True,))


def test_a_standby_is_read_and_says_that_it_takes_no_changes(
    primary: TestServer, started: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    dsn = primary.conninfo("test")
    views_and_changes(dsn)
    standby = started(lambda folder: Copy(primary, folder, standby=True)).conninfo("test")
    with (
        psycopg.connect(dsn, autocommit=True) as plain,
        psycopg.connect(standby, autocommit=True) as copy,
    ):
        plain.execute("CALL idivm.refresh_all('totals')")
        with orchestrator.connect(dsn) as orc:
            orc.create_view("timed", "SELECT now() AS at")
        replayed(plain, copy)

    def said(*arguments: str, status: int = 0) -> str:
        assert main([*arguments, "--dsn", standby]) == status
        captured = capsys.readouterr()
        return captured.out + captured.err

    for command in (["list"], ["status"], ["status", "totals"], ["explain", "totals"]):
        assert "totals" in said(*command)
    assert len(said("enumerate", "totals").splitlines()) >= 3
    assert len(said("sql", "-c", "SELECT * FROM totals").splitlines()) >= 3
    answer = said("check")
    assert "totals" in answer
    assert "fleeting was not compared: it reads an unlogged table" in answer
    assert "above was not compared: it has" in answer
    assert "timed was not compared: its query depends on the time" in answer
    for command in (
        ["refresh"],
        ["refresh", "totals"],
        ["doctor"],
        ["drop", "totals"],
        ["sql", "-c", "CREATE VIEW new AS SELECT * FROM items"],
        ["sql", "-c", "ALTER VIEW totals SET (maintain = eager)"],
        ["load", "items.csv", "--into", "items"],
        ["serve"],
    ):
        assert "is a standby" in said(*command, status=2), command


@pytest.mark.slow
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
            replayed(plain, copy)
            primary.kill()
            copy.execute("SELECT pg_promote()")
    dsn = standby.conninfo("test")
    assert all(now > then for (_, then), (_, now) in zip(before, numbers(dsn), strict=True))
    lasts(dsn)


@pytest.mark.slow
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


@pytest.mark.slow
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


class Upgraded(TestServer):
    """A server that pg_upgrade makes of another, which has been stopped."""

    def __init__(self, installation: Installation, old: TestServer, folder: Path) -> None:
        self.old = old
        super().__init__(installation, folder)

    def make(self, data: Path) -> None:
        plain = ["--no-data-checksums"] if self.version >= 18 else []
        initdb = self.installation.program("initdb")
        self.run(initdb, "--no-sync", "--wal-segsize=1", *_INITDB, *plain, "-D", str(data))
        self.run(
            *(self.installation.program("pg_upgrade"), "-U", "postgres", "--no-sync"),
            *("-b", str(self.old.installation.bindir), "-B", str(self.installation.bindir)),
            *("-d", f"{self.old.base_dir}/data", "-D", str(data), "-s", str(self.base_dir)),
        )


@pytest.mark.slow
@pytest.mark.parametrize("version", sorted(found_versions())[:-1])
def test_an_upgrade_to_a_server_without_the_modules(
    started: Callable[..., Any], scratch: Path, version: int
) -> None:
    """pg_upgrade keeps transactions and files, and refuses functions in C that the new server lacks."""
    newest = found_versions()[max(found_versions())]
    old = started(TestServer, found_versions()[version])
    dsn = old.conninfo("test")
    folder = scratch / f"upgraded{version}"
    folder.mkdir()
    with orchestrator.connect(dsn), suppress(ServerError):
        build_modules(old.installation, folder)
        add_module(dsn, folder)
    if numbers_columns(dsn) and not numbers_columns(started(TestServer, newest).conninfo("test")):
        pytest.skip("pg_upgrade needs a server of the time of the old one, or later")
    views_and_changes(dsn)
    if functions_in_c(dsn):
        old.terminate()
        with pytest.raises(AssertionError, match="loadable libraries"):
            started(Upgraded, newest, old)
        old.restart()
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("ALTER DATABASE test SET idivm.accelerate = off")
        with orchestrator.connect(dsn) as orc:
            assert all(finding.fine for finding in orc.doctor())
            write(orc.connection)
        assert functions_in_c(dsn) == []
    old.terminate()

    new = started(Upgraded, newest, old)
    dsn = new.conninfo("test")
    with orchestrator.connect(dsn) as orc:
        assert {*VIEWS} <= {view.name for view in orc.views()}
        write(orc.connection)
        orc.refresh()
        assert right(orc)
        # Programs may have another text for a newer server.
        assert all(finding.fine or finding.mended for finding in orc.doctor())
    lasts(dsn)


def numbers_columns(dsn: str) -> bool:
    """Whether the server leaves an option at every column, which older releases do not know."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "SELECT FROM pg_attribute WHERE attoptions::text LIKE '%pg_attver=%' LIMIT 1"
        ).fetchone()
    return row is not None


def functions_in_c(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang"
            " WHERE p.pronamespace = 'idivm'::regnamespace AND l.lanname = 'c' ORDER BY 1"
        ).fetchall()
    return [name for (name,) in rows]


SCHEMA_THEN_DATA = {
    "schema, data": [["-s"], ["-a"]],
    "sections": [["--section=pre-data"], ["--section=data"], ["--section=post-data"]],
    "whole": [[]],
    "triggers disabled": [["-s"], ["-a", "--disable-triggers"]],
}


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("parts", SCHEMA_THEN_DATA.values(), ids=SCHEMA_THEN_DATA)
@pytest.mark.sampled(3)
def test_a_dump_restored_into_its_own_cluster(pg: TestServer, parts: list[list[str]]) -> None:
    """Its transactions are known there, and capture logs the rows that come with the data."""
    with pg.database(migrated=True) as dsn, pg.database(migrated=False) as restored:
        views_and_changes(dsn)
        for options in parts:
            pg.restore(dsn, restored, *options)
        with orchestrator.connect(restored) as orc:
            orc.refresh()
            assert right(orc)
            if "--disable-triggers" in parts[-1]:
                # They are enabled afterwards, but not as they were.
                assert {
                    finding.subject for finding in examine(orc.connection) if not finding.fine
                } == {
                    "capture",
                    "modes",
                }
        lasts(restored)
        lasts(dsn)


@pytest.mark.integration
def test_a_copy_of_a_database_goes_on_where_it_was(pg: TestServer) -> None:
    with pg.database(migrated=True) as dsn:
        views_and_changes(dsn)
        copy = f"{psycopg.conninfo.conninfo_to_dict(dsn)['dbname']}_copy"
        with psycopg.connect(pg.conninfo("postgres"), autocommit=True) as admin:
            name, template = psycopg.sql.Identifier(copy), psycopg.sql.Identifier(copy[:-5])
            admin.execute(psycopg.sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(name, template))
        try:
            with psycopg.connect(pg.conninfo(copy), autocommit=True) as plain:
                foreign = "SELECT count(*) FROM idivm.watermarks w WHERE idivm.is_foreign(w)"
                assert plain.execute(foreign).fetchone() == (0,)
            lasts(pg.conninfo(copy))
        finally:
            with psycopg.connect(pg.conninfo("postgres"), autocommit=True) as admin:
                admin.execute(psycopg.sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
        lasts(dsn)
