"""Loads whose drivers and executors are really killed, and go on with each row once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

pytest.importorskip("pyarrow")

from orchestrator.bench.load.cluster import Cluster, family

ROWS = 4000
PARTS = 4
LOAD = [sys.executable, "-m", "orchestrator.cli.main", "load"]
SMALL = ["--config", "spark.driver.memory=1g"]


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "".join(f"{n},row {n}\n" for n in range(ROWS)))
    return path


class Latch:
    """Lets one partition of a load into the ledger and holds up the others."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        connection.execute(
            "SELECT pg_advisory_lock(42);"
            "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            "  PERFORM pg_advisory_xact_lock(7);"  # one after the other
            "  IF EXISTS (SELECT FROM idivm.load_parts p WHERE p.load = new.load) THEN"
            "    PERFORM pg_advisory_xact_lock(42);"
            "  ELSE PERFORM pg_notify('one', new.part::text); END IF;"
            "  RETURN new; END $$;"
            "CREATE TRIGGER hold BEFORE INSERT ON idivm.load_parts"
            " FOR EACH ROW EXECUTE FUNCTION hold();"
            "LISTEN one"
        )

    def wait(self) -> None:
        """Until one partition is in."""
        notices = self.connection.notifies(timeout=240, stop_after=1)
        assert next(notices, None), "no partition came in"

    def release(self) -> None:
        self.connection.execute("SELECT pg_advisory_unlock(42)")


@pytest.fixture
def latch(dsn: str) -> Iterator[Latch]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        yield Latch(connection)


def content(dsn: str) -> tuple[Any, ...]:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT count(*), count(DISTINCT a), sum(a) FROM t").fetchone()
    assert row is not None
    return row


ALL = (ROWS, ROWS, ROWS * (ROWS - 1) // 2)


@pytest.mark.sampled(6)
@pytest.mark.slow
def test_a_killed_driver_and_the_same_command_again(dsn: str, csv: Path, latch: Latch) -> None:
    command = [*LOAD, "--dsn", dsn, str(csv), "--into", "t", "--partitions", str(PARTS), *SMALL]
    with subprocess.Popen([*command, "--master", "local[1]"]) as driver:
        latch.wait()
        for pid in [driver.pid, *family(driver.pid)]:
            os.kill(pid, signal.SIGKILL)
    latch.release()
    assert content(dsn)[0] == 0
    # The server lets go of the load once it has seen that its driver is gone.
    latch.connection.execute("SELECT pg_advisory_lock(1768187767, max(id)) FROM idivm.loads")
    latch.connection.execute("SELECT pg_advisory_unlock_all()")
    parts = latch.connection.execute("SELECT part FROM idivm.load_parts").fetchall()
    assert len(parts) == 1

    resume = [*command, "--resume", "--master", "local[2]"]
    done = subprocess.run(resume, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "going on with load 1, 1 partitions are there" in done.stderr
    assert content(dsn) == ALL
    loads = latch.connection.execute("SELECT id, status, parts, rows_loaded FROM idivm.loads")
    assert loads.fetchall() == [(1, "done", PARTS, ROWS)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path)
    yield started
    started.stop()


@pytest.mark.sampled(4)
@pytest.mark.slow
def test_killed_executors_in_a_cluster_of_two_workers(
    dsn: str, csv: Path, latch: Latch, cluster: Cluster
) -> None:
    command = [
        *(*LOAD, "--dsn", dsn, str(csv), "--into", "t", "--partitions", str(PARTS), *SMALL),
        *("--master", cluster.master, "--config", "spark.executor.memory=512m"),
        *("--config", "spark.driver.host=127.0.0.1"),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as driver:
        latch.wait()
        killed = cluster.executors()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        latch.release()
        _, output = driver.communicate()
    assert len(killed) >= 2
    assert driver.returncode == 0, output
    assert content(dsn) == ALL
    loads = latch.connection.execute("SELECT status, parts, rows_loaded FROM idivm.loads")
    assert loads.fetchall() == [("done", PARTS, ROWS)]
