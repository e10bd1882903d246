"""Loads whose drivers and executors are really killed, and go on with each row once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyspark
import pytest

pytest.importorskip("pyarrow")

from orchestrator.spark.java import find_java

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
        told = self.connection.notifies(timeout=240, stop_after=1)
        assert next(told, None), "no partition came in"

    def release(self) -> None:
        self.connection.execute("SELECT pg_advisory_unlock(42)")


@pytest.fixture
def latch(dsn: str) -> Iterator[Latch]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        yield Latch(connection)


def family(root: int) -> list[int]:
    """The processes below one."""
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if parent := re.search(r"^PPid:\s+(\d+)", status.read_text(), re.MULTILINE):
                parents[int(status.parent.name)] = int(parent[1])
        except OSError:
            continue
    found = [root]
    for one in found:
        found += [pid for pid, parent in parents.items() if parent == one]
    return found[1:]


def content(dsn: str) -> tuple[Any, ...]:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT count(*), count(DISTINCT a), sum(a) FROM t").fetchone()
    assert row is not None
    return row


ALL = (ROWS, ROWS, ROWS * (ROWS - 1) // 2)


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


class Cluster:
    """A standalone master and two workers on the loopback."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[str]] = []
        package = Path(pyspark.__file__).parent
        home = find_java().home(folder / "java")
        self.environment = {
            **os.environ,
            "JAVA_HOME": str(home),
            "SPARK_HOME": str(package),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": "512m",
            "SPARK_LOG_DIR": str(folder),
            "SPARK_WORKER_DIR": str(folder / "work"),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        self.master = self._start(
            r"Starting Spark master at (\S+)", "master.Master", "--host", "127.0.0.1", "--port", "0",
            "--webui-port", "0",
        )  # fmt: skip
        self.workers = [
            self._start(
                r"Successfully registered with master (\S+)", "worker.Worker", "--host", "127.0.0.1",
                "--cores", "1", "--memory", "700m", "--webui-port", "0", self.master,
            )
            for _ in range(2)
        ]  # fmt: skip

    def _start(self, told: str, kind: str, *arguments: str) -> str:
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        process = subprocess.Popen(
            [program, f"org.apache.spark.deploy.{kind}", *arguments],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if found := re.search(told, line):
                # What it says later must not fill the pipe.
                threading.Thread(target=process.stderr.read, daemon=True).start()
                return found[1]
        raise AssertionError("".join(said))

    def executors(self) -> list[int]:
        """The processes that run tasks, by worker."""
        return [pid for process in self.processes[1:] for pid in family(process.pid)]

    def stop(self) -> None:
        for process in reversed(self.processes):
            for pid in [*family(process.pid), process.pid]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path)
    yield started
    started.stop()


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
        _, told = driver.communicate()
    assert len(killed) >= 2
    assert driver.returncode == 0, told
    assert content(dsn) == ALL
    loads = latch.connection.execute("SELECT status, parts, rows_loaded FROM idivm.loads")
    assert loads.fetchall() == [("done", PARTS, ROWS)]
