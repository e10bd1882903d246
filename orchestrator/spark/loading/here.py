"""Copy plain CSV files of this machine in this process, without starting Java.

Spark would only start tasks that read ranges of bytes and send them to PostgreSQL, as threads do here. Names,
sizes, times and ranges equal what Spark would see, so either method can continue a load of the other.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from orchestrator.frontend.facts import Relation
from orchestrator.spark.formats.blocks import Range, Reader
from orchestrator.spark.formats.options import FILES, checked
from orchestrator.spark.formats.text import PACKED, openings_of, with_columns
from orchestrator.spark.formats.text_options import csv_reader
from orchestrator.spark.loading.copying import CopyTask, copy_ranges
from orchestrator.spark.loading.sources import Frame, Source, format_of, located, split_of

_PLAIN = re.compile(r"[\w./-]+", re.ASCII)
"""Names that are the same as a path and as a URI."""


def threads_of(master: str) -> int | None:
    """Return how many tasks a local master runs at once; None for other masters.

    >>> threads_of("local[3]"), threads_of("local"), threads_of("spark://host:7077")
    (3, 1, None)
    """
    match = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\d+)?\])?", master)
    if match is None:
        return None
    if match[1] == "*":
        return os.cpu_count() or 1
    return int(match[1] or 1)


def open_here(source: Source, table: Relation | None) -> Frame | None:
    """Return a source that this process can copy; None if Spark is needed."""
    if table is None or source.where or source.select or format_of(source) != "csv":
        return None
    options = checked("csv", source.options)
    files = _files(source.paths)
    if not files or set(options) & set(FILES):
        return None
    reader, header = csv_reader(source.paths, options)
    if reader.spans_lines or reader.escape is not None or reader.encoding is not None:
        return None
    listed: list[dict[str, Any]] = []
    for path in files:
        status = path.stat()
        listed.append(
            {
                "file": path.as_uri(),
                "bytes": status.st_size,
                "time": status.st_mtime_ns // 1_000_000,
            }
        )
    names = [listed_file["file"] for listed_file in listed]
    text = with_columns(reader, header, names, openings_of(names))
    split = split_of(source, listed)
    return Frame(None, None, source, "csv", files=tuple(listed), text=text, split=split)


def _files(names: Sequence[str]) -> list[Path]:
    """Return the files of sources; none if Spark might read other files, or read them differently."""
    files: list[Path] = []
    for name in names:
        path = Path(located(name))
        if (
            ".." in path.parts
            or not _PLAIN.fullmatch(str(path).replace("*", ""))
            or "*" in str(path.parent)
        ):
            return []
        if "*" in path.name:
            folder = path.parent
            inside = sorted(folder.iterdir()) if folder.is_dir() else []
            files += [file for file in inside if fnmatch(file.name, path.name)]
        elif path.is_dir():
            files += path.iterdir()
        else:
            files.append(path)
    unusual = (
        not _PLAIN.fullmatch(str(path))
        or path.name.startswith((".", "_"))
        or path.suffix in PACKED
        or path.is_symlink()
        or not path.is_file()
        or not path.stat().st_size
        for path in files
    )
    return [] if any(unusual) or len(set(files)) < len(files) else sorted(files)


def copy_here(
    task: CopyTask, reader: Reader, parts: Sequence[Sequence[Range]], threads: int
) -> int:
    """Copy partitions by threads of this process; return the number of partitions."""
    attempt = secrets.randbits(62)
    pool = ThreadPoolExecutor(min(threads, len(parts)))
    try:
        copies = [
            pool.submit(copy_ranges, task, reader, part, attempt, ranges)
            for part, ranges in enumerate(parts)
        ]
        wait(copies, return_when=FIRST_EXCEPTION)
    finally:
        pool.shutdown(cancel_futures=True)
    for copy in copies:
        if not copy.cancelled():
            copy.result()
    return len(parts)
