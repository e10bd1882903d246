"""Build the C modules for a server whose own folders may not be writable."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import ServerError
from orchestrator.resources import resource_folder
from orchestrator.server.binaries import Installation

_FLAGS = ("-O2", "-fPIC", "-fno-strict-aliasing", "-fwrapv", "-Wall", "-Werror")
_LINK = ("-bundle", "-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-shared",)


def build_modules(installation: Installation, folder: Path) -> list[Path]:
    """Compile the modules for a PostgreSQL version into a folder. Return the paths of the libraries."""
    headers = _headers(installation)
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise ServerError(
            "No C compiler is found here: install one (on Debian and Ubuntu the package gcc), or "
            "name it in CC."
        )
    suffix = "dylib" if sys.platform == "darwin" and installation.version >= 16 else "so"
    command = [compiler, *_FLAGS, *_LINK, f"-I{headers}"]
    sources = sorted(resource_folder("pg_extension").glob("*.c"))
    return [_compiled(command, source, folder / f"{source.stem}.{suffix}") for source in sources]


def _compiled(command: Sequence[str], source: Path, library: Path) -> Path:
    # Servers may use the library of an earlier build, and a library in use must not change.
    built = library.with_suffix(".new")
    done = subprocess.run([*command, str(source), "-o", str(built)], capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise ServerError(f"{source.name} could not be compiled, {command[0]} says: {said[-1]}")
    built.chmod(0o755)
    return built.replace(library)


def _headers(installation: Installation) -> Path:
    program = installation.program("pg_config")
    headers = Path()
    if os.access(program, os.X_OK):
        answer = subprocess.run([program, "--includedir-server"], capture_output=True, text=True)
        headers = Path(answer.stdout.strip())
    if not (headers / "postgres.h").is_file():
        raise ServerError(
            f"The header files of PostgreSQL {installation.version} are not found here: install "
            f"them (on Debian and Ubuntu the package postgresql-server-dev-{installation.version})."
        )
    return headers
