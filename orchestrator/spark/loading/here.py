"""Plain CSV on this machine: this process copies the files, and no Java has to start.

Spark would only start tasks that read ranges of bytes and send them to PostgreSQL, as threads do here. Names,
sizes, times and ranges are what Spark would see, so either can continue what the other has begun.
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
"""Names that have the same form as paths and as URIs."""


def threads_of(master: str) -> int | None:
    """Return how many tasks a master on this machine runs at once.

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
    """Return a source that this process can copy; None if that takes Spark."""
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
    names = [item["file"] for item in listed]
    text = with_columns(reader, header, names, openings_of(names))
    split = split_of(source, listed)
    return Frame(None, None, source, "csv", files=tuple(listed), text=text, split=split)


def _files(names: Sequence[str]) -> list[Path]:
    """Return the files of sources, none if Spark might read others or read them otherwise."""
    found: list[Path] = []
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
            found += [item for item in inside if fnmatch(item.name, path.name)]
        elif path.is_dir():
            found += path.iterdir()
        else:
            found.append(path)
    unusual = (
        not _PLAIN.fullmatch(str(path))
        or path.name.startswith((".", "_"))
        or path.suffix in PACKED
        or path.is_symlink()
        or not path.is_file()
        or not path.stat().st_size
        for path in found
    )
    return [] if any(unusual) or len(set(found)) < len(found) else sorted(found)


def copy_here(
    task: CopyTask, reader: Reader, parts: Sequence[Sequence[Range]], threads: int
) -> int:
    """Copy partitions by threads of this process; return how many there are."""
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
