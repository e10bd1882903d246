"""A standalone Spark cluster on this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark

from orchestrator.spark.errors import SparkError
from orchestrator.spark.java import find_java


def family(root: int) -> list[int]:
    """Return the descendants of a process."""
    parents: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if parent := re.search(r"^PPid:\s+(\d+)", status.read_text(), re.MULTILINE):
                parents[int(status.parent.name)] = int(parent[1])
        except OSError:
            continue
    processes = [root]
    for item in processes:
        processes += [pid for pid, parent in parents.items() if parent == item]
    return processes[1:]


def _start_time(pid: int) -> str:
    """Return when a process was started, in ticks; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _end_all() -> None:
    """Wait for the end of the input, then kill the groups of the processes that it lists."""
    for line in sys.stdin.readlines():
        pid, started = line.split(" ", 1)
        # The number of a process is not used again while its group exists.
        if _start_time(int(pid)) in ("", started.strip()):
            with suppress(ProcessLookupError):
                os.killpg(int(pid), signal.SIGKILL)


class Processes:
    """Processes that end with this process.

    A separate process kills them and their children after this process has ended, however it ended.
    """

    def __init__(self) -> None:
        """Start the separate process."""
        self._janitor = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def start(self, command: list[Any], **options: Any) -> subprocess.Popen[Any]:
        """Start a process in a group of its own."""
        process = subprocess.Popen(command, start_new_session=True, **options)
        assert self._janitor.stdin is not None
        print(process.pid, _start_time(process.pid), file=self._janitor.stdin, flush=True)
        return process

    def stop(self) -> None:
        """Kill all processes."""
        self._janitor.communicate()


class Cluster:
    """A standalone master and two workers on the loopback, without a shared folder."""

    def __init__(self, folder: Path) -> None:
        """Start the three processes; they write their files below the folder."""
        self.folder = folder
        self.started = Processes()
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

    def _start(self, texts: str, kind: str, *arguments: str) -> str:
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        process = self.started.start(
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
            if match := re.search(texts, line):
                # Read further output, so that it does not fill the pipe.
                threading.Thread(target=process.stderr.read, daemon=True).start()
                return match[1]
        raise SparkError(f"Spark's {kind} does not start: {said[-1] if said else ''}")

    def executors(self) -> list[int]:
        """Return the processes that run tasks."""
        return [pid for process in self.processes[1:] for pid in family(process.pid)]

    def stop(self) -> None:
        """Kill all processes."""
        self.started.stop()
        for process in self.processes:
            process.wait()


if __name__ == "__main__":
    _end_all()
