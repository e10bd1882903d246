"""Finding the files of a stream that have arrived since the last batch."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_MOST_BYTES = 1 << 30
"""The maximum size of a batch of several files."""


@dataclass(frozen=True)
class Arrived:
    """The files that have arrived since the last batch."""

    batch: list[dict[str, Any]]
    """The files of the next batch."""
    waiting: int
    """The number of further files."""
    changed: list[str]
    """Files whose size has changed since they were loaded."""


def arrived(
    paths: Sequence[str], loaded: Mapping[str, int], most: int, spark: Callable[[], SparkSession]
) -> Arrived:
    """Return the files of folders and patterns that are not loaded, the oldest first.

    As in Spark, names that begin with `_` or `.` are files that somebody is still writing.
    """
    present = {
        file["file"]: file
        for path in paths
        for file in (_remote(spark(), path) if is_uri(path) else _local(path))
        if not Path(file["file"]).name.startswith(("_", "."))
    }
    changed = [
        name for name, file in present.items() if loaded.get(name, file["bytes"]) != file["bytes"]
    ]
    files = [file for name, file in present.items() if name not in loaded]
    for file in files:
        if partition := re.search(r"/([^/=]+=[^/]*)/", file["file"]):
            raise UsageError(
                f"The folder {partition[1]} holds the value of a column, which a stream cannot read: load such "
                "files with idivm load, or give the files names of their own."
            )
    files.sort(key=lambda file: (file["time"], file["file"]))
    sizes = accumulate(file["bytes"] for file in files[:most])
    fitting = max(1, sum(size <= _MOST_BYTES for size in sizes))
    return Arrived(files[:fitting], len(files[fitting:]), changed)


def path_of(file: dict[str, Any]) -> str:
    """Return the name by which a load opens a file."""
    name: str = file["file"]
    if name.startswith("file:///"):
        from urllib.parse import unquote, urlsplit

        return glob.escape(unquote(urlsplit(name).path))
    return name


def is_uri(path: str) -> bool:
    """Return whether a path is a URI."""
    return re.match(r"[a-z][a-z0-9+.-]+:", path) is not None


def _local(path: str) -> Iterator[dict[str, Any]]:
    folder = Path(path).absolute()
    paths = folder.iterdir() if folder.is_dir() else map(Path, glob.glob(str(folder)))  # noqa: PTH207
    for file in paths:
        try:
            status = file.stat()
        except FileNotFoundError:
            continue  # The file was renamed or deleted meanwhile.
        if file.is_file() and status.st_size:
            yield {
                "file": file.as_uri(),
                "bytes": status.st_size,
                "time": status.st_mtime_ns // 1_000_000,
            }


def _remote(spark: SparkSession, path: str) -> Iterator[dict[str, Any]]:
    jvm: Any = spark._jvm
    pattern = jvm.org.apache.hadoop.fs.Path(path)
    system = pattern.getFileSystem(spark._jsc.hadoopConfiguration())
    for top in system.globStatus(pattern) or ():
        for status in system.listStatus(top.getPath()):
            if status.isFile() and status.getLen():
                yield {
                    "file": status.getPath().toString(),
                    "bytes": status.getLen(),
                    "time": status.getModificationTime(),
                }
