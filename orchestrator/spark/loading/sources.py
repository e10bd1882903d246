"""The sources of a load: files or a database, as a DataFrame whose partitions are always the same.

Text formats (CSV, JSON) are only split into values (`text.py`). PostgreSQL's own input functions interpret
the values, so no digit, zone or empty string is lost.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import NotFoundError, UsageError
from orchestrator.frontend.facts import Relation
from orchestrator.spark.errors import LoadError
from orchestrator.spark.formats.blocks import Range, local_path
from orchestrator.spark.formats.blocks import cut as cut_lines
from orchestrator.spark.formats.exact import Exact, is_text_name, passed, texts_passed
from orchestrator.spark.formats.jdbc import open_database
from orchestrator.spark.formats.options import as_spark_spells, checked
from orchestrator.spark.formats.text import PACKED, Text, open_csv, open_json
from orchestrator.spark.formats.typed_files import TypedScan, open_files
from orchestrator.spark.loading.copying import CORRUPT
from orchestrator.spark.types import type_to_create

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMATS = ("csv", "json", "parquet", "orc", "jdbc")
_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".orc": "orc",
}
_CASE = "spark.sql.caseSensitive"
_AMBIGUOUS = re.compile(r"AMBIGUOUS_REFERENCE|is ambiguous|[Cc]olumn `.*` already exists")
_LEAST_SPLIT, _MOST_SPLIT, _SPLITS = 8 << 20, 128 << 20, 64


@dataclass(frozen=True)
class Source:
    """Where rows come from, and how they are filtered and projected."""

    paths: tuple[str, ...]
    format: str = "auto"
    options: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None
    select: str | None = None
    partitions: int | None = None


@dataclass(frozen=True)
class Frame:
    """An opened source."""

    rows: Any
    """The rows to load, as a DataFrame; None if this process copies the files."""
    scan: Any
    """The rows as read, before `where` and `select`."""
    source: Source
    format: str
    files: tuple[dict[str, Any], ...] = ()
    new_types: Mapping[str, str] = field(default_factory=dict)
    """The PostgreSQL types of a table to create."""
    text: Text | None = None
    split: int | None = None
    """The maximum number of bytes of a file in one partition."""
    exact: Mapping[str, Exact] = field(default_factory=dict)
    """The columns of which the text is loaded, by their names in the load."""

    @property
    def corrupt(self) -> bool:
        """Whether a column reports lines that could not be parsed."""
        return self.rows is not None and CORRUPT in self.rows.columns

    @property
    def ranges(self) -> tuple[tuple[Range, ...], ...]:
        """The division of the files, if tasks open the files themselves."""
        if self.text is None or not self.text.direct or self.split is None:
            return ()
        files = [(local_path(file["file"]), file["bytes"]) for file in self.files]
        return cut_lines([(path, size) for path, size in files if path], self.split)

    @property
    def schema(self) -> StructType:
        """The columns to load."""
        from pyspark.sql.types import StringType, StructField, StructType

        if self.rows is None and self.text is not None:
            return StructType([StructField(name, StringType()) for name in self.text.names])
        fields = self.rows.schema.fields
        return StructType(
            [item for item in fields if item.name != CORRUPT and not is_text_name(item.name)]
        )


def open_source(
    spark: SparkSession, source: Source, table: Relation | None, adds: bool = False
) -> Frame:
    """Open a source for a table, or for a table to create; `adds` allows columns that the table lacks."""
    try:
        frame = _open_source(spark, source, table, adds)
        if len({name.lower() for name in frame.schema.names}) == len(frame.schema.names):
            return frame
    except Exception as error:
        if spark.conf.get(_CASE) == "true" or not _AMBIGUOUS.search(str(error)):
            raise
    # Columns that differ only in case have to be told apart.
    spark.conf.set(_CASE, "true")
    return _open_source(spark, source, table, adds)


def _open_source(spark: SparkSession, source: Source, table: Relation | None, adds: bool) -> Frame:
    kind = format_of(source)
    options = checked(kind, source.options)
    if kind == "jdbc":
        return _with_selection(_typed(open_database(spark, source.paths, options), source, kind))
    paths = [located(path) for path in source.paths]
    if kind in ("csv", "json"):
        opener = open_csv if kind == "csv" else open_json
        plain = not source.where and not source.select
        text = opener(spark, paths, options, table, plain, adds)
        scan = text.scan()
        frame = Frame(scan, scan, source, kind, new_types=text.new_types, text=text)
    else:
        frame = _typed(open_files(spark, kind, paths, as_spark_spells(kind, options)), source, kind)
    return _with_selection(_with_files(spark, frame))


def _typed(scan: TypedScan, source: Source, kind: str) -> Frame:
    exact = {item.name: item for item in scan.exact}
    new_types = _types_to_create(scan.rows.schema) | {
        item.name: item.postgresql_type for item in scan.exact
    }
    return Frame(scan.rows, scan.rows, source, kind, new_types=new_types, exact=exact)


def open_frame(frame: DataFrame, source: Source) -> Frame:
    """Return a caller's DataFrame as a source."""
    checked("frame", source.options)
    if source.format != "auto":
        raise UsageError(f"A DataFrame has no format: omit {source.format}.")
    return _with_selection(
        Frame(frame, frame, source, "frame", new_types=_types_to_create(frame.schema))
    )


def cut(spark: SparkSession, frame: Frame) -> None:
    """Set how Spark divides the files of the source that is planned next.

    The division does not depend on the number of cores, so another machine can resume the load.
    """
    if frame.split is not None:
        spark.conf.set("spark.sql.files.maxPartitionBytes", str(frame.split))
        spark.conf.set("spark.sql.files.openCostInBytes", str(1 << 20))
        spark.conf.set("spark.sql.files.minPartitionNum", "1")


def layout(rows: DataFrame) -> tuple[str | None, int]:
    """Return a digest of what each partition reads, and the number of partitions.

    There is no digest if Spark decides this only while it runs.
    """
    frame: Any = rows
    texts = []
    sure = True
    for partition in frame._jdf.queryExecution().toRdd().partitions():
        if partition.getClass().getSimpleName() == "FilePartition":
            texts.append([str(file) for file in partition.files()])
        else:
            texts.append([str(partition)])
            sure = sure and not re.search(r"@[0-9a-f]+$|Shuffle", texts[-1][0])
    return hashlib.sha256(repr(texts).encode()).hexdigest() if sure else None, len(texts)


def format_of(source: Source) -> str:
    """Return the format of a source, as given or as its names imply."""
    if source.format != "auto":
        if source.format not in FORMATS:
            raise UsageError(f"There is no format {source.format}; take {', '.join(FORMATS)}.")
        return source.format
    kinds = {kind for path in source.paths if (kind := _format_of_name(path))}
    if len(kinds) != 1:
        raise UsageError(
            f"The format of {', '.join(source.paths)} is not clear: give --format "
            f"({', '.join(FORMATS)})."
        )
    return kinds.pop()


def _format_of_name(path: str) -> str | None:
    """Return the format that a file name implies.

    >>> _format_of_name("s3a://bucket/2024/*.csv.gz"), _format_of_name("jdbc:postgresql://h/d"), _format_of_name("x")
    ('csv', 'jdbc', None)
    """
    if path.startswith("jdbc:"):
        return "jdbc"
    stem, suffix = os.path.splitext(path.rstrip("/"))  # noqa: PTH122 - it may be a URI
    if suffix in PACKED:
        suffix = os.path.splitext(stem)[1]  # noqa: PTH122
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    folder = Path(path)
    if folder.is_dir():
        inside = (
            item for item in sorted(folder.rglob("*")) if not item.name.startswith(("_", "."))
        )
        return next(
            (kind for item in inside if item.is_file() and (kind := _format_of_name(str(item)))),
            None,
        )
    return None


def located(path: str) -> str:
    """Return the absolute path, or the URI as it is; refuse a path that does not exist."""
    if re.match(r"[a-z][a-z0-9+.-]+:", path):
        return path
    if not re.search(r"[*?\[{]", path) and not Path(path).exists():
        raise NotFoundError(f"There is no file or folder {path}.")
    return str(Path(path).absolute())


def _types_to_create(schema: StructType) -> dict[str, str]:
    result = {}
    for item in schema.fields:
        try:
            result[item.name] = type_to_create(item.dataType)
        except LoadError:
            continue  # the column is not loaded if `select` leaves it out
    return result


def _with_files(spark: SparkSession, frame: Frame) -> Frame:
    """Return the frame with its files, and with the maximum size of a partition."""
    from dataclasses import replace

    jvm: Any = spark._jvm
    conf = spark._jsc.hadoopConfiguration()
    files = []
    scan = frame.text.lines if frame.text else frame.scan
    for name in sorted(scan.inputFiles()):
        path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(name))
        status = path.getFileSystem(conf).getFileStatus(path)
        files.append({"file": name, "bytes": status.getLen(), "time": status.getModificationTime()})
    split = split_of(frame.source, files)
    if frame.text and frame.text.reader.spans_lines:
        split = max([split, *(file["bytes"] for file in files)])
    return replace(frame, files=tuple(files), split=split)


def split_of(source: Source, files: Sequence[Mapping[str, Any]]) -> int:
    """Return the maximum number of bytes of a file in one partition."""
    total = sum(file["bytes"] for file in files)
    if wanted := source.partitions:
        return int(max(1, -(-total // wanted)))
    return int(min(max(total // _SPLITS, _LEAST_SPLIT), _MOST_SPLIT))


def _with_selection(frame: Frame) -> Frame:
    """Return the frame after `where` and `select`, with the requested number of partitions."""
    from dataclasses import replace

    rows = shape(frame.scan, frame.source)
    wanted = frame.source.partitions
    if wanted and not frame.files:
        rows = rows.repartition(wanted)
    new_types = dict(frame.new_types)
    before = {field.name: field.dataType for field in frame.scan.schema.fields}
    names = {column.lower(): column for column in rows.columns} | {c: c for c in rows.columns}
    exact = {
        here: frame.exact[own]
        for name, own in passed(frame.source.select, list(frame.exact)).items()
        if (here := names.get(name, names.get(name.lower()))) is not None
    }
    for item in rows.schema.fields:
        unchanged = item.name in new_types and before.get(item.name) == item.dataType
        if item.name in exact:
            new_types[item.name] = exact[item.name].postgresql_type
        elif item.name != CORRUPT and not unchanged and not is_text_name(item.name):
            new_types[item.name] = type_to_create(item.dataType)
    return replace(frame, rows=rows, new_types=new_types, exact=exact)


def shape(scan: DataFrame, source: Source, keep: Sequence[str] = ()) -> DataFrame:
    """Return the rows of a scan after `where` and `select`; malformed lines stay, to be reported."""
    if not source.where and not source.select:
        return scan
    torn = [CORRUPT] if CORRUPT in scan.columns else []
    rows = scan
    if source.where:
        condition = f"({source.where})"
        rows = rows.where(f"{condition} OR `{CORRUPT}` IS NOT NULL" if torn else condition)
    if source.select:
        texts = texts_passed(source.select, scan.columns)
        own = [*torn, *keep, *(here for here, _ in texts)]
        listed = ", ".join(
            [
                source.select,
                *(f"`{name}`" for name in (*torn, *keep)),
                *(text for _, text in texts),
            ]
        )
        # The select list is the user's own Spark SQL.
        query = f"SELECT {listed} FROM {{rows}}"  # noqa: S608
        rows = _without_second(rows.sparkSession.sql(query, rows=rows), own)
    return rows


def _without_second(rows: DataFrame, own: Sequence[str]) -> DataFrame:
    """Drop columns that a `*` in the select list repeats."""
    seen: set[str] = set()
    names = []
    for number, name in enumerate(rows.columns):
        names.append(f"idivm_again_{number}" if name in own and name in seen else name)
        seen.add(name)
    return rows.toDF(*names).drop(*(name for name in names if name.startswith("idivm_again_")))
