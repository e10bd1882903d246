r"""Plain CSV on its way to PostgreSQL, which takes it apart itself, faster than anyone.

Files are cut into ranges of bytes. A range is the lines that begin in it; its task sends them as they
are, in blocks of whole lines. This is for loads of whole files that stop at a bad row. Every line has
to be a row: what Spark's CSV reader would find torn is refused here as well, and blank lines, which it
passes over, are left out.
"""

from __future__ import annotations

import csv
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from orchestrator.spark.errors import LoadError

_BLOCK = 1 << 20
_MOST = 1 << 30
"""PostgreSQL takes no longer line."""
_OPENING = 1 << 20
"""To open another file costs as much as to read so many bytes."""
_BOM = b"\xef\xbb\xbf"
_CONTINUES = "a field with a line break, or a quote that is not closed (--options multiLine=true)"


@dataclass(frozen=True)
class Range:
    """The lines of a file that begin in a range of its bytes."""

    path: str
    start: int
    end: int


@dataclass(frozen=True)
class Block:
    """Whole lines of a file as they stand there, and where they begin."""

    path: str
    start: int
    data: bytes
    first: bool
    """Whether the file has no more than blank lines before them."""


class TornError(Exception):
    """A line that cannot be a row by itself: which row of a block it would be, and why."""

    def __init__(self, row: int, reason: str) -> None:
        """Names the row, counted from 0."""
        super().__init__(reason)
        self.row, self.reason = row, reason


def local_path(uri: str) -> str | None:
    """The path of a file that workers open by themselves.

    >>> local_path("file:///tmp/a%20b.csv"), local_path("s3a://bucket/a.csv")
    ('/tmp/a b.csv', None)
    """
    return unquote(re.sub(r"^file:/+", "/", uri)) if uri.startswith("file:") else None


def first_line(path: str, separator: str) -> tuple[str, list[str]] | None:
    """The first line of a file that is not blank, and the fields in it; None if it is not plain."""
    try:
        block = next(blocks(Range(path, 0, 1)), None)
        lines = _unified(block).split(b"\n") if block else []
        line = next((line for line in lines if line.strip(b" \t")), b"").decode()
        fields = next(csv.reader([line], delimiter=separator, strict=True), [])
    except (OSError, ValueError, LoadError, csv.Error):
        return None  # Spark will say what is wrong with it
    return (line, fields) if fields else None


def are_names(fields: Sequence[str]) -> bool:
    """Whether the fields of a header name columns, so that nobody has to make names up.

    >>> are_names(["a", "b"]), are_names(["a", ""]), are_names(["a", "A"])
    (True, False, False)
    """
    folded = {field.lower() for field in fields}
    return "" not in folded and len(folded) == len(fields)


def cut(files: Sequence[tuple[str, int]], size: int) -> tuple[tuple[Range, ...], ...]:
    """Files, given with their sizes, cut into partitions of about a size.

    >>> [[(one.path, one.start, one.end) for one in part] for part in cut([("a", 5 << 20), ("b", 9)], 4 << 20)]
    [[('a', 0, 2621440)], [('a', 2621440, 5242880), ('b', 0, 9)]]
    """
    parts: list[list[Range]] = []
    room = 0
    for path, length in files:
        number = -(-length // size)
        bounds = [length * one // number for one in range(number + 1)] if number else []
        for start, end in pairwise(bounds):
            if not parts or end - start > room:
                parts.append([])
                room = size
            parts[-1].append(Range(path, start, end))
            room -= end - start + _OPENING
    return tuple(map(tuple, parts))


def digest(parts: Sequence[Sequence[Range]]) -> str:
    """What tells one way of cutting files from another."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def blocks(one: Range) -> Iterator[Block]:
    """The lines of a range."""
    with _opened(one.path) as file:

        def block(data: bytes) -> Block:
            before = os.pread(file.fileno(), position, 0) if position <= _BLOCK else b"much"
            return Block(one.path, position, data, not before.removeprefix(_BOM).strip())

        if os.fstat(file.fileno()).st_size < one.end:
            raise LoadError(f"{one.path} is shorter than it was: run the load again.")
        # The line that the byte before belongs to is another range's.
        position = file.seek(max(one.start - 1, 0))
        skipping, rest = one.start > 0, b""
        while position < one.end:
            read = file.read(_BLOCK)
            data = rest + read
            if skipping:
                line = data.find(b"\n") + 1
                skipping = not line
                position += line or len(data)
                data = data[line:] if line else b""
            if not read:
                if data:
                    yield block(data + b"\n")
                return
            if skipping or position >= one.end:
                continue
            if position + len(data) <= one.end:
                whole = data.rfind(b"\n") + 1
            else:
                whole = data.find(b"\n", max(one.end - position - 1, 0)) + 1
            if whole:
                yield block(data[:whole])
                position += whole
            elif len(data) > _MOST:
                raise LoadError(f"{one.path} has a line of more than 1 GB.")
            rest = data[whole:]


@contextmanager
def _opened(path: str) -> Iterator[FileIO]:
    try:
        with Path(path).open("rb", buffering=0) as file:
            yield file
    except OSError as error:
        raise LoadError(
            f"A worker of Spark cannot read {path} ({error.strerror}): every worker needs the file "
            "under the same path."
        ) from error


def read_again(block: Block, size: int) -> Block:
    """A block of which only the beginning and the size are left."""
    with Path(block.path).open("rb") as file:
        file.seek(block.start)
        data = file.read(size)
    return replace(block, data=data if data.endswith(b"\n") else data + b"\n")


def rows(block: Block, header: bytes | None) -> tuple[bytes, int]:
    r"""The lines of a block that are rows, and how many.

    >>> rows(Block("t.csv", 0, b'a,b\r\n\r\n1,"x"\r\n \n2,y\n', True), b"a,b")
    (b'1,"x"\n2,y\n', 2)
    """
    data = _unified(block)
    data = _without(data, _not_rows(data, header if block.first else None, block.path))
    characters = np.frombuffer(data, np.uint8)
    ends = characters == ord("\n")
    if b'"' in data:
        # Counted modulo 256, which leaves odd and even as they are.
        quotes = np.cumsum(characters == ord('"'), dtype=np.uint8)[ends] & 1
        if quotes.any():
            raise TornError(int(quotes.argmax()), _CONTINUES)
    if data.startswith(b"\\.\n") or b"\n\\.\n" in data:
        # Before version 18, a server takes it for the end of the data.
        raise TornError(data.split(b"\n").index(b"\\."), "the line has 1 field")
    return data, int(np.count_nonzero(ends))


def place(block: Block, row: int, header: bytes | None) -> tuple[int, int, str]:
    """The number of a block's row in its file, that of its line, and the line; all from 1."""
    rows_before, lines_before = 0, 0
    for other in blocks(Range(block.path, 0, block.start)) if block.start else ():
        data = _unified(other)
        lines = data.count(b"\n")
        lines_before += lines
        rows_before += lines - len(_not_rows(data, header if other.first else None, block.path))
    data = _unified(block)
    left_out = {start for start, _ in _not_rows(data, header if block.first else None, block.path)}
    at = seen = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        if at not in left_out:
            seen += 1
            if seen > row:
                return rows_before + seen, lines_before + number, line.decode(errors="replace")
        at += len(line) + 1
    raise AssertionError("no such row")


def _unified(block: Block) -> bytes:
    """The lines of a block with ends of one kind, and without the mark that a file may begin with."""
    data = block.data if block.start else block.data.removeprefix(_BOM)
    if b"\r" in data:
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data


def _not_rows(data: bytes, header: bytes | None, path: str) -> list[tuple[int, int]]:
    """Where blank lines and the header begin and end."""
    characters = np.frombuffer(data, np.uint8)
    # A line that does not begin with white space is not blank: few have to be looked at.
    begins = np.flatnonzero((characters[:-1] == ord("\n")) & (characters[1:] <= ord(" "))) + 1
    found = []
    for start in [0, *begins.tolist()]:
        end = data.index(b"\n", start) + 1
        if not data[start:end].strip(b" \t\n"):
            found.append((start, end))
    if header is not None:
        start = 0
        for blank, end in found:
            start = end if blank == start else start
        end = data.find(b"\n", start) + 1
        if end and data[start : end - 1] != header:
            raise LoadError(
                f"{path} begins with the line {data[start : end - 1].decode(errors='replace')!r}, and "
                f"another file with {header.decode()!r}: load files with different headers apart."
            )
        if end:
            found = sorted([*found, (start, end)])
    return found


def _without(data: bytes, spans: Sequence[tuple[int, int]]) -> bytes:
    if not spans:
        return data
    kept: list[Any] = []
    at = 0
    for start, end in spans:
        kept.append(data[at:start])
        at = end
    return b"".join([*kept, data[at:]])
