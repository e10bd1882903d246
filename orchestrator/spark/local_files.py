"""Files of this machine: the temporary folders of sessions, and the sizes of sources."""

from __future__ import annotations

import fcntl
import glob
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_FOLDER, _LOCK = "idivm-spark-", "lock"
_SMALL = 32 << 20


@contextmanager
def own_folder() -> Iterator[Path]:
    """Create a temporary folder for a session or a stream, and remove those whose process was killed."""
    temporary = Path(tempfile.gettempdir())
    for folder_left in temporary.glob(f"{_FOLDER}*"):
        with suppress(OSError), (folder_left / _LOCK).open("rb") as lock:
            # The process of a live session holds the lock.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder_left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_FOLDER, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with (folder / _LOCK).open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder


def is_small(paths: Sequence[str]) -> bool:
    """Return whether a source with these paths is known to be small: files of this machine of a few megabytes."""
    size = 0
    for path in paths:
        if re.match(r"[a-z][a-z0-9+.-]+:", path):
            return False
        for name in glob.iglob(path) if re.search(r"[*?\[{]", path) else [path]:  # noqa: PTH207 - absolute too
            inside = Path(name).rglob("*") if Path(name).is_dir() else [Path(name)]
            for item in inside:
                size += item.stat().st_size if item.is_file() else 0
                if size > _SMALL:
                    return False
    return size > 0
