"""CSV and JSON in Spark: unchanged lines, and the rows that a reader parses from them.

Spark finds the files, decompresses them and splits them into lines. Tasks call the readers to parse the lines
in all cases, so a file has the same content however it is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orchestrator.frontend.facts import Relation
from orchestrator.spark.errors import LoadError
from orchestrator.spark.formats.arrow import mapped, pa, pc
from orchestrator.spark.formats.blocks import BOM, Block, Range, Reader, blocks, in_rows, local_path
from orchestrator.spark.formats.csv_rows import CsvReader
from orchestrator.spark.formats.inference import inferred_types
from orchestrator.spark.formats.json_rows import (
    JsonColumn,
    JsonReader,
    depth_of,
    first_problem,
    seen_kinds,
    type_of_kinds,
)
from orchestrator.spark.formats.options import FILES
from orchestrator.spark.formats.text_options import csv_reader, encoding, truth
from orchestrator.spark.loading.copying import CORRUPT, corrupt
from orchestrator.spark.session import set_for_a_block
from orchestrator.spark.types import is_json_type, named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PACKED = (".gz", ".bz2", ".zst", ".snappy", ".lz4", ".deflate")
_LINE = "value"
FILE, SPLIT, LINE, ROW = "idivm: file", "idivm: split", "idivm: line", "idivm: row"
"""The columns for the place of a row: its file, the byte where Spark's part of the file begins, and the line
and row numbers within that part."""
_OPENING_LINES = 1000


@dataclass(frozen=True)
class Text:
    """Text files, and how they are read."""

    reader: Reader
    names: tuple[str, ...]
    """The columns of the files."""
    lines: Any
    """The lines of all files as a DataFrame, with the columns of folder names; None if this process copies the
    files."""
    new_types: Mapping[str, str]
    """The PostgreSQL types for a table to create."""
    positional: bool = False
    repeated: Mapping[str, str] = field(default_factory=dict)
    """The columns whose names are several times in the header, by the names that the load gives them."""
    direct: bool = False
    """Whether tasks open the files themselves, without `where` and `select`."""

    def scan(self, places: bool = False) -> DataFrame:
        """Return the rows of the files, with their places if requested."""
        from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

        def kind(depth: int) -> Any:
            return ArrayType(kind(depth - 1)) if depth else StringType()

        depths = [0] * len(self.names)
        if isinstance(self.reader, JsonReader):
            depths = [column.depth for column in self.reader.columns]
        fields = [
            *(StructField(*pair) for pair in zip(self.names, map(kind, depths), strict=True)),
            *(StructField(name, StringType()) for name in self.folders),
            StructField(CORRUPT, StringType()),
        ]
        if places:
            fields.append(StructField(FILE, StringType()))
            fields += [StructField(name, LongType()) for name in (SPLIT, LINE, ROW)]
        read: Any = partial(_read, self.reader, self.names, self.folders, places)
        return mapped(self.lines, read, StructType(fields))

    @property
    def folders(self) -> tuple[str, ...]:
        """The columns from the names of folders, column=value."""
        return () if self.lines is None else tuple(self.lines.columns[3:])


def open_csv(
    spark: SparkSession,
    paths: list[str],
    options: Mapping[str, str],
    table: Relation | None,
    plain: bool,
    adds: bool = False,
) -> Text:
    """Open CSV files; `plain` says that there is no `where` and `select`."""
    reader, header = csv_reader(paths, options)
    lines = _lines(spark, paths, options)
    direct = _is_local(lines) and reader.escape is None and reader.encoding is None
    files = sorted(lines.inputFiles())
    openings = openings_of(files) if direct else _openings(lines, files)
    opened = replace(with_columns(reader, header, files, openings), lines=lines)
    opened = replace(opened, direct=direct and plain)
    known = () if table is None else table.columns
    if table is not None and not (
        adds and any(named(name, known) is None for name in (*opened.names, *opened.folders))
    ):
        return opened
    return replace(
        opened, new_types=inferred_types(opened.scan(), [*opened.names, *opened.folders])
    )


def with_columns(
    reader: CsvReader, header: bool, files: Sequence[str], openings: Iterable[tuple[str, bytes]]
) -> Text:
    """Return CSV files with the columns of the first row of the first file."""
    record, fields = _first_record(reader, files, openings)
    reader = replace(reader, width=len(fields), header=record if header else None)
    if not header:
        names = [f"_c{number}" for number, _ in enumerate(fields)]
        return Text(reader, tuple(names), None, {}, positional=True, direct=True)
    names = _names(fields)
    pairs = zip(names, fields, strict=True)
    repeated = {name: given for name, given in pairs if given and name != given}
    for name in names:
        if names.count(name) > 1:
            raise LoadError(repeated_name(files[0], repeated[name], []))
    return Text(reader, tuple(names), None, {}, repeated=repeated, direct=True)


def repeated_name(file: str, name: str, names: Sequence[str]) -> str:
    """Return the message for a column that is several times in a header; `names` tell its fields apart."""
    remedy = (
        f"choose with --select, where the columns are {', '.join(names)}"
        if names
        else "correct the header"
    )
    return f"{local_path(file) or file}, line 1: the header names column {name} several times: {remedy}."


def open_json(
    spark: SparkSession,
    paths: list[str],
    options: Mapping[str, str],
    table: Relation | None,
    plain: bool,
    adds: bool = False,
) -> Text:
    """Open JSON files; `plain` says that there is no `where` and `select`."""
    multiline = truth("multiLine", options.get("multiline", "false"))
    reader = JsonReader((), multiline, encoding(options))
    lines = _lines(spark, paths, options)
    direct = _is_local(lines) and reader.encoding is None and plain
    seen = _seen(lines, reader, deeply=table is None or adds or not direct)
    if not seen:
        raise LoadError(_without_documents(lines, reader, paths))
    columns, new_types = [], {}
    for keys in _alike(seen, table):
        column = named(keys[0], table.columns) if table is not None else None
        kinds = [kind for key in keys for kind in seen[key]]
        kind = new_types[keys[0]] = column.plain_type if column else type_of_kinds(kinds)
        array = kind.endswith("[]")
        columns.append(
            JsonColumn(
                keys[0],
                tuple(keys),
                as_json=is_json_type(kind.rstrip("[]")),
                array=array,
                depth=depth_of(kinds) if array and not direct else 0,
            )
        )
    names = tuple(column.name for column in columns)
    return Text(replace(reader, columns=tuple(columns)), names, lines, new_types, direct=direct)


def _lines(spark: SparkSession, paths: list[str], options: Mapping[str, str]) -> DataFrame:
    from pyspark.sql import functions as f

    files = {FILES[name]: value for name, value in options.items() if name in FILES}
    # Values in folder names are text, whatever they look like.
    with set_for_a_block(
        spark, {"spark.sql.sources.partitionColumnTypeInference.enabled": "false"}
    ):
        text = spark.read.format("text").options(lineSep="\n", **files).load(paths)
    return text.select(
        f.col(_LINE).cast("binary").alias(_LINE),
        f.col("_metadata.file_path").alias(FILE),
        f.col("_metadata.file_block_start").alias(SPLIT),
        *(f.col(f"`{name}`") for name in text.columns if name != _LINE),
    )


def _is_local(lines: DataFrame) -> bool:
    """Return whether tasks can open the files, and folder names have no columns."""
    files = [local_path(file) for file in lines.inputFiles()]
    packed = any(path is None or path.endswith(PACKED) for path in files)
    return not packed and len(lines.columns) == 3


def _first_record(
    reader: CsvReader, files: Sequence[str], openings: Iterable[tuple[str, bytes]]
) -> tuple[bytes, list[str | None]]:
    """Return the first row of the files that is not blank, unparsed and as fields."""
    for path, data in openings:
        record = reader.first_record(data.removeprefix(BOM))
        if record is not None:
            try:
                record = reader.plainly(record)
                return record, reader.fields(record)
            except (LoadError, UnicodeDecodeError) as error:
                raise LoadError(f"{path}, line 1: {error}") from None
    raise LoadError(f"{', '.join(files)} holds no line to learn the columns from.")


def openings_of(files: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield files of this machine with their first lines."""
    for file in files:
        path = local_path(file) or file
        size = Path(path).stat().st_size
        block = next(blocks(Range(path, 0, size)), None)
        yield path, block.data if block else b""


def _openings(lines: DataFrame, files: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the first file that is not blank, with its first lines."""
    from pyspark.sql import functions as f

    first = lines.where((f.col(SPLIT) == 0) & (f.trim(f.col(_LINE).cast("string")) != ""))
    opening_lines = first.limit(_OPENING_LINES).collect()
    yield (
        opening_lines[0][FILE] if opening_lines else ", ".join(files),
        b"".join(
            bytes(row[0]) + b"\n" for row in opening_lines if row[FILE] == opening_lines[0][FILE]
        ),
    )


def _names(fields: Sequence[str | None]) -> list[str]:
    """Return column names for the fields of a header, some of which may be missing.

    >>> _names(["a", None, "b", "B", "a"])
    ['a0', '_c1', 'b', 'B', 'a4']
    """
    return [
        f"_c{number}" if not field else f"{field}{number}" if fields.count(field) > 1 else field
        for number, field in enumerate(fields)
    ]


def _alike(seen: Mapping[str, Any], table: Relation | None) -> list[list[str]]:
    """Return groups of keys for the same column; they differ in upper and lower case."""
    groups: dict[str, list[str]] = {}
    for key in seen:
        column = named(key, table.columns) if table is not None else None
        groups.setdefault(f"={column.name}" if column else key.lower(), []).append(key)
    return list(groups.values())


def _seen(lines: DataFrame, reader: JsonReader, deeply: bool) -> dict[str, list[str]]:
    """Return the keys of all documents, and the kinds of their values."""
    from pyspark.sql.types import StringType, StructField, StructType

    def look(batches: Iterable[Any]) -> Iterator[Any]:
        pieces = (piece.data for piece in in_pieces(batches, reader))
        kinds = seen_kinds(pieces, reader.multiline, deeply)
        yield pa.record_batch({"seen": [json.dumps(kinds)]})

    merged: dict[str, dict[str, None]] = {}
    schema = StructType([StructField("seen", StringType())])
    for row in mapped(lines, look, schema).collect():
        for key, kinds in json.loads(row[0]).items():
            merged.setdefault(key, {}).update(dict.fromkeys(kinds))
    return {key: list(kinds) for key, kinds in merged.items()}


def _without_documents(lines: DataFrame, reader: JsonReader, paths: Sequence[str]) -> str:
    """Return why files have no columns: the first document that is invalid, or that there is none."""
    from pyspark.sql.types import StringType, StructField, StructType

    def look(batches: Iterable[Any]) -> Iterator[Any]:
        last, line = None, 0
        for piece in in_pieces(batches, reader):
            if (piece.path, piece.split) != last:
                last, line = (piece.path, piece.split), 1
            if problem := first_problem(piece.data, reader.multiline):
                at, reason = problem
                file = local_path(piece.path) or piece.path
                number = line + piece.data.count(b"\n", 0, at)
                place = f"{file}, line {number}{' of a part' * (piece.split > 0)}"
                yield pa.record_batch({"problem": [f"{place}: {reason}"]})
                return
            line += piece.data.count(b"\n")

    schema = StructType([StructField("problem", StringType())])
    for row in mapped(lines, look, schema).limit(1).collect():
        return f"No document is valid. {row[0]}."
    return f"{', '.join(paths)} holds no document to learn the columns from."


@dataclass(frozen=True)
class _Piece(Block):
    """Lines of one of Spark's splits."""

    split: int
    """The byte where Spark's part of the file begins."""
    folders: tuple[str | None, ...]


def in_pieces(batches: Iterable[Any], reader: Reader) -> Iterator[_Piece]:
    """Yield the lines of Spark's batches in blocks that end where a row ends."""

    def blocks_of_batches() -> Iterator[_Piece]:
        last: tuple[str, int] | None = None
        blank = True
        for batch in batches:
            for file, split, *folders, data in _runs(batch):
                if (file, split) != last:
                    last, blank = (file, split), split == 0
                    if blank:
                        data = data.removeprefix(BOM)
                yield _Piece(file, 0, data, blank, split, tuple(folders))
                blank = blank and not data.strip()

    now: tuple[str, int] | None = None
    lines = 0
    for piece in in_rows(blocks_of_batches(), reader):
        assert isinstance(piece, _Piece)
        if (piece.path, piece.split) != now:
            now, lines = (piece.path, piece.split), 0
        try:
            yield replace(piece, data=reader.plainly(piece.data))
        except UnicodeDecodeError as error:
            line = bytes(error.object).count(b"\n", 0, error.start) + lines + 1
            byte = error.object[error.start]
            file = local_path(piece.path) or piece.path
            raise LoadError(
                f"{file}, line {line}{' of a part' * (piece.split > 0)}: the byte 0x{byte:02x} is no "
                f"character in {reader.encoding or error.encoding}: give the file's own --options encoding."
            ) from error
        lines += piece.data.count(b"\n")


def _runs(batch: Any) -> Iterator[tuple[Any, ...]]:
    """Yield for each split in a batch: file, split, folders, and the lines."""
    count = batch.num_rows
    if not count:
        return
    files, splits = batch.column(1), batch.column(2)
    changes = pc.or_(
        pc.not_equal(files[1:], files[:-1]), pc.not_equal(splits[1:], splits[:-1])
    ).to_numpy(zero_copy_only=False)
    bounds = [0, *(int(change) + 1 for change in changes.nonzero()[0]), count]
    lines = pc.binary_join_element_wise(
        batch.column(0).cast(pa.large_binary()),
        pa.scalar(b"\n", pa.large_binary()),
        pa.scalar(b"", pa.large_binary()),
    )
    for start, end in pairwise(bounds):
        columns = [batch.column(number)[start].as_py() for number in range(1, batch.num_columns)]
        yield *columns, b"".join(lines[start:end].to_pylist())


def _read(
    reader: Reader,
    names: Sequence[str],
    folders: Sequence[str],
    places: bool,
    batches: Iterable[Any],
) -> Iterator[Any]:
    """Yield the rows of Spark's lines: for each block first the valid rows, then the malformed rows."""
    last: tuple[str, int] | None = None
    row = line = 0
    for piece in in_pieces(batches, reader):
        if (piece.path, piece.split) != last:
            last, row, line = (piece.path, piece.split), 0, 0
        rows = reader.take_apart(piece)
        sound, torn = len(rows.starts), len(rows.torn)
        columns = [
            pa.concat_arrays([column, pa.nulls(torn, column.type)])
            for column in map(_with_spark_types, rows.columns)
        ]
        columns += [pa.array([value] * (sound + torn), pa.string()) for value in piece.folders]
        columns.append(
            pa.array([None] * sound + [corrupt(item) for item in rows.torn], pa.string())
        )
        listed = [*names, *folders, CORRUPT]
        if places:
            starts = np.array([*rows.starts, *(item.at for item in rows.torn)], np.int64)
            ends = np.flatnonzero(np.frombuffer(piece.data, np.uint8) == ord("\n"))
            columns += [
                pa.array([piece.path] * len(starts), pa.string()),
                pa.array([piece.split] * len(starts), pa.int64()),
                pa.array(line + 1 + np.searchsorted(ends, starts), pa.int64()),
                pa.array(row + 1 + np.argsort(np.argsort(starts)), pa.int64()),
            ]
            listed += [FILE, SPLIT, LINE, ROW]
            row += len(starts)
            line += len(ends)
        yield pa.RecordBatch.from_arrays(columns, names=listed)


def _with_spark_types(column: Any) -> Any:
    """Return a column with the types that Spark expects."""

    def kind(given: Any) -> Any:
        return pa.list_(kind(given.value_type)) if pa.types.is_list(given) else pa.string()

    return column.cast(kind(column.type))
