"""The folders of files that outlive a process: the embedded server's home and the cache."""

from __future__ import annotations

import os
from pathlib import Path


def home_directory() -> Path:
    """Return the embedded server's home: `IDIVM_HOME`, or a default that the server's user can reach.

    Root's own home is closed to all other users, and PostgreSQL never runs as root. So root keeps its server
    under /var/lib.
    """
    if chosen := os.environ.get("IDIVM_HOME"):
        return Path(chosen).expanduser().absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/idivm")
    return Path.home() / ".local" / "share" / "idivm"


def cache_directory() -> Path:
    """Return the folder for files that can be created again at any time."""
    if os.geteuid() == 0:
        return Path("/var/cache/idivm")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "idivm"
