"""The building of capture's C form, for a server whose own folders may not be written to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from orchestrator.errors import ServerError
from orchestrator.resources import resource_folder
from orchestrator.server.binaries import Installation

NAME = "idivm"

_FLAGS = ("-O2", "-fPIC", "-fno-strict-aliasing", "-fwrapv", "-Wall", "-Werror")
_LINK = ("-bundle", "-undefined", "dynamic_lookup") if sys.platform == "darwin" else ("-shared",)


def build_module(installation: Installation, folder: Path) -> Path:
    """Compiles the module for one PostgreSQL into a folder, and gives the library's path."""
    headers = _headers(installation)
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise ServerError(
            "No C compiler is found here: install one (on Debian and Ubuntu the package gcc), or "
            "name it in CC."
        )
    suffix = "dylib" if sys.platform == "darwin" and installation.version >= 16 else "so"
    library = folder / f"{NAME}.{suffix}"
    # Servers may run what an earlier build left; a file that is in use must not change.
    made = library.with_suffix(".new")
    source = resource_folder("pg_extension") / f"{NAME}.c"
    command = [compiler, *_FLAGS, *_LINK, f"-I{headers}", str(source), "-o", str(made)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise ServerError(f"{source.name} could not be compiled, {compiler} says: {said[-1]}")
    made.chmod(0o755)
    return made.replace(library)


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
