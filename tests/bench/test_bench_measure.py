"""Measuring side by side, and what a statement did in the server."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from psycopg.conninfo import conninfo_to_dict

from orchestrator.bench.measure import (
    Paired,
    alternate,
    durable_server,
    explained,
    machine,
    own_server,
    prepare_explained,
    require_durable_commits,
    restart_cold,
)
from orchestrator.errors import UsageError

Connect = Callable[..., Connection[Any]]


def test_runs_that_warm_up_do_not_count() -> None:
    numbers = iter(range(100))

    def next_number() -> float:
        return float(next(numbers))

    assert alternate(next_number, next_number, repeat=2, warm_up=2) == Paired(
        (4.0, 7.0), (5.0, 6.0)
    )


def test_drift_cancels_within_a_pair() -> None:
    drifting = Paired((1.0, 10.0, 100.0), (2.0, 20.0, 200.0))
    assert drifting.ratio == 2.0
    assert drifting.spread == (2.0, 2.0)
    assert drifting.medians == (10.0, 20.0)


def test_no_run_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="--repeat 1 or more"):
        alternate(lambda: 1.0, lambda: 1.0, repeat=0)


@pytest.mark.integration
def test_buffers_include_those_of_triggers(connect: Connect) -> None:
    connection = connect()
    connection.execute(
        """
        CREATE TABLE t (a integer);
        CREATE TABLE log AS SELECT n FROM generate_series(1, 50000) AS n
        """
    )
    connection.execute("VACUUM ANALYZE log")
    insert = "INSERT INTO t VALUES (1)"
    explained(connection, insert)
    bare = explained(connection, insert).buffers
    connection.execute(
        """
        CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM count(*) FROM log; RETURN NULL; END $$;
        CREATE TRIGGER look AFTER INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION look()
        """
    )
    explained(connection, insert)
    pages = connection.execute("SELECT relpages FROM pg_class WHERE relname = 'log'").fetchone()
    assert pages is not None
    assert explained(connection, insert).buffers >= bare + pages[0]


@pytest.mark.integration
def test_tells_writing_from_reading(connect: Connect) -> None:
    connection = connect()
    connection.execute("CREATE TABLE t (a integer)")
    prepare_explained(connection)
    explained(connection, "SELECT count(*) FROM t")
    with connection.transaction():
        assert explained(connection, "SELECT count(*) FROM t").wal_records == 0
        numbered = "SELECT pg_current_xact_id_if_assigned() IS NOT NULL"
        assert connection.execute(numbered).fetchone() == (False,)
    written = explained(connection, "INSERT INTO t VALUES (1)")
    assert written.wal_records > 0 and written.wal_bytes > 0 and written.milliseconds > 0


@pytest.mark.integration
def test_the_servers_of_the_tests_are_no_place_to_measure(connect: Connect) -> None:
    connection = connect()
    assert machine(connection)["fsync"] == "off"
    with pytest.raises(UsageError, match="fsync is off"):
        require_durable_commits(connection)


@pytest.mark.integration
def test_a_server_of_its_own_is_durable_and_leaves_nothing(pg_version: int) -> None:
    with durable_server(pg_version) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        require_durable_commits(connection)
        described = machine(connection)
        assert f"PostgreSQL {pg_version}" in described["server"]
        assert described["cpu"] and described["memory"].endswith("GiB")
        home = Path(connection.info.host).parent
        assert home.is_dir()
    assert not home.exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn)


@pytest.mark.slow
def test_a_killed_measurement_leaves_no_server() -> None:
    program = """
import os, signal
from orchestrator.bench.measure import durable_server
with durable_server() as dsn:
    print(dsn, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    # The output ends when the last process that holds it has ended.
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert done.returncode == -signal.SIGKILL
    home = Path(conninfo_to_dict(done.stdout)["host"]).parent
    assert home.name.startswith("bench-") and not home.exists()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(done.stdout)


def test_an_own_server_takes_settings_and_forgets_its_pages(pg_version: int) -> None:
    with own_server(pg_version, {"shared_buffers": "8MB"}) as server:
        with psycopg.connect(server.up().dsn, autocommit=True) as connection:
            assert connection.execute("SHOW shared_buffers").fetchone() == ("8MB",)
            connection.execute("CREATE TABLE t AS SELECT n FROM generate_series(1, 5000) AS n")
            connection.execute("VACUUM t")
        with psycopg.connect(restart_cold(server), autocommit=True) as connection:
            cold, warm = (explained(connection, "SELECT sum(n) FROM t") for _ in range(2))
    pages = -(-5000 * 32 // 8192)
    assert cold.read >= pages and warm.read < pages <= warm.buffers
