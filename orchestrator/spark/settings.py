"""The settings of a Spark session, and the environment of its processes."""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

_LOOPBACK = "127.0.0.1"
_MIB = 2**20

LONG = (
    "-XX:+UseSerialGC",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""Options of a JVM on this machine: optimize only what runs ten times as often as usual.

The optimizing compiler needs the cores that tasks need, and takes half the CPU time of a short load.
"""

SHORT = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of a JVM for a small load, which ends before the optimizing compiler gains anything."""


def settings(
    master: str,
    app: str,
    folder: Path,
    config: Mapping[str, object] | None = None,
    java_options: Sequence[str] = (),
) -> dict[str, str]:
    """Return Spark's settings for a session with all files in `folder`; `config` overrides them.

    >>> settings("local[2]", "doc", Path("/tmp/doc"), {"spark.ui.enabled": True})["spark.ui.enabled"]
    'true'
    """
    arrow = all(map(find_spec, ("pyarrow", "pandas")))
    options = [*own_java_options(folder), *java_options]
    values: dict[str, object] = {
        "spark.master": master,
        "spark.app.name": app,
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.driver.memory": f"{driver_memory()}m",
        "spark.driver.defaultJavaOptions": " ".join(map(_quoted, options)),
        "spark.local.dir": folder,
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        # Without these packages, Spark would warn and continue without Arrow.
        "spark.sql.execution.arrow.pyspark.enabled": arrow,
        "spark.sql.execution.pythonUDF.arrow.enabled": arrow,
    }
    if is_local(master):
        values |= {
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.driver.host": _LOOPBACK,
            "spark.python.daemon.module": "orchestrator.spark.daemon",
            "spark.sql.shuffle.partitions": 4 * (os.cpu_count() or 1),
        }
    values |= config or {}
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
    }


def own_java_options(folder: Path) -> list[str]:
    """Return the options of every JVM that keeps its files in a folder."""
    return [
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}",
        f"-Djava.io.tmpdir={folder}",
        f"-XX:ErrorFile={folder / 'crash.log'}",
        "-Duser.timezone=UTC",  # else times of ORC depend on it
        "-XX:-UsePerfData",  # else every JVM keeps a file in /tmp
        *([f"-Duser.home={folder}"] if _nameless() else []),
    ]


def environment(master: str, java_home: Path, package: Path, folder: Path) -> dict[str, str | None]:
    """Return the changes to the environment of Spark's JVM and Python workers; None unsets a variable."""
    changes: dict[str, str | None] = {
        "JAVA_HOME": str(java_home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": _plain_program(sys.executable, folder),
        # These variables could connect the caller's other Spark instead of the Spark started here.
        "PYSPARK_GATEWAY_PORT": None,
        "PYSPARK_SUBMIT_ARGS": None,
        "SPARK_REMOTE": None,
    }
    if _nameless():
        changes["SPARK_USER"] = str(os.geteuid())
    if (package / "jars").is_dir():
        changes["SPARK_HOME"] = str(package)
    if is_local(master):
        # The name of this machine may not resolve, or may resolve to an address on a network.
        changes["SPARK_LOCAL_IP"] = _LOOPBACK
        changes["SPARK_LOCAL_HOSTNAME"] = None
    elif python := os.environ.get("PYSPARK_PYTHON"):
        changes["PYSPARK_PYTHON"] = python
    return changes


def _plain_program(program: str, folder: Path) -> str:
    """Return a path of a program that a shell reads as a single word, if there is one.

    Before Spark asks this Python for data sources, it looks for the program by a shell, without quotes. So it
    would find no data source from a checkout in a folder with a space in its name.
    """
    if shlex.quote(program) == program:
        return program
    link = folder / "python"
    link.write_text(f'#!/bin/sh\nexec {shlex.quote(program)} "$@"\n')
    link.chmod(0o700)
    is_usable = shlex.quote(str(link)) == str(link) and os.access(link, os.X_OK)
    return str(link) if is_usable else program


def default_master() -> str:
    """Return the default master: IDIVM_SPARK_MASTER, or all cores of this machine."""
    return os.environ.get("IDIVM_SPARK_MASTER") or "local[*]"


def is_local(master: str) -> bool:
    """Return whether all of Spark runs on this machine.

    >>> is_local("local[*]"), is_local("spark://elsewhere:7077")
    (True, False)
    """
    return master.partition("[")[0] in ("local", "local-cluster")


def driver_memory() -> int:
    """Return how many MiB the JVM may use."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no container, or one without a limit
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return max(1024, min(memory // 4 // _MIB, 4096))


def _nameless() -> bool:
    """Return whether the user has no name, as in some containers; Java then lacks name and home."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        return True
    return False


def _quoted(option: str) -> str:
    """Return an option quoted for Spark's lists of options, which it splits at spaces.

    >>> print(_quoted('-Da=b "c"'))
    "-Da=b \\"c\\""
    """
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
