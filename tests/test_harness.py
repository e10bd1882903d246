"""The tests' own servers leave nothing behind, however a run ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from harness import TestServer

from orchestrator.server.postmaster import is_alive

RUN = """
import sys
from pathlib import Path
from harness import TestServer, found_versions, scratch_folder
with scratch_folder() as folder:
    server = TestServer(next(iter(found_versions().values())), folder / "server")
    print(folder, server.server_pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_run_leaves_nothing(blow: signal.Signals) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", RUN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        cwd=Path(__file__).parent,
    )
    assert run.stdout is not None
    folder, pid = run.stdout.readline().split()
    assert is_alive(int(pid))
    os.killpg(run.pid, blow)
    run.communicate()
    while is_alive(int(pid)) or Path(folder).exists():
        pass


@pytest.mark.integration
def test_databases_are_fresh_and_of_the_version_asked_for(
    pg: TestServer, pg_version: int, dsn: str, plain_dsn: str
) -> None:
    def has_idivm(conninfo: str) -> bool:
        with psycopg.connect(conninfo) as connection:
            assert connection.info.server_version // 10000 == pg_version == pg.version
            row = connection.execute("SELECT to_regclass('idivm.views') IS NOT NULL")
            return row.fetchone() == (True,)

    assert has_idivm(dsn)
    assert not has_idivm(plain_dsn)


def test_a_database_is_gone_after_its_test_even_if_in_use(pg: TestServer) -> None:
    with pg.database(migrated=False) as conninfo:
        session = psycopg.connect(conninfo)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(conninfo)
    session.close()


def test_connections_see_the_tests_database(
    dsn: str, connect: Callable[..., psycopg.Connection[tuple[object, ...]]]
) -> None:
    connect().execute("CREATE TABLE seen ()")
    assert connect(autocommit=False).execute("SELECT to_regclass('seen')::text").fetchone() == (
        "seen",
    )
    assert connect(dsn).autocommit
