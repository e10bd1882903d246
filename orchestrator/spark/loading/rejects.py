"""Find where rejected rows are in their files; this runs only if there are rejected rows.

A task knows a row of text by its byte position in its ranges, and any other row by its number in the
partition. For the latter, the same scan runs again with the place of each row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from psycopg import Connection

from orchestrator.catalog import loads as catalog_loads
from orchestrator.spark.formats.blocks import local_path, places
from orchestrator.spark.formats.text import FILE, LINE, ROW, SPLIT
from orchestrator.spark.loading.sources import Frame, cut, shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE, _BLOCK, _PLACE = "idivm: file", "idivm: block", "idivm: place"
_POSITION = "idivm: at"
_PART_BITS = 33
_MOST_LOCATED = 10_000

Places = Mapping[tuple[int, int], tuple[str, int, int | None]]
"""For the part and position of a row: its file, its number in the file, and its line."""
Blocks = Mapping[tuple[str, int], tuple[int, int]]
"""For each block of each file: the number of its first row, and the number of its rows."""


def locate(
    spark: Callable[[], SparkSession], connection: Connection[Any], load: int, frame: Frame
) -> None:
    """Record the file, row number and line of the rejected rows of a load from files."""
    wanted = catalog_loads.not_located(connection, load, _MOST_LOCATED)
    if not wanted or not frame.files:
        return
    if frame.ranges:
        places_found = _in_ranges(frame, wanted)
    elif frame.text is not None:
        places_found = _in_lines(spark(), frame, wanted)
    else:
        places_found = _in_rows(spark(), frame, wanted)
    for (part, position), (file, row, line) in places_found.items():
        catalog_loads.note_place(
            *(connection, load, part, position),
            file=local_path(file) or file,
            row=row,
            line=line,
        )


def _in_ranges(frame: Frame, wanted: list[tuple[int, int]]) -> Places:
    """Return the places of rows that are identified by bytes of a partition's ranges."""
    assert frame.text is not None
    starts: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    ranges = frame.ranges
    for part, position in wanted:
        rest = position
        for range_ in ranges[part]:
            if rest < range_.end - range_.start:
                starts[range_.path][range_.start + rest] = (part, position)
                break
            rest -= range_.end - range_.start
    return {
        starts[file][start]: (file, row, line)
        for file in starts
        for start, (row, line) in places(file, starts[file], frame.text.reader).items()
    }


def _in_lines(spark: SparkSession, frame: Frame, wanted: list[tuple[int, int]]) -> Places:
    """Return the places of rows of text that Spark has divided into lines."""
    assert frame.text is not None
    cut(spark, frame)
    scan = frame.text.scan(places=True)
    keep = (FILE, SPLIT, LINE, ROW)
    rows_found = _rows_at(shape(scan, frame.source, keep), keep, wanted)
    rows = lines = {}
    if any(row[SPLIT] for row in rows_found):
        rows, lines = _by_split(scan), _by_split(frame.text.lines)
    return {
        _part_and_position(row[_POSITION]): (
            row[FILE],
            row[ROW] + _before(rows, row[FILE], row[SPLIT]),
            row[LINE] + _before(lines, row[FILE], row[SPLIT]),
        )
        for row in rows_found
    }


def _by_split(frame: DataFrame) -> dict[tuple[str, int], int]:
    counted = frame.groupBy(FILE, SPLIT).count().collect()
    return {(row[FILE], row[SPLIT]): row["count"] for row in counted}


def _before(counts: Mapping[tuple[str, int], int], file: str, split: int) -> int:
    return sum(n for (name, start), n in counts.items() if name == file and start < split)


def _in_rows(spark: SparkSession, frame: Frame, wanted: list[tuple[int, int]]) -> Places:
    """Return the places of rows in files without lines."""
    cut(spark, frame)
    scan = _with_places(frame.scan)
    keep = (_FILE, _BLOCK, _PLACE)
    rows_found = _rows_at(shape(scan, frame.source, keep), keep, wanted)
    blocks = _blocks(scan, sorted({row[_FILE] for row in rows_found}))
    return {
        _part_and_position(row[_POSITION]): (
            row[_FILE],
            _number(blocks, row[_FILE], row[_BLOCK], row[_PLACE]),
            None,
        )
        for row in rows_found
    }


def _with_places(scan: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return scan.select(
        "*",
        f.col("_metadata.file_path").alias(_FILE),
        f.col("_metadata.file_block_start").alias(_BLOCK),
        f.monotonically_increasing_id().alias(_PLACE),
    )


def _rows_at(rows: DataFrame, keep: Sequence[str], wanted: list[tuple[int, int]]) -> list[Any]:
    """Return some columns of the rows at the given positions of their partitions."""
    from pyspark.sql import functions as f

    numbered = rows.select(*keep, f.monotonically_increasing_id().alias(_POSITION))
    numbers = [(part << _PART_BITS) + position - 1 for part, position in wanted]
    return numbered.where(f.col(_POSITION).isin(numbers)).collect()


def _part_and_position(number: int) -> tuple[int, int]:
    """Return the partition and position in a number of Spark's increasing IDs; positions begin with 1.

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
    """Return the number of a row in its file, given its place in the scan.

    >>> _number({("a", 0): (0, 10), ("a", 99): (1 << 33, 10)}, "a", 99, (1 << 33) + 4)
    15
    """
    before = sum(
        rows for (name, start), (_, rows) in blocks.items() if name == file and start < block
    )
    return int(before + place - blocks[file, block][0] + 1)
