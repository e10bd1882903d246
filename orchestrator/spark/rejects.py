"""Where rejected rows stand in their files, found out only when there are any.

A task knows a row by its place in the partition. The same scan once more, with the file and the
block of each row, turns that into the place in the file; for text, lines are counted as well.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from psycopg import Connection

from orchestrator.spark.arrow import pa
from orchestrator.spark.copying import CORRUPT
from orchestrator.spark.sources import Frame, cut, shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE, _BLOCK, _PLACE = "idivm_file", "idivm_block", "idivm_place"
_FOUND = "part int, position bigint, file string, block bigint, place bigint"
_MOST_BLANKS = 100_000

Blocks = Mapping[tuple[str, int], tuple[int, int]]
"""For each block of each file, what its rows are numbered from, and how many there are."""


def locate(spark: SparkSession, connection: Connection[Any], load: int, frame: Frame) -> None:
    """Notes file, row number and line of the rejected rows of a load from files."""
    wanted: dict[int, set[int]] = defaultdict(set)
    for part, position in connection.execute(
        "SELECT part, position FROM idivm.rejected_rows WHERE load = %s", [load]
    ).fetchall():
        wanted[part].add(position)
    if not wanted or not frame.files:
        return
    cut(spark, frame)
    scan = _tagged(frame.scan)
    rows = shape(scan, frame.source, keep=(_FILE, _BLOCK, _PLACE))
    # The columns that the load reads are read here too: the scan must give the same rows.
    places = rows.select(_FILE, _BLOCK, _PLACE, *([CORRUPT] if frame.corrupt else []))
    found = places.mapInArrow(_picker(dict(wanted)), _FOUND).collect()
    files = sorted({row.file for row in found})
    blocks = _blocks(scan, files)
    lines = _Lines(spark, frame, files)
    for row in found:
        number = _number(blocks, row.file, row.block, row.place)
        connection.execute(
            "UPDATE idivm.rejected_rows SET file = %s, row_number = %s, line = %s"
            " WHERE load = %s AND part = %s AND position = %s",
            [_shown(row.file), number, lines.line(row.file, number), load, row.part, row.position],
        )


def _tagged(scan: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return scan.select(
        "*",
        f.col("_metadata.file_path").alias(_FILE),
        f.col("_metadata.file_block_start").alias(_BLOCK),
        f.monotonically_increasing_id().alias(_PLACE),
    )


def _picker(wanted: Mapping[int, set[int]]) -> Any:
    def pick(batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        part = context.partitionId()
        left = sorted(wanted.get(part, ()))
        passed = 0
        for batch in batches if left else ():
            while left and left[0] <= passed + batch.num_rows:
                position = left.pop(0)
                values = [column[position - passed - 1].as_py() for column in batch.columns[:3]]
                row = zip(_names(), [part, position, *values], strict=True)
                yield pa.RecordBatch.from_pylist([dict(row)], schema=_schema())
            passed += batch.num_rows
            if not left:
                return

    return pick


def _names() -> list[str]:
    return re.findall(r"(\w+) \w+", _FOUND)


def _schema() -> Any:
    kinds = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string()}
    return pa.schema([(name, kinds[kind]) for name, kind in re.findall(r"(\w+) (\w+)", _FOUND)])


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


def _shown(uri: str) -> str:
    """A file as a person names it.

    >>> _shown("file:///tmp/a%20b.csv"), _shown("s3a://bucket/a.csv")
    ('/tmp/a b.csv', 's3a://bucket/a.csv')
    """
    from urllib.parse import unquote

    return unquote(re.sub(r"^file:/+", "/", uri)) if uri.startswith("file:") else uri
