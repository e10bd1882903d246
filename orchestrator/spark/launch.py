"""Start the JVM of a short load by its final command, and while the command `idivm load` still imports modules.

PySpark would first run Spark's launcher, a JVM that only composes this command. A session that records an archive
of classes notes the command's fixed parts. Without an archive, or in an environment that changes what the launcher
composes, PySpark starts the JVM.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from orchestrator.spark.archive import archive_options, archive_path
from orchestrator.spark.errors import SparkError
from orchestrator.spark.java import Java, programs
from orchestrator.spark.local_files import own_folder
from orchestrator.spark.settings import SHORT, driver_memory, environment, own_java_options

_MAIN = "org.apache.spark.api.python.PythonGatewayServer"
PREFIXES = ("SPARK_", "HADOOP_", "YARN_", "PYSPARK_")
_HARMLESS = {
    *("SPARK_HOME", "SPARK_REMOTE", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"),
    *("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"),
}
"""Variables that a session, or PySpark in it, sets or unsets itself."""
_SECONDS = 0.01
"""The seconds between two looks whether the JVM has started."""


@dataclass(frozen=True)
class Command:
    """The fixed parts of the command that starts Spark's JVM."""

    java: Java
    options: tuple[str, ...]
    class_path: str


@dataclass(frozen=True)
class Launched:
    """A JVM that starts, and what its session takes over."""

    command: Command
    folder: Path
    process: subprocess.Popen[bytes]
    stack: ExitStack
    """Removes the folder when it is closed."""

    def connection(self) -> dict[str, str]:
        """Wait for the JVM; return the variables by which PySpark connects to it."""
        path = _connection_file(self.folder)
        while not path.exists():
            if self.process.poll() is not None:
                raise SparkError("Java ended before Spark started.")
            time.sleep(_SECONDS)
        port, length = struct.unpack("!ii", (content := path.read_bytes())[:8])
        secret = content[8 : 8 + length].decode()
        return {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}

    def end(self) -> None:
        """Kill the JVM and remove its folder."""
        self.process.kill()
        self.process.wait()
        self.stack.close()


def note_command(java: Java, jvm: Any, own_options: Sequence[str], file: Path) -> None:
    """Write the fixed parts of the command by which PySpark started a JVM."""
    given = list(jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments())
    facts = {
        "program": str(java.program),
        "version": java.version,
        "modules": sorted(java.modules),
        "options": [
            option
            for option in given
            if option not in own_options and not option.startswith("-Xmx")
        ],
        "class path": jvm.java.lang.System.getProperty("java.class.path"),
    }
    file.write_text(json.dumps(facts))


def known_command(environ: Mapping[str, str] = os.environ) -> Command | None:
    """Return the command for the Java that `find_java` finds here; None if PySpark must compose it."""
    if any(name.startswith(PREFIXES) and name not in _HARMLESS for name in environ):
        return None
    package = _package()
    if package is None or not (package / "jars").is_dir() or (package / "conf").exists():
        return None
    program = next((program for program in programs(environ) if program.exists()), None)
    if program is None:
        return None
    noted = archive_path(Java(program, 0, frozenset()), package).with_suffix(".json")
    try:
        facts = json.loads(noted.read_text())
        java = Java(Path(facts["program"]), facts["version"], frozenset(facts["modules"]))
        command = Command(java, tuple(facts["options"]), facts["class path"])
    except (OSError, ValueError, KeyError):
        return None
    return command


def launch(command: Command) -> Launched:
    """Start a JVM on this machine for a short session."""
    package = _package()
    assert package is not None
    with ExitStack() as stack:
        folder = stack.enter_context(own_folder())
        changes = {
            **environment("local", command.java.home(folder / "java"), package, folder),
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(_connection_file(folder)),
            "SPARK_CONNECT_MODE": "0",
            "PYTHONHASHSEED": "0",
        }
        environ = {**os.environ, **{name: value or "" for name, value in changes.items()}}
        for name, value in changes.items():
            if value is None:
                del environ[name]
        options = [*own_java_options(folder), *SHORT, *archive_options(command.java, package)]
        with (folder / "spark.log").open("wb") as output:
            process = subprocess.Popen(
                [
                    *(str(command.java.program), "-cp", command.class_path),
                    *(f"-Xmx{driver_memory()}m", *options, *command.options, _MAIN),
                ],
                stdin=subprocess.PIPE,  # at whose end the JVM ends
                stdout=output,
                stderr=output,
                env=environ,
                preexec_fn=_ignore_interrupts,
            )
        return Launched(command, folder, process, stack.pop_all())


waiting: list[Launched] = []
"""The JVM that was started for the next short session."""


@contextmanager
def launched_early() -> Iterator[None]:
    """Start a JVM for a short session that the block is expected to run; end the JVM if none took it."""
    if (command := known_command()) is not None:
        with suppress(OSError):
            waiting.append(launch(command))
    try:
        yield
    finally:
        while waiting:
            waiting.pop().end()


def launched(short: bool) -> Launched | None:
    """Return a JVM for a session that begins if it is short: one that was started early, or else a new JVM."""
    if not short:
        while waiting:
            waiting.pop().end()
        return None
    if waiting:
        return waiting.pop()
    command = known_command()
    return launch(command) if command is not None else None


def _connection_file(folder: Path) -> Path:
    return folder / "connection"


def _package() -> Path | None:
    """Return the folder of PySpark without importing it."""
    spec = find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
