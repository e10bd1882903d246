"""Create a data directory that gets its name only when it is complete."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from psycopg import sql

from orchestrator.errors import ServerError
from orchestrator.server.binaries import Installation
from orchestrator.server.unprivileged import Account, run_as

NAME = "idivm"
"""The name of the role and the database of a new cluster."""

_SETTINGS = """
# --- idivm ---
logging_collector = on
log_directory = '../log'
log_filename = 'server-%a.log'
log_truncate_on_rotation = on
log_rotation_age = 1d
log_rotation_size = 0
log_line_prefix = '%m [%p] %q%u@%d '
unix_socket_permissions = 0700
shared_buffers = 256MB
max_wal_size = 2GB
random_page_cost = 1.1
jit = off
"""

_UNFINISHED = "data.new-"

_TRIES = 1000


def make_cluster(data: Path, installation: Installation, account: Account, password: str) -> None:
    """Create a cluster at `data` with the role and the database `idivm`, or leave nothing behind."""
    for leftover in data.parent.glob(f"{_UNFINISHED}*"):
        _remove(leftover)
    staging = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=data.parent))
    try:
        account.own(staging)
        _run(account, [installation.program("initdb"), "-D", str(staging), *_initdb_options()])
        configuration = str(staging / "postgresql.conf")
        _run(account, ["/bin/sh", "-c", 'cat >>"$1"', "sh", configuration], _SETTINGS)
        single = [installation.program("postgres"), "--single", "-j", "-D", str(staging)]
        # In single-user mode with -j, a semicolon and an empty line end a statement.
        _run(account, [*single, "-c", "exit_on_error=on", "postgres"], _first_statements(password))
        staging.rename(data)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _remove(folder: Path) -> None:
    """Remove a folder. The initdb of a killed process may still create and remove files in it."""
    for _ in range(_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
    shutil.rmtree(folder)


def _initdb_options() -> list[str]:
    # Rows sort by code point on every machine. Only functions such as upper() depend on a language.
    letters = "UTF-8" if sys.platform == "darwin" else "C.UTF-8"
    return [
        "--username=postgres",
        "--encoding=UTF8",
        "--locale=C",
        f"--lc-ctype={letters}",
        "--data-checksums",
        # The socket is in a folder that only the server's user may enter.
        "--auth-local=trust",
        "--auth-host=scram-sha-256",
    ]


def _first_statements(password: str) -> str:
    role = sql.SQL("CREATE ROLE {} LOGIN CREATEDB PASSWORD {}").format(
        sql.Identifier(NAME), sql.Literal(password)
    )
    database = sql.SQL("CREATE DATABASE {0} OWNER {0}").format(sql.Identifier(NAME))
    # Otherwise the role's tables would be created in the schema with the role's name, which is idivm's
    # catalog.
    path = sql.SQL("ALTER ROLE {} SET search_path = public").format(sql.Identifier(NAME))
    return "".join(f"{statement.as_string()};\n\n" for statement in (role, database, path))


def _run(account: Account, command: list[str], text: str = "") -> None:
    done = run_as(account, command, text=text)
    if done.returncode != 0:
        said = [line for line in done.stdout.splitlines() if line.strip()]
        reason = next((line for line in reversed(said) if "rror:" in line or "FATAL" in line), "")
        raise ServerError(
            f"A new PostgreSQL cluster could not be made, {Path(command[0]).name} says: "
            f"{reason or (said or ['nothing'])[-1]}"
        )
