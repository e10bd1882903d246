"""Read `postmaster.pid` in a data directory, and find out whether its server is running."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

_PID_FILE = "postmaster.pid"
_NO_PROCESS = 2**31 - 1
"""More than the greatest process ID of any system."""

_PROCESSES = Path("/proc")


@dataclass(frozen=True)
class Postmaster:
    """A running server, as described by its data directory."""

    pid: int
    port: int
    socket_folder: Path
    status: str

    @property
    def ready(self) -> bool:
        """Return whether it accepts connections."""
        return self.status == "ready"


def running_postmaster(data: Path) -> Postmaster | None:
    """Return the running server of a data directory. Ignore the pid file of a dead server."""
    lines = _pid_file_lines(data)
    pid = _number(lines, 0)
    if not is_postmaster(pid, data):
        return None
    # The file grows line by line while the server starts.
    folder = Path(lines[4]) if len(lines) > 4 else data
    return Postmaster(pid, _number(lines, 3), folder, lines[7].strip() if len(lines) > 7 else "")


def disown_dead_server(data: Path) -> None:
    """Make the pid file of a dead server harmless, whichever process has its ID now.

    PostgreSQL would take another process with that ID, or the server's zombie, for a running server and
    refuse to start. The file itself must stay, because it names the shared memory by which PostgreSQL notices
    orphaned sessions that still write to the data.
    """
    lines = _pid_file_lines(data)
    pid = _number(lines, 0)
    if pid and not is_postmaster(pid, data):
        lines[0] = str(_NO_PROCESS)
        # Root writes into another user's folder here. That user must not redirect the write by a link.
        file = os.open(data / _PID_FILE, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
        with os.fdopen(file, "w") as pid_file:
            pid_file.write("\n".join(lines) + "\n")


def is_postmaster(pid: int, data: Path) -> bool:
    """Return whether a process is the server of this data directory."""
    if pid <= 0 or not is_alive(pid):
        return False
    if not _PROCESSES.is_dir():
        completed = subprocess.run(
            ["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True
        )
        return b"postgres" in completed.stdout and os.fsencode(data) in completed.stdout
    process = _PROCESSES / str(pid)
    try:
        program = Path(os.fsdecode((process / "cmdline").read_bytes().split(b"\0")[0]))
        # The server's working directory is its data directory, even if that is moved.
        return "postgres" in program.name and (process / "cwd").samefile(data)
    except OSError:
        return False  # the process has ended, or belongs to another user


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
        # The state follows the program's name, which is in parentheses and may contain parentheses.
        stat = (_PROCESSES / str(pid) / "stat").read_text(errors="replace")
        return stat.rpartition(")")[2].split()[0] not in ("Z", "X")
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not _PROCESSES.is_dir()
    except PermissionError:
        return True


def _pid_file_lines(data: Path) -> list[str]:
    try:
        return (data / _PID_FILE).read_text().splitlines()
    except FileNotFoundError:
        return []


def _number(lines: list[str], index: int) -> int:
    return int(lines[index]) if len(lines) > index and lines[index].strip().isdigit() else 0
