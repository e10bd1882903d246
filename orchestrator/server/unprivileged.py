"""Run PostgreSQL's programs as another user if the caller is root, because PostgreSQL refuses to run as root.

`python -m orchestrator.server.unprivileged PROGRAM ARGUMENT...` becomes that program: in the same process,
without root's rights, and in a session that the terminal's signals do not reach.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import ServerError
from orchestrator.server.binaries import Installation
from orchestrator.server.paths import cache_directory

_ENVIRONMENT = ("PATH", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


@dataclass(frozen=True)
class Account:
    """A user of the operating system that runs a server."""

    name: str
    uid: int
    gid: int

    def own(self, path: Path) -> None:
        """Give a newly created file or folder to this account."""
        os.chown(path, self.uid, self.gid, follow_symlinks=False)


def server_account(*owners: Path) -> Account:
    """Return the account that runs a server: the caller, or for root the owner of the first path that root
    does not own.

    If there is no such path, root's servers belong to `postgres` or, if that user does not exist, to
    `nobody`.
    """
    if os.geteuid() != 0:
        return _account(os.geteuid(), os.getegid())
    for path in owners:
        if path.exists() and (owner := path.stat()).st_uid != 0:
            return _account(owner.st_uid, owner.st_gid)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid)
    raise ServerError(
        "PostgreSQL does not run as root, and there is neither a user postgres nor nobody to run "
        "it as: create one (useradd --system postgres), or call idivm as an ordinary user."
    )


def run_as(
    account: Account,
    command: Sequence[str | Path],
    *,
    cwd: Path | str = "/",
    text: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a command as `account` in a session of its own. Its errors go to its output."""
    root = os.geteuid() == 0
    # The caller's environment may contain secrets and PG* settings, so pass only these variables.
    kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    try:
        return subprocess.run(
            command,
            cwd=cwd,
            env={**kept, "LC_ALL": "C"},
            text=True,
            errors="replace",
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=0o077,
            user=account.uid if root else None,
            group=account.gid if root else None,
            extra_groups=[] if root else None,
        )
    except OSError as error:
        raise ServerError(
            f"{command[0]} cannot be run as user {account.name}: {error.strerror}."
        ) from error


def may_enter(account: Account, folder: Path) -> bool:
    """Return whether `account` can reach a folder through all the folders above it."""
    return run_as(account, ["/bin/sh", "-c", 'cd -- "$1"', "sh", folder]).returncode == 0


def reachable(installation: Installation, account: Account) -> Installation:
    """Return the installation, or a copy of the bundled one if `account` may not enter its folder."""
    if _runs(installation, account):
        return installation
    if not installation.bundled:
        raise ServerError(
            f"The programs in {installation.bindir} cannot be run by user {account.name}, whom "
            "PostgreSQL runs as for root: open that folder to all, or set IDIVM_PG_BIN to another."
        )
    copy = _shared_copy(installation)
    if not _runs(copy, account):
        raise ServerError(
            f"The programs in {copy.bindir} cannot be run by user {account.name}, whom PostgreSQL "
            "runs as for root: open the folders above it to all."
        )
    return copy


def main(arguments: list[str]) -> None:
    """Become the program that the arguments name, without root's rights."""
    if os.geteuid() == 0:
        account = server_account()
        os.setgroups([])
        os.setgid(account.gid)
        os.setuid(account.uid)
    with contextlib.suppress(PermissionError):  # the process already leads a session
        os.setsid()
    os.execv(arguments[0], arguments)


def _account(uid: int, gid: int) -> Account:
    try:
        return Account(pwd.getpwuid(uid).pw_name, uid, gid)
    except KeyError:
        return Account(str(uid), uid, gid)


def _runs(installation: Installation, account: Account) -> bool:
    try:
        # Use initdb, not postgres: it also needs the libraries that are shipped beside it.
        return run_as(account, [installation.program("initdb"), "--version"]).returncode == 0
    except ServerError:
        return False


def _shared_copy(installation: Installation) -> Installation:
    # The programs find their libraries by a relative path, in a folder beside the package.
    prefix = installation.bindir.parent
    package = prefix.parent
    libraries = package.with_name(f"{package.name}.libs")
    parts = [path for path in (prefix, libraries) if path.is_dir()]

    target = cache_directory() / f"postgresql-{installation.version}-{_identity(parts)}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.parent.chmod(0o755)
        staging = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
        try:
            for part in parts:
                shutil.copytree(part, staging / part.relative_to(package.parent), symlinks=True)
            _open_to_all(staging)
            staging.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another process was faster
                raise
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return Installation(target / package.name / prefix.name / "bin", installation.version, True)


def _open_to_all(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o555 if mode & 0o100 else 0o444))


def _identity(folders: Sequence[Path]) -> str:
    digest = hashlib.sha256((folders[0] / "bin" / "postgres").read_bytes())
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            digest.update(f"{path.relative_to(folder)} {path.lstat().st_size}\n".encode())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    main(sys.argv[1:])
