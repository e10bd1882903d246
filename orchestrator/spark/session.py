"""Spark sessions that start from any environment, print nothing, and leave no files behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.spark.archive import archive_options, create_in_background
from orchestrator.spark.errors import SparkError
from orchestrator.spark.failures import ended, failed, not_started, unlogged
from orchestrator.spark.java import find_java
from orchestrator.spark.launch import launched
from orchestrator.spark.local_files import own_folder
from orchestrator.spark.settings import LONG, SHORT, environment, is_local, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LAUNCHERS = re.compile(r"spark\.(driver|jars|submit)\b")
"""Settings that Spark's launcher takes before the JVM starts."""
_CONNECT_SECONDS = 5
"""The seconds within which a master must accept a connection."""
_EXIT_SECONDS = 60.0


@dataclass(frozen=True)
class Life:
    """What is known about a session before it starts."""

    short: bool = False
    """Whether its work takes only seconds: the JVM then compiles quickly instead of well."""
    archives: bool = False
    """Whether a program in the background may prepare what later sessions start faster with."""
    exit_seconds: float = _EXIT_SECONDS
    """The seconds that the JVM may take to exit before it is killed."""


_USUAL = Life()


@contextmanager
def spark_session(
    master: str = "local[*]",
    app: str = "idivm",
    life: Life = _USUAL,
    /,
    **config: object,
) -> Iterator[SparkSession]:
    """Run Spark for a block, in a JVM of its own; `config` overrides any of Spark's settings.

    Spark's exceptions leave the block as a `SparkError`.
    """
    try:
        import pyspark
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkError(
            "PySpark is not installed, which bulk loads need: run pip install 'idivm[spark]'."
        ) from error
    if pyspark.SparkContext._gateway is not None:
        raise SparkError(
            "Spark runs already in this Python process, which can hold only one: "
            "give its session (spark=session), or call idivm in a process of its own."
        )
    with ExitStack() as before_folder, ExitStack() as stack:
        require_master(master)
        direct = life.short and is_local(master) and not any(map(_LAUNCHERS.match, config))
        jvm = launched(direct)
        if jvm is not None:
            stack.callback(jvm.end)
            java, folder = jvm.command.java, jvm.folder
        else:
            java = find_java()
            folder = stack.enter_context(own_folder())
        stack.enter_context(_restored_process(folder))
        stack.enter_context(unlogged())
        log = folder / "spark.log"
        package = Path(pyspark.__file__).parent
        java_options: list[str] = []
        if is_local(master):
            java_options = [*(SHORT if life.short else LONG), *archive_options(java, package)]
            if life.archives:
                before_folder.callback(create_in_background, java, package)
        conf = pyspark.SparkConf(loadDefaults=False)
        conf.setAll(list(settings(master, app, folder, config, java_options).items()))
        home = java.home(folder / "java")
        changes = environment(master, home, package, folder)
        try:
            with ExitStack() as until_started:
                until_started.enter_context(_environment(changes))
                launch: Callable[..., Any] = launch_gateway  # which has no types of its own
                if jvm is not None:
                    until_started.enter_context(_environment(jvm.connection()))
                    gateway = launch()
                    gateway.proc = jvm.process
                else:
                    output = until_started.enter_context(log.open("wb"))
                    gateway = launch(conf, {"stdout": output, "stderr": output})
                stack.callback(_end, gateway, life.exit_seconds)
                session = SparkSession(pyspark.SparkContext(conf=conf, gateway=gateway))
                stack.callback(_stop, session, gateway.proc if life.short else None)
        except Exception as error:
            raise not_started(error, log, java, master) from error
        if not master.startswith("local"):
            ship_package(session, folder)
        try:
            yield session
        except Exception as error:
            if (status := _status(gateway.proc, error)) is not None:
                raise ended(status, log) from error
            if sentence := failed(error):
                raise sentence from error
            raise


def ship_package(session: SparkSession, folder: Path) -> None:
    """Send this version of the package to the workers of a cluster; its dependencies must be installed."""
    package = Path(__file__).parent.parent
    archive = folder / f"{package.name}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(package.rglob("*.py")):
            packed.write(path, path.relative_to(package.parent))
    session.sparkContext.addPyFile(str(archive))


@contextmanager
def set_for_a_block(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session for a block, and restore them afterwards."""
    before = {name: session.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, previous in before.items():
            if previous is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, previous)


@contextmanager
def derived(session: SparkSession, settings: Mapping[str, object]) -> Iterator[SparkSession]:
    """Yield a clone of a caller's session, with its views and functions and with other settings."""
    from pyspark.sql import SparkSession

    java: Any = session._jsparkSession
    own = SparkSession(session.sparkContext, java.cloneSession())
    with active(own):
        for name, value in settings.items():
            own.conf.set(name, str(value).lower() if isinstance(value, bool) else str(value))
        yield own


@contextmanager
def active(session: SparkSession) -> Iterator[SparkSession]:
    """Make a session the active session for a block; Spark looks up data sources in the active session."""
    sessions: Any = session._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    before = sessions.getActiveSession()
    sessions.setActiveSession(session._jsparkSession)
    try:
        yield session
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def require_master(master: str) -> None:
    """Refuse a standalone master that does not answer; Spark itself would retry for over a minute."""
    if not master.startswith("spark://"):
        return
    reason = "no host and port"
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS):
                return
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
    raise SparkError(
        f"Spark's master {master} does not answer ({reason}): start it, or correct --master."
    )


@contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Change this process's environment for a block, because PySpark reads and passes on only this one."""

    def apply(values: Mapping[str, str | None]) -> None:
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    before = {name: os.environ.get(name) for name in changes}
    apply(changes)
    try:
        yield
    finally:
        apply(before)


@contextmanager
def _restored_process(folder: Path) -> Iterator[None]:
    """Restore what PySpark changes in this process: the handling of Ctrl-C, and the module path."""
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGINT, signal.SIG_DFL if handler is None else handler)
        sys.path[:] = [entry for entry in sys.path if not entry.startswith(f"{folder}{os.sep}")]


def _stop(session: SparkSession, killed: subprocess.Popen[bytes] | None) -> None:
    """Stop a session, or kill its JVM, which saves a second and leaves nothing that the session's folder lacks."""
    if killed is None:
        # Stopping a JVM that has died fails in several ways.
        with suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            session.stop()
        return
    # PySpark waits for values from the JVM in a thread, which would print that the connection has ended.
    server: Any = session.sparkContext._accumulatorServer
    server.handle_error = lambda *_: None
    server.server_shutdown = True
    killed.kill()
    killed.wait()
    # The thread notices it within half a second.
    threading.Thread(target=server.shutdown, daemon=True).start()
    kept: Any = type(session)
    kept._instantiatedSession = kept._activeSession = None


def _end(gateway: Any, seconds: float) -> None:
    """End the JVM and reset PySpark, so that another JVM can start."""
    from pyspark import SparkContext

    with SparkContext._lock:
        SparkContext._active_spark_context = None
        SparkContext._gateway = SparkContext._jvm = None
    process: subprocess.Popen[bytes] = gateway.proc
    if process.stdin:
        process.stdin.close()  # at which the JVM ends
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    # Last, because a thread that waits for calls of a live JVM would block the closing of its socket.
    gateway.close()


def _status(process: subprocess.Popen[bytes], error: Exception) -> int | None:
    """Return the exit status of the JVM if it has ended; a broken connection means that it soon will."""
    from py4j.protocol import Py4JError, Py4JJavaError

    broken = isinstance(error, Py4JError | ConnectionError) and not isinstance(error, Py4JJavaError)
    with suppress(subprocess.TimeoutExpired):
        return process.wait(5 if broken else 0)
    return None
