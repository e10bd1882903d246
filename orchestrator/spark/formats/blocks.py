r"""Files of text in blocks of whole lines, and where a row stands in its file.

Files are cut into ranges of bytes. A range has the lines that begin in it, so that every line belongs
to one range. A reader (`csv_rows.py`, `json_rows.py`) takes the blocks of a range apart.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

from orchestrator.spark.errors import LoadError

_BLOCK = 1 << 20
_MOST = 1 << 30
"""The maximum size of a line that PostgreSQL accepts."""
_OPENING_COST = 1 << 20
"""Opening another file costs as much as reading so many bytes."""
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Range:
    """The lines of a file that begin within a range of its bytes."""

    path: str
    start: int
    end: int


@dataclass(frozen=True)
class Block:
    """Unchanged whole lines of a file, and the byte where they begin."""

    path: str
    start: int
    data: bytes
    first: bool
    """Whether only blank lines precede them in the file."""


@dataclass(frozen=True)
class Torn:
    """A row that cannot be parsed."""

    at: int
    """The byte of the block where the row begins."""
    reason: str
    content: str
    ends: bool = False
    """Whether the rows after it cannot be separated, so that the load must end."""


@dataclass(frozen=True)
class Rows:
    """The rows of a block."""

    columns: Sequence[Any]
    """Arrow arrays."""
    starts: Sequence[int]
    """For each row, the byte of the block where it begins."""
    torn: Sequence[Torn] = ()


class Reader(Protocol):
    """Parses blocks of a format into rows."""

    @property
    def encoding(self) -> str | None:
        """The encoding of the files, if it is not UTF-8."""

    @property
    def spans_lines(self) -> bool:
        """Whether a row may span several lines, so that a file is read in one piece."""

    @property
    def whole_files(self) -> bool:
        """Whether a file can only be parsed as a whole."""

    def whole(self, data: bytes) -> int:
        """Return how many bytes at the beginning are whole rows."""

    def take_apart(self, block: Block) -> Rows:
        """Return the rows of a block."""

    def count(self, block: Block) -> int:
        """Return the number of rows of a block."""

    def plainly(self, data: bytes) -> bytes:
        """Return lines in UTF-8, with quotes in COPY's form."""


def local_path(uri: str) -> str | None:
    """Return the path of a file that workers open themselves; None for other files.

    >>> local_path("file:///tmp/a%20b.csv"), local_path("s3a://bucket/a.csv")
    ('/tmp/a b.csv', None)
    """
    return unquote(re.sub(r"^file:/+", "/", uri)) if uri.startswith("file:") else None


def cut(files: Sequence[tuple[str, int]], size: int) -> tuple[tuple[Range, ...], ...]:
    """Divide files, given with their sizes, into partitions of about a given size.

    >>> parts = cut([("a", 5 << 20), ("b", 9)], 4 << 20)
    >>> [[(range_.path, range_.start, range_.end) for range_ in part] for part in parts]
    [[('a', 0, 2621440)], [('a', 2621440, 5242880), ('b', 0, 9)]]
    """
    parts: list[list[Range]] = []
    space = 0
    for path, length in files:
        number = -(-length // size)
        bounds = [length * part // number for part in range(number + 1)] if number else []
        for start, end in pairwise(bounds):
            if not parts or end - start > space:
                parts.append([])
                space = size
            parts[-1].append(Range(path, start, end))
            space -= end - start + _OPENING_COST
    return tuple(map(tuple, parts))


def digest(parts: Sequence[Sequence[Range]]) -> str:
    """Return a digest that identifies a division of files."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def blocks(part: Range) -> Iterator[Block]:
    """Yield the lines of a range in blocks, without the byte order mark of a file."""
    with _opened(part.path) as file:

        def block(data: bytes) -> Block:
            before = os.pread(file.fileno(), position, 0) if position <= _BLOCK else b"much"
            first = not before.removeprefix(BOM).strip()
            mark = len(BOM) if position == 0 and data.startswith(BOM) else 0
            return Block(part.path, position + mark, data[mark:], first)

        if os.fstat(file.fileno()).st_size < part.end:
            raise LoadError(f"{part.path} is shorter than it was: run the load again.")
        # A line that begins before the range belongs to the previous range.
        position = file.seek(max(part.start - 1, 0))
        skipping, rest = part.start > 0, b""
        while position < part.end:
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
            if skipping or position >= part.end:
                continue
            if position + len(data) <= part.end:
                whole = data.rfind(b"\n") + 1
            else:
                whole = data.find(b"\n", max(part.end - position - 1, 0)) + 1
            if whole:
                yield block(data[:whole])
                position += whole
            elif len(data) > _MOST:
                raise LoadError(f"{part.path} has a line of more than 1 GB.")
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


def in_rows(pieces: Iterable[Block], reader: Reader) -> Iterator[Block]:
    """Yield blocks that end where a row ends; the end of a file ends its last row."""
    if not reader.spans_lines:
        yield from pieces
        return
    waiting: list[Block] = []
    for piece in pieces:
        if waiting and waiting[0].path != piece.path:
            yield _joined(waiting)
            waiting = []
        waiting.append(piece)
        if sum(len(block.data) for block in waiting) > _MOST:
            raise LoadError(
                f"{piece.path} has a row of more than 1 GB, or a quote that is not closed."
            )
        if reader.whole_files:
            continue
        joined = _joined(waiting)
        if size := reader.whole(joined.data):
            yield replace(joined, data=joined.data[:size])
            first = joined.first and not joined.data[:size].strip()
            rest = joined.data[size:]
            remaining = replace(joined, start=joined.start + size, data=rest, first=first)
            waiting = [remaining] if rest else []
    if waiting:
        yield _joined(waiting)


def _joined(pieces: Sequence[Block]) -> Block:
    if len(pieces) == 1:
        return pieces[0]
    return replace(pieces[0], data=b"".join(piece.data for piece in pieces))


def reread(block: Block, size: int) -> Block:
    """Return a block with its data, given its beginning and its size."""
    with Path(block.path).open("rb") as file:
        file.seek(block.start)
        data = file.read(size)
    return replace(block, data=data if data.endswith(b"\n") else data + b"\n")


def places(path: str, starts: Iterable[int], reader: Reader) -> dict[int, tuple[int, int]]:
    """Return row and line numbers, counted from 1, of the rows of a file that begin at the given bytes."""
    wanted = sorted(set(starts), reverse=True)
    result: dict[int, tuple[int, int]] = {}
    rows = lines = 0
    for block in in_rows(blocks(Range(path, 0, wanted[0] + 1)), reader):
        end = block.start + len(block.data)
        while wanted and wanted[-1] < end:
            before = replace(block, data=block.data[: wanted[-1] - block.start])
            result[wanted.pop()] = (
                rows + (reader.count(before) if before.data else 0) + 1,
                lines + before.data.count(b"\n") + 1,
            )
        rows += reader.count(block)
        lines += block.data.count(b"\n")
    return result
