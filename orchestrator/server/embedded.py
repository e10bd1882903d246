"""An embedded PostgreSQL server under one folder, which keeps running after the process that started it.

    home/
      data/         the cluster, of one major version for its life
      run/          the Unix socket, in a folder that nobody else may enter
      log/          what the server says: one file a weekday, overwritten a week later
      lib/          capture's C form, if it was built for this server
      server.json   what a client needs to connect
      password      the password for TCP, as a libpq password file

A process that creates, starts or stops the server locks the home, so any number of processes may request the
server at the same time. The server inherits no lock, no terminal and no open file.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import secrets
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import make_conninfo

from orchestrator.errors import ServerError
from orchestrator.server.binaries import Installation, find, installations
from orchestrator.server.cluster import NAME, make_cluster
from orchestrator.server.module import build_modules
from orchestrator.server.paths import home_directory
from orchestrator.server.postmaster import (
    Postmaster,
    disown_dead_server,
    is_alive,
    running_postmaster,
)
from orchestrator.server.unprivileged import Account, may_enter, reachable, run_as, server_account

_SOCKET_FOLDER_BYTES = 88
"""The length that the tightest system limit for a socket's address leaves besides `/.s.PGSQL.65535`."""

_SHORT = "idivm-"
"""The prefix of socket folders in /tmp, which are used if the home's own path is too long."""

_PATIENCE = 120.0
"""Seconds to wait for another process at the same home, or for a recovery after a crash."""

_PORTS = range(20000, 32000)
"""Below the ports that systems use for outgoing connections."""


@dataclass(frozen=True)
class Endpoint:
    """The address of a running server."""

    socket_folder: Path
    port: int
    password: str
    pid: int

    @property
    def dsn(self) -> str:
        """Return the connection string for clients with libpq: through the private socket, without a password."""
        return make_conninfo(host=str(self.socket_folder), port=self.port, dbname=NAME, user=NAME)

    @property
    def superuser_dsn(self) -> str:
        """Return the connection string of the same database for the superuser, whom the private socket accepts."""
        return make_conninfo(self.dsn, user="postgres")

    @property
    def url(self) -> str:
        """Return the URL for all other clients: over TCP, with the password."""
        return f"postgresql://{NAME}:{self.password}@127.0.0.1:{self.port}/{NAME}"


@dataclass(frozen=True)
class Status:
    """The state of an embedded server, found without starting it. Without an endpoint, the server is down."""

    home: Path
    version: int | None
    endpoint: Endpoint | None


class EmbeddedServer:
    """The PostgreSQL server under one folder."""

    def __init__(self, home: Path | str | None = None) -> None:
        """Take the folder, by default `IDIVM_HOME`. Change nothing before `up`."""
        self.home = Path(home).expanduser().absolute() if home else home_directory()
        self.data = self.home / "data"
        self.log = self.home / "log"
        self.lib = self.home / "lib"

    def up(self) -> Endpoint:
        """Start the server unless it is running. Create its cluster first if there is none."""
        with self._explained():
            postmaster = running_postmaster(self.data)
            if postmaster and postmaster.ready:
                return self._endpoint(postmaster)
            self.home.mkdir(parents=True, exist_ok=True)
            with self._lock():
                account = self._prepare_home()
                postmaster = running_postmaster(self.data)
                if postmaster and postmaster.status == "stopping":
                    self._await_exit(postmaster)
                elif postmaster:
                    postmaster = self._await_ready(postmaster.pid)
                if postmaster is None or not postmaster.ready:
                    postmaster = self._start(self._cluster(account), account)
                return self._publish(postmaster)

    def down(self) -> bool:
        """Stop the server and end its sessions. Return False if it was not running."""
        with self._explained():
            if not self.home.is_dir():
                return False
            with self._lock():
                postmaster = running_postmaster(self.data)
                if postmaster:
                    os.kill(postmaster.pid, signal.SIGINT)
                    self._await_exit(postmaster)
                if folder := self._short_folder(server_account(self.data, self.home)):
                    _clear_sockets(folder)
                    folder.rmdir()
                return postmaster is not None

    def add_module(self) -> None:
        """Compile the C modules for this server, which finds them after its next start."""
        with self._explained():
            self.home.mkdir(parents=True, exist_ok=True)
            with self._lock():
                installation = reachable(find(self._version()), self._prepare_home())
                self.lib.mkdir(mode=0o755, exist_ok=True)
                self.lib.chmod(0o755)
                build_modules(installation, self.lib)

    def status(self) -> Status:
        """Return the home and version of the server, and its address if it is running."""
        with self._explained():
            postmaster = running_postmaster(self.data)
            ready = postmaster is not None and postmaster.ready
            endpoint = self._endpoint(postmaster) if postmaster and ready else None
            return Status(self.home, self._version(), endpoint)

    def _cluster(self, account: Account) -> Installation:
        version = self._version()
        if version is not None and version not in {item.version for item in installations()}:
            raise ServerError(
                f"The data in {self.data} is of PostgreSQL {version}, which is not found here: "
                f"install it (on Debian and Ubuntu the package postgresql-{version}), name the "
                "folder of its programs in IDIVM_PG_BIN, or move the data away to begin afresh."
            )
        installation = reachable(find(version), account)
        if version is None:
            password = secrets.token_urlsafe(24)
            self._write("password", f"*:*:*:{NAME}:{password}\n")
            make_cluster(self.data, installation, account, password)
        return installation

    def _version(self) -> int | None:
        if not self.data.exists() or not any(self.data.iterdir()):
            return None
        try:
            return int((self.data / "PG_VERSION").read_text())
        except (FileNotFoundError, ValueError):
            raise ServerError(
                f"{self.data} holds something other than PostgreSQL's data: move it away, or set "
                "IDIVM_HOME to another folder."
            ) from None

    def _prepare_home(self) -> Account:
        account = server_account(self.data, self.home)
        fresh = not any(self.home.iterdir())
        if fresh:
            # Root's home lets the server's user pass to the data, but not list the folder.
            self.home.chmod(0o700 if self.home.stat().st_uid == account.uid else 0o711)
        if not may_enter(account, self.home):
            if fresh:
                self.home.rmdir()
            raise ServerError(
                f"{self.home} cannot hold the server: PostgreSQL does not run as root but as user "
                f"{account.name}, who may not enter that folder; set IDIVM_HOME to one that all "
                "users may enter, or call idivm as an ordinary user."
            )
        for folder in (self.log, self.home / "run"):
            if not folder.is_dir():
                folder.mkdir(mode=0o700)
                account.own(folder)
        return account

    def _start(self, installation: Installation, account: Account) -> Postmaster:
        disown_dead_server(self.data)
        give_up = time.monotonic() + _PATIENCE
        while True:
            port = self._port()
            pid = self._launch(installation, account, port)
            if postmaster := self._await_ready(pid):
                return postmaster
            # Another program may have taken the port meanwhile. After a crash, the sessions of the dead
            # server hold its memory until they notice the crash.
            words = self._last_words(pid)
            again = not _is_free(port) or "shared memory block" in words
            if not again or time.monotonic() > give_up:
                raise ServerError(
                    f"PostgreSQL {installation.version} did not start, it says: {words} "
                    f"(its log is in {self.log})."
                )
            time.sleep(0.1)

    def _launch(self, installation: Installation, account: Account, port: int) -> int:
        sockets = self._socket_folder(account)
        # A dead server leaves its lock on the socket, with a process ID that another process may have now.
        _clear_sockets(sockets)
        # unix_socket_directories is a list whose members may be quoted.
        folder = str(sockets).replace('"', '""')
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(port),
            "unix_socket_directories": f'"{folder}"',
        }
        # A colon separates the folders of this list and cannot be escaped.
        if ":" not in str(self.lib):
            settings["dynamic_library_path"] = f"{self.lib}:$libdir"
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        # The shell exits at once, so the server is not a child of this process and leaves no zombie.
        detach = 'log=$1; shift; "$@" </dev/null >"$log" 2>&1 & echo $!'
        program = [installation.program("postgres"), "-D", str(self.data), *options]
        shell = ["/bin/sh", "-c", detach, "sh", str(self.log / "start.log")]
        return int(run_as(account, [*shell, *program], cwd=self.home).stdout)

    def _await_ready(self, pid: int) -> Postmaster | None:
        give_up = time.monotonic() + _PATIENCE
        while time.monotonic() < give_up:
            postmaster = running_postmaster(self.data)
            if postmaster and postmaster.ready:
                return postmaster
            if not is_alive(pid):
                return None
            time.sleep(0.02)
        raise ServerError(
            f"PostgreSQL is still starting after {_PATIENCE:.0f} seconds: look at its log in "
            f"{self.log}, and try again when it is ready."
        )

    def _await_exit(self, postmaster: Postmaster) -> None:
        give_up = time.monotonic() + _PATIENCE
        while is_alive(postmaster.pid):
            if time.monotonic() > give_up:
                raise ServerError(
                    f"PostgreSQL (process {postmaster.pid}) did not stop within {_PATIENCE:.0f} "
                    f"seconds: look at its log in {self.log}, and try again."
                )
            time.sleep(0.02)

    def _last_words(self, pid: int) -> str:
        said = []
        for path in sorted(self.log.glob("*.log"), key=lambda log: log.stat().st_mtime):
            for line in path.read_text(errors="replace").splitlines():
                if path.name == "start.log" or f"[{pid}]" in line:
                    said.append(line)
        fatal = [line for line in said if "FATAL" in line or "PANIC" in line]
        return (fatal or said or ["nothing"])[-1]

    def _socket_folder(self, account: Account) -> Path:
        folder = self.home / "run"
        # libpq treats a comma as the end of a host name.
        if len(os.fsencode(folder)) <= _SOCKET_FOLDER_BYTES and "," not in str(folder):
            return folder
        if last := self._short_folder(account):
            return last
        folder = Path(tempfile.mkdtemp(prefix=_SHORT, dir="/tmp"))
        account.own(folder)
        return folder

    def _short_folder(self, account: Account) -> Path | None:
        """Return the folder in /tmp of the last socket, if it exists and is still private."""
        last = Path(str(self._published("socket_folder")))
        if last.parent != Path("/tmp") or not last.name.startswith(_SHORT) or not last.exists():
            return None
        status = last.lstat()
        private = status.st_uid == account.uid and status.st_mode == stat.S_IFDIR | 0o700
        return last if private else None

    def _port(self) -> int:
        last = self._published("port")
        if isinstance(last, int) and _is_free(last):
            return last
        return next(port for port in random.sample(_PORTS, len(_PORTS)) if _is_free(port))

    def _endpoint(self, postmaster: Postmaster) -> Endpoint:
        password = (self.home / "password").read_text().strip().rpartition(":")[2]
        return Endpoint(postmaster.socket_folder, postmaster.port, password, postmaster.pid)

    def _publish(self, postmaster: Postmaster) -> Endpoint:
        endpoint = self._endpoint(postmaster)
        description = {
            "dsn": endpoint.dsn,
            "url": endpoint.url,
            "socket_folder": str(endpoint.socket_folder),
            "host": "127.0.0.1",
            "port": endpoint.port,
            "dbname": NAME,
            "user": NAME,
            "password": endpoint.password,
            "version": self._version(),
        }
        self._write("server.json", json.dumps(description, indent=2) + "\n")
        return endpoint

    def _published(self, field: str) -> object:
        try:
            description = json.loads((self.home / "server.json").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return description.get(field) if isinstance(description, dict) else None

    def _write(self, name: str, text: str) -> None:
        file, temporary = tempfile.mkstemp(prefix=f".{name}-", dir=self.home)
        with os.fdopen(file, "w") as stream:
            stream.write(text)
            if os.geteuid() == 0:
                owner = self.home.stat()
                os.fchown(file, owner.st_uid, owner.st_gid)
        Path(temporary).replace(self.home / name)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        folder = os.open(self.home, os.O_RDONLY)
        try:
            give_up = time.monotonic() + _PATIENCE
            while True:
                try:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > give_up:
                        raise ServerError(
                            f"Another process has been starting or stopping the server in "
                            f"{self.home} for {_PATIENCE:.0f} seconds: end it, and try again."
                        ) from None
                    time.sleep(0.05)
            yield
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            raise ServerError(
                f"{error.filename or self.home} belongs to another user: set IDIVM_HOME to a "
                "folder of your own."
            ) from error
        except OSError as error:
            raise ServerError(
                f"The embedded server cannot use {error.filename or self.home}: "
                f"{error.strerror or error}."
            ) from error


def _clear_sockets(folder: Path) -> None:
    for path in folder.glob(".s.PGSQL.*"):
        path.unlink()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
