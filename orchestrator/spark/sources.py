"""What a load reads: files or a database, as a DataFrame whose partitions are always the same.

Text formats (CSV, JSON) are only taken apart here; what the values mean is left to PostgreSQL's own
input functions, so that no digit, zone or empty string is lost in between.
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
from orchestrator.spark.copying import CORRUPT
from orchestrator.spark.errors import LoadError
from orchestrator.spark.exact import Exact, is_text_name, passed, texts_passed
from orchestrator.spark.jdbc import open_database
from orchestrator.spark.plain import are_names, first_line, local_path
from orchestrator.spark.typed_files import TypedScan, open_files
from orchestrator.spark.types import is_json_type, made_type, named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

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
_PACKED = (".gz", ".bz2", ".zst", ".snappy", ".lz4", ".deflate")

_ABSENT = "\x01idivm:null\x01"
"""Stands for a field with nothing in it, not even quotes: NULL, as in PostgreSQL's own CSV."""

_LEAST_SPLIT, _MOST_SPLIT, _SPLITS = 8 << 20, 128 << 20, 64


@dataclass(frozen=True)
class Source:
    """Where rows come from, and what is done with them on the way."""

    paths: tuple[str, ...]
    format: str = "auto"
    options: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None
    select: str | None = None
    partitions: int | None = None


@dataclass(frozen=True)
class Plain:
    """Files of plain CSV that every worker can open."""

    header: str | None
    """The first line of each."""
    fields: list[str]


@dataclass(frozen=True)
class Frame:
    """An opened source."""

    rows: DataFrame
    """What is loaded."""
    scan: DataFrame
    """What is read, before `where` and `select`."""
    source: Source
    format: str
    files: tuple[dict[str, Any], ...] = ()
    made: Mapping[str, str] = field(default_factory=dict)
    """PostgreSQL's types for a table to be made."""
    text: bool = False
    positional: bool = False
    header: bool = False
    separator: str = ","
    plain: Plain | None = None
    """What is known of the files if PostgreSQL can take them apart itself."""
    split: int | None = None
    """Bytes of a file that one partition gets at most."""
    exact: Mapping[str, Exact] = field(default_factory=dict)
    """The columns, under the names that they are loaded by, of which the text is loaded."""

    @property
    def corrupt(self) -> bool:
        """Whether a column tells of lines that could not be taken apart."""
        return CORRUPT in self.rows.columns

    @property
    def width(self) -> int:
        """The number of fields of a line of CSV."""
        return len(self.scan.columns) - 1 if self.format == "csv" else 0

    @property
    def schema(self) -> StructType:
        """The columns that are loaded."""
        from pyspark.sql.types import StructType

        fields = self.rows.schema.fields
        return StructType(
            [one for one in fields if one.name != CORRUPT and not is_text_name(one.name)]
        )


def open_source(spark: SparkSession, source: Source, table: Relation | None) -> Frame:
    """Opens a source for a table, or for one to be made after it."""
    kind = _format(source)
    if kind == "jdbc":
        return _shaped(_typed(open_database(spark, source), source, kind))
    paths = [_located(path) for path in source.paths]
    if kind == "csv":
        frame = _csv(spark, source, paths, table)
    elif kind == "json":
        frame = _json(spark, source, paths, table)
    else:
        frame = _typed(open_files(spark, kind, paths, source.options), source, kind)
    return _shaped(_listed(spark, frame))


def _typed(scan: TypedScan, source: Source, kind: str) -> Frame:
    exact = {one.name: one for one in scan.exact}
    made = _made(scan.rows.schema) | {one.name: one.made for one in scan.exact}
    return Frame(scan.rows, scan.rows, source, kind, made=made, exact=exact)


def open_frame(frame: DataFrame, source: Source) -> Frame:
    """A DataFrame of the caller's as a source."""
    return _shaped(Frame(frame, frame, source, "frame", made=_made(frame.schema)))


def cut(spark: SparkSession, frame: Frame) -> None:
    """Tells Spark how to cut the files of the source that is planned next.

    The number of cores plays no part, so that a load may go on elsewhere.
    """
    if frame.split is not None:
        spark.conf.set("spark.sql.files.maxPartitionBytes", str(frame.split))
        spark.conf.set("spark.sql.files.openCostInBytes", str(1 << 20))
        spark.conf.set("spark.sql.files.minPartitionNum", "1")


def layout(rows: DataFrame) -> tuple[str | None, int]:
    """A digest of what each partition reads, and how many there are.

    There is no digest where that is decided only while Spark runs.
    """
    frame: Any = rows
    told = []
    sure = True
    for partition in frame._jdf.queryExecution().toRdd().partitions():
        if partition.getClass().getSimpleName() == "FilePartition":
            told.append([str(file) for file in partition.files()])
        else:
            told.append([str(partition)])
            sure = sure and not re.search(r"@[0-9a-f]+$|Shuffle", told[-1][0])
    return hashlib.sha256(repr(told).encode()).hexdigest() if sure else None, len(told)


def _format(source: Source) -> str:
    if source.format != "auto":
        if source.format not in FORMATS:
            raise UsageError(f"There is no format {source.format}; take {', '.join(FORMATS)}.")
        return source.format
    found = {kind for path in source.paths if (kind := _guessed(path))}
    if len(found) != 1:
        raise UsageError(
            f"The format of {', '.join(source.paths)} is not clear: give --format "
            f"({', '.join(FORMATS)})."
        )
    return found.pop()


def _guessed(path: str) -> str | None:
    """The format that a name speaks of.

    >>> _guessed("s3a://bucket/2024/*.csv.gz"), _guessed("jdbc:postgresql://h/d"), _guessed("x")
    ('csv', 'jdbc', None)
    """
    if path.startswith("jdbc:"):
        return "jdbc"
    stem, suffix = os.path.splitext(path.rstrip("/"))  # noqa: PTH122 - it may be a URI
    if suffix in _PACKED:
        suffix = os.path.splitext(stem)[1]  # noqa: PTH122
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    folder = Path(path)
    if folder.is_dir():
        inside = (one for one in sorted(folder.rglob("*")) if not one.name.startswith(("_", ".")))
        return next(
            (kind for one in inside if one.is_file() and (kind := _guessed(str(one)))), None
        )
    return None


def _located(path: str) -> str:
    if re.match(r"[a-z][a-z0-9+.-]+:", path):
        return path
    if not re.search(r"[*?\[{]", path) and not Path(path).exists():
        raise NotFoundError(f"There is no file or folder {path}.")
    return str(Path(path).absolute())


def _csv(spark: SparkSession, source: Source, paths: list[str], table: Relation | None) -> Frame:
    from pyspark.sql.types import StringType, StructField, StructType

    tabs = all(re.search(r"\.tsv(\.\w+)?$", path) for path in paths)
    options = {
        "header": "true",
        "sep": "\t" if tabs else ",",
        "escape": '"',
        "nullValue": _ABSENT,
        "emptyValue": "",
        **source.options,
    }
    header = options["header"].lower() == "true"
    reader = spark.read.format("csv").options(**options)
    plain = _plain(spark, source, paths, header, options["sep"])
    if plain is not None and table is not None:
        names = plain.fields if header else [f"_c{n}" for n, _ in enumerate(plain.fields)]
        made = {}
    else:
        if table is None:
            with _setting(spark, "spark.sql.timestampType", "TIMESTAMP_NTZ"):
                seen = reader.option("inferSchema", "true").load(paths).schema
        else:
            seen = reader.load(paths).schema
        if not seen.fields:
            raise LoadError(f"{', '.join(source.paths)} holds no line to learn the columns from.")
        names = seen.names
        made = {one.name: made_type(one.dataType, exact=True) for one in seen.fields}
    fields = [StructField(name, StringType()) for name in names]
    unnamed = [f"_c{number}" for number, _ in enumerate(names)]
    scan = (
        reader.schema(StructType([*fields, StructField(CORRUPT, StringType())]))
        .option("columnNameOfCorruptRecord", CORRUPT)
        .option("mode", "PERMISSIVE")
        # A name that had to be made up is in no header to compare with.
        .option("enforceSchema", str(not header or bool(set(unnamed) & set(names))).lower())
        .load(paths)
    )
    return Frame(
        *(scan, scan, source, "csv"),
        plain=plain,
        made=made,
        text=True,
        positional=not header,
        header=header,
        separator=options["sep"],
    )


def _plain(
    spark: SparkSession, source: Source, paths: list[str], header: bool, separator: str
) -> Plain | None:
    """What is known of CSV files if nothing needs Spark to take them apart."""
    options = {name.lower() for name in source.options} <= {"header", "sep"}
    if not options or len(separator.encode()) != 1 or source.where or source.select:
        return None
    text = spark.read.format("text").load(paths)
    files = sorted(text.inputFiles())
    local = [path for file in files if (path := local_path(file)) and not path.endswith(_PACKED)]
    # Folders named column=value are columns, of which the files know nothing.
    if len(local) < len(files) or len(text.columns) > 1:
        return None
    first = next((one for path in local if (one := first_line(path, separator))), None)
    if first is None or len(first[1]) < 2 or (header and not are_names(first[1])):
        return None
    return Plain(first[0] if header else None, first[1])


def _json(spark: SparkSession, source: Source, paths: list[str], table: Relation | None) -> Frame:
    from pyspark.sql.types import StringType, StructField, StructType

    plain = spark.read.format("json").options(**source.options)
    plain = plain.option("columnNameOfCorruptRecord", CORRUPT).option("mode", "PERMISSIVE")
    with _setting(spark, "spark.sql.timestampType", "TIMESTAMP_NTZ"):
        seen = [one for one in plain.load(paths).schema.fields if one.name != CORRUPT]
    made = {one.name: made_type(one.dataType, exact=True) for one in seen}
    fields = []
    for one in seen:
        column = named(one.name, table.columns) if table is not None else None
        as_json = is_json_type(column.plain_type if column else made[one.name])
        kind = StringType() if as_json else _texts(one.dataType)
        fields.append(StructField(one.name, kind))
    schema = StructType([*fields, StructField(CORRUPT, StringType())])
    scan = plain.schema(schema).load(paths)
    return Frame(scan, scan, source, "json", made=made, text=True)


def _texts(kind: Any) -> DataType:
    """Arrays of text as deep as those of a type; text for everything else."""
    from pyspark.sql.types import ArrayType, StringType

    return ArrayType(_texts(kind.elementType)) if kind.typeName() == "array" else StringType()


def _made(schema: StructType) -> dict[str, str]:
    made = {}
    for one in schema.fields:
        try:
            made[one.name] = made_type(one.dataType)
        except LoadError:
            continue  # `select` may yet do without it
    return made


def _listed(spark: SparkSession, frame: Frame) -> Frame:
    """The frame with its files, and with how they are to be cut."""
    from dataclasses import replace

    jvm: Any = spark._jvm
    conf = spark._jsc.hadoopConfiguration()
    files = []
    for name in sorted(frame.scan.inputFiles()):
        path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(name))
        status = path.getFileSystem(conf).getFileStatus(path)
        files.append({"file": name, "bytes": status.getLen(), "time": status.getModificationTime()})
    total = sum(file["bytes"] for file in files)
    if wanted := frame.source.partitions:
        split = max(1, -(-total // wanted))
    else:
        split = min(max(total // _SPLITS, _LEAST_SPLIT), _MOST_SPLIT)
    return replace(frame, files=tuple(files), split=split)


def _shaped(frame: Frame) -> Frame:
    """The frame after `where` and `select`, in as many partitions as asked for."""
    from dataclasses import replace

    rows = shape(frame.scan, frame.source)
    wanted = frame.source.partitions
    if wanted and not frame.files:
        rows = rows.repartition(wanted)
    made = dict(frame.made)
    before = {one.name: one.dataType for one in frame.scan.schema.fields}
    names = {one.lower(): one for one in rows.columns}
    exact = {
        names[name.lower()]: frame.exact[own]
        for name, own in passed(frame.source.select, list(frame.exact)).items()
        if name.lower() in names
    }
    for one in rows.schema.fields:
        known = one.name in made and before.get(one.name) == one.dataType
        if one.name in exact:
            made[one.name] = exact[one.name].made
        elif one.name != CORRUPT and not known and not is_text_name(one.name):
            made[one.name] = made_type(one.dataType)
    return replace(frame, rows=rows, made=made, exact=exact)


def shape(scan: DataFrame, source: Source, keep: Sequence[str] = ()) -> DataFrame:
    """What `where` and `select` leave of a scan; torn lines pass, for they are to be reported."""
    if not source.where and not source.select:
        return scan
    torn = [CORRUPT] if CORRUPT in scan.columns else []
    rows = scan
    if source.where:
        condition = f"({source.where})"
        rows = rows.where(f"{condition} OR {CORRUPT} IS NOT NULL" if torn else condition)
    if source.select:
        texts = texts_passed(source.select, scan.columns)
        own = [*torn, *keep, *(here for here, _ in texts)]
        listed = ", ".join([source.select, *torn, *keep, *(shown for _, shown in texts)])
        # The select list is the user's own Spark SQL.
        query = f"SELECT {listed} FROM {{rows}}"  # noqa: S608
        rows = _without_second(rows.sparkSession.sql(query, rows=rows), own)
    return rows


def _without_second(rows: DataFrame, own: Sequence[str]) -> DataFrame:
    """Drops what a `*` in the select list has brought a second time."""
    seen: set[str] = set()
    names = []
    for number, name in enumerate(rows.columns):
        names.append(f"idivm_again_{number}" if name in own and name in seen else name)
        seen.add(name)
    return rows.toDF(*names).drop(*(name for name in names if name.startswith("idivm_again_")))


class _setting:  # noqa: N801 - it reads as a verb
    """Changes a setting of a session for a block."""

    def __init__(self, spark: SparkSession, name: str, value: str) -> None:
        self.spark, self.name, self.value = spark, name, value

    def __enter__(self) -> None:
        self.before = self.spark.conf.get(self.name)
        self.spark.conf.set(self.name, self.value)

    def __exit__(self, *_: object) -> None:
        self.spark.conf.set(self.name, self.before)  # type: ignore[arg-type]
