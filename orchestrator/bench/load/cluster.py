"""A standalone Spark cluster on this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

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


class Cluster:
    """A standalone master and two workers on the loopback, without a shared folder."""

    def __init__(self, folder: Path) -> None:
        """Start the three processes; they write their files below the folder."""
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

    def _start(self, texts: str, kind: str, *arguments: str) -> str:
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
        for process in reversed(self.processes):
            for pid in [*family(process.pid), process.pid]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            process.wait()
