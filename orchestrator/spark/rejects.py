"""Where rejected rows stand in their files, found out only when there are any.

A task knows a row by its place in the partition. The same scan once more, with the file and the
block of each row, turns that into the place in the file; for text, lines are counted as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from psycopg import Connection

from orchestrator.runtime import catalog_loads
from orchestrator.spark.copying import CORRUPT
from orchestrator.spark.plain import local_path
from orchestrator.spark.sources import Frame, cut, shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE, _BLOCK, _PLACE = "idivm_file", "idivm_block", "idivm_place"
_POSITION = "idivm_at"
_PART_BITS = 33
_MOST_LOCATED = 10_000
_MOST_BLANKS = 100_000

Blocks = Mapping[tuple[str, int], tuple[int, int]]
"""For each block of each file, what its rows are numbered from, and how many there are."""


def locate(spark: SparkSession, connection: Connection[Any], load: int, frame: Frame) -> None:
    """Notes file, row number and line of the rejected rows of a load from files."""
    wanted = catalog_loads.not_located(connection, load, _MOST_LOCATED)
    if not wanted or not frame.files:
        return
    cut(spark, frame)
    scan = _tagged(frame.scan)
    found = _found(shape(scan, frame.source, keep=(_FILE, _BLOCK, _PLACE)), wanted)
    files = sorted({row[_FILE] for row in found})
    blocks = _blocks(scan, files)
    lines = _Lines(spark, frame, files)
    for row in found:
        file, number = row[_FILE], _number(blocks, row[_FILE], row[_BLOCK], row[_PLACE])
        part, position = _part_and_position(row[_POSITION])
        catalog_loads.note_place(
            *(connection, load, part, position),
            file=local_path(file) or file,
            row=number,
            line=lines.line(file, number),
        )


def _tagged(scan: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return scan.select(
        "*",
        f.col("_metadata.file_path").alias(_FILE),
        f.col("_metadata.file_block_start").alias(_BLOCK),
        f.monotonically_increasing_id().alias(_PLACE),
    )


def _found(rows: DataFrame, wanted: list[tuple[int, int]]) -> list[Any]:
    """The rows at some positions of their partitions."""
    from pyspark.sql import functions as f

    # With all columns, as in the load: Spark passes over torn lines when nobody asks for them. Of files with
    # types none: Python does not have all of their values.
    columns = ["*"] if CORRUPT in rows.columns else [_FILE, _BLOCK, _PLACE]
    numbered = rows.select(*columns, f.monotonically_increasing_id().alias(_POSITION))
    numbers = [(part << _PART_BITS) + position - 1 for part, position in wanted]
    return numbered.where(f.col(_POSITION).isin(numbers)).collect()


def _part_and_position(number: int) -> tuple[int, int]:
    """What Spark's increasing numbers are made of; positions begin with 1.

    >>> _part_and_position((2 << 33) + 4)
    (2, 5)
    """
    return number >> _PART_BITS, (number & ((1 << _PART_BITS) - 1)) + 1


def _blocks(scan: DataFrame, files: list[str]) -> Blocks:
    from pyspark.sql import functions as f

    counted = scan.where(f.col(_FILE).isin(files)).groupBy(_FILE, _BLOCK)
    rows = counted.agg(f.min(_PLACE).alias("first"), f.count("*").alias("rows")).collect()
    return {(row[_FILE], row[_BLOCK]): (row["first"], row["rows"]) for row in rows}


def _number(blocks: Blocks, file: str, block: int, place: int) -> int:
    """The number of a row in its file, from its place in the scan.

    >>> _number({("a", 0): (0, 10), ("a", 99): (1 << 33, 10)}, "a", 99, (1 << 33) + 4)
    15
    """
    before = sum(
        rows for (name, start), (_, rows) in blocks.items() if name == file and start < block
    )
    return int(before + place - blocks[file, block][0] + 1)


class _Lines:
    """The line of a row: rows and lines differ by the header and by blank lines."""

    def __init__(self, spark: SparkSession, frame: Frame, files: list[str]) -> None:
        options = {name.lower(): value for name, value in frame.source.options.items()}
        self.header = int(frame.header)
        self.blanks: dict[str, list[int]] | None = None
        alone = options.get("multiline", "false").lower() != "true" and "comment" not in options
        if frame.format in ("csv", "json") and alone and files:
            reader = spark.read.format("text")
            if separator := options.get("linesep"):
                reader = reader.option("lineSep", separator)
            self.blanks = _blank_lines(_tagged(reader.load(files)), files)

    def line(self, file: str, row: int) -> int | None:
        if self.blanks is None:
            return None
        line = row + self.header
        for blank in self.blanks.get(file, ()):
            if blank > line:
                break
            line += 1
        return line


def _blank_lines(text: DataFrame, files: list[str]) -> dict[str, list[int]] | None:
    blank = text.where("trim(BOTH ' \t\r' FROM value) = ''").select(_FILE, _BLOCK, _PLACE)
    rows = blank.limit(_MOST_BLANKS + 1).collect()
    if len(rows) > _MOST_BLANKS:
        return None
    found: dict[str, list[int]] = defaultdict(list)
    blocks = _blocks(text, files) if rows else {}
    for row in rows:
        found[row[_FILE]].append(_number(blocks, row[_FILE], row[_BLOCK], row[_PLACE]))
    return {file: sorted(lines) for file, lines in found.items()}
