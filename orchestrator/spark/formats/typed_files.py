"""Parquet and ORC: all columns of all files, with times as they are written, in any calendar.

Spark reads the files. Values that its readers would change are read in another form: Parquet's nanoseconds as
numbers, ORC's dates and timestamps as text and decimals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.spark.errors import LoadError
from orchestrator.spark.failures import reason_of
from orchestrator.spark.formats.blocks import local_path
from orchestrator.spark.formats.exact import Exact, quoted, with_texts
from orchestrator.spark.session import set_for_a_block
from orchestrator.spark.types import type_to_create

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType
from orchestrator.spark.formats.written_types import (
    GREGORIAN,
    INSTANT,
    JULIAN,
    KINDS,
    MOMENTS,
    STAMP,
    UNSAID,
    Written,
    moment,
    of_nanoseconds,
    read_as,
    rebuilt,
    written_type,
)

_OPTIONS = {
    "parquet": {
        "mergeSchema": "true",
        # If a file names its calendar, Spark uses that; other files have the Gregorian calendar.
        "datetimeRebaseMode": "CORRECTED",
        "int96RebaseMode": "CORRECTED",
    },
    "orc": {"mergeSchema": "true"},
}

_NANOS = "spark.sql.legacy.parquet.nanosAsLong"

_INFERENCE = "spark.sql.sources.partitionColumnTypeInference.enabled"


@dataclass(frozen=True)
class TypedScan:
    """Files as a DataFrame, and the columns that are loaded as text."""

    rows: DataFrame
    exact: tuple[Exact, ...]


def open_files(
    spark: SparkSession, kind: str, paths: Sequence[str], options: Mapping[str, str]
) -> TypedScan:
    """Open files of a format that has types."""
    given = {name.lower() for name in options}
    own = {name: value for name, value in _OPTIONS[kind].items() if name.lower() not in given}
    reader = _Reader(spark, kind, list(paths), {**own, **options})
    return reader.parquet() if kind == "parquet" else reader.orc()


class _Reader:
    """Reads the files of one source, and their footers if the schema lacks information."""

    def __init__(
        self, spark: SparkSession, kind: str, paths: list[str], options: dict[str, str]
    ) -> None:
        self.spark, self.kind, self.paths, self.options = spark, kind, paths, options
        self.jvm: Any = spark._jvm
        self.conf = spark._jsc.hadoopConfiguration()

    def parquet(self) -> TypedScan:
        with set_for_a_block(self.spark, {_NANOS: "false"}):
            try:
                opened = self._opened()
            except Exception as error:
                if "TIMESTAMP(NANOS" not in str(error):
                    raise self._refused(error) from error
                opened = None
        if opened is not None:
            if "timestamp" in opened.schema.simpleString():
                self._require_micros()
            return self._with_folders(opened, (), {})
        self._require_micros()
        columns = self._nanoseconds()
        with set_for_a_block(self.spark, {_NANOS: "true"}):
            try:
                schema = self._opened().schema
            except Exception as error:
                raise self._refused(error) from error
        # Not restored, because tasks read the files later.
        self.spark.conf.set(_NANOS, "true")
        raw = self._opened(schema)
        texts = {column.name: of_nanoseconds(column) for column in columns}
        return self._with_folders(raw, columns, texts)

    def orc(self) -> TypedScan:
        try:
            opened = self._opened()
        except Exception as error:
            raise self._refused(error) from error
        schema = opened.schema
        if not re.search(r"\b(date|timestamp)\b", schema.simpleString()):
            return self._with_folders(opened, (), {})
        from pyspark.sql.types import StructField, StructType

        written, calendar = self._orc_footers()
        if calendar == GREGORIAN:
            self.options["orc.proleptic.gregorian"] = "true"
        fields = []
        columns, texts, selected = [], {}, []
        for field in schema.fields:
            column = quoted(field.name)
            written_as = written.get(self._key(field.name))
            if written_as is None or not written_as.has_moments():
                fields.append(field)
            else:
                fields.append(StructField(field.name, read_as(written_as, field.dataType)))
                if written_as.category in MOMENTS:
                    columns.append(Exact(field.name, *KINDS[written_as.category]))
                    texts[field.name] = moment(column, written_as.category, calendar)
                else:
                    column = rebuilt(column, written_as, calendar, field.name).alias(field.name)
            selected.append(column)
        raw = self._opened(StructType(fields)).select(*selected)
        return self._with_folders(raw, columns, texts)

    def _opened(self, schema: StructType | None = None) -> DataFrame:
        reader = self.spark.read.format(self.kind).options(**self.options)
        with set_for_a_block(self.spark, {_INFERENCE: "false"}):
            return (reader if schema is None else reader.schema(schema)).load(self.paths)

    def _with_folders(
        self, raw: DataFrame, columns: Sequence[Exact], texts: Mapping[str, Column]
    ) -> TypedScan:
        """Add the columns from folder names, column=value, which PostgreSQL reads like CSV."""
        with set_for_a_block(self.spark, {_INFERENCE: "true"}):
            fields = self._any().schema.fields[1:]
        folders = [
            Exact(field.name, "string", type_to_create(field.dataType), free=True)
            for field in fields
        ]
        exact = (*columns, *(folder for folder in folders if folder.name in raw.columns))
        text_columns = {item.name: texts.get(item.name, quoted(item.name)) for item in exact}
        return TypedScan(with_texts(raw, exact, text_columns) if exact else raw, exact)

    def _key(self, name: str) -> str:
        """Return the name that all columns have that Spark takes for the same."""
        exact = self.spark.conf.get("spark.sql.caseSensitive") == "true"
        return name if exact else name.lower()

    def _files(self) -> list[str]:
        return sorted(self._any().inputFiles())

    def _any(self) -> DataFrame:
        """Return the lines of the files, whatever they hold, with the columns of their folder names."""
        return self.spark.read.format("text").options(**self.options).load(self.paths)

    def _require_micros(self) -> None:
        """Refuse old timestamps of 96 bits if Spark would drop their nanoseconds."""
        files = self._files()
        tasks = self.spark.sparkContext.parallelize(files, max(1, min(len(files), _TASKS)))
        for texts in tasks.map(_dropped).filter(bool).take(1):
            raise LoadError(
                f"{texts}, of which Spark reads no nanoseconds: write it with microseconds."
            )

    def _refused(self, error: Exception) -> LoadError:
        """Return why Spark cannot read the columns of the files, with the file and the column."""
        reason = reason_of(error) or str(error).strip().splitlines()[0]
        kinds_of_column: dict[str, tuple[str, str]] = {}
        twice = "already exists" in reason
        for file in self._files() if self.kind == "parquet" and not twice else ():
            for name, kind, readable in self._parquet_columns(file):
                path = local_path(file) or file
                if not readable:
                    return LoadError(
                        f"{path}: Spark cannot read column {name}, whose type is {kind}."
                    )
                other_path, before = kinds_of_column.setdefault(self._key(name), (path, kind))
                if before != kind:
                    return LoadError(
                        f"Column {name} has the type {before} in {other_path} and {kind} in {path}: "
                        "load the files one after the other."
                    )
        return LoadError(f"Spark cannot read {', '.join(self.paths)}: {reason.rstrip('.')}.")

    def _parquet_columns(self, file: str) -> Iterator[tuple[str, str, bool]]:
        """Yield the names and types of a file's columns, and whether Spark can read them."""
        jvm = self.jvm
        path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file))
        opened = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(
            jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(path, self.conf)
        )
        try:
            fields = list(opened.getFooter().getFileMetaData().getSchema().getFields())
        finally:
            opened.close()
        for field in fields:
            text = str(field)
            precisions = [int(item) for item in re.findall(r"DECIMAL\((\d+)", text)]
            illegal = re.search(r"\((UUID|FLOAT16|TIME\(|INTERVAL)", text)
            written = re.sub(r"^(required|optional|repeated) ", "", " ".join(text.split()))
            yield field.getName(), written, not illegal and max(precisions, default=0) <= 38

    def _nanoseconds(self) -> list[Exact]:
        """Return the columns of timestamps with nanoseconds; they must be the same in all files."""
        written: dict[str, tuple[str, str, str]] = {}
        for file in self._files():
            place = local_path(file) or file
            for name, text, _ in self._parquet_columns(file):
                unit = re.search(r"TIMESTAMP\((\w+),(true|false)\)", text)
                nested = text.startswith("group ")
                if unit and nested and unit[1] == "NANOS":
                    raise LoadError(
                        f"{place}: column {name} has timestamps with nanoseconds within arrays, structs or "
                        "maps, which Spark cannot read."
                    )
                kind = unit[0] if unit and not nested else ""
                _, before, other = written.setdefault(self._key(name), (name, kind, place))
                if before != kind and "NANOS" in before + kind:
                    raise LoadError(
                        f"Column {name} is {before or 'no timestamp'} in {other} and "
                        f"{kind or 'no timestamp'} in {place}: load the files one after the other."
                    )
        return [
            Exact(name, *KINDS[INSTANT if kind.endswith("true)") else STAMP])
            for name, kind, _ in written.values()
            if "NANOS" in kind
        ]

    def _orc_footers(self) -> tuple[dict[str, Written], str]:
        """Return the types of the columns, and the calendar of days before 1582-10-15."""
        jvm = self.jvm
        orc = jvm.org.apache.orc.OrcFile
        kinds: dict[str, tuple[Written, str, str]] = {}
        calendars: dict[str, str] = {}
        for file in self._files():
            place = local_path(file) or file
            path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(file))
            reader = orc.createReader(path, orc.readerOptions(self.conf))
            try:
                footer = reader.getFileTail().getFooter()
                calendar = footer.getCalendar().toString() if footer.hasCalendar() else ""
                in_java = footer.getWriter() == 0
                schema = reader.getSchema()
                columns = list(zip(schema.getFieldNames(), schema.getChildren(), strict=True))
            finally:
                reader.close()
            if calendar == "PROLEPTIC_GREGORIAN":
                calendars.setdefault(GREGORIAN, place)
            else:
                calendars.setdefault(JULIAN if calendar or in_java else UNSAID, place)
            for name, kind in columns:
                current, label = written_type(kind), str(kind)
                written_as, before, other = kinds.setdefault(
                    self._key(name), (current, label, place)
                )
                if written_as != current and (written_as.has_moments() or current.has_moments()):
                    raise LoadError(
                        f"Column {name} is {before} in {other} and {label} in {place}: load the "
                        "files one after the other."
                    )
        if len(calendars) > 1:
            first, second = list(calendars.values())[:2]
            raise LoadError(
                f"{first} and {second} count the days before 1582-10-15 by different calendars: load the "
                "files one after the other."
            )
        if any(written_as.holds(STAMP) for written_as, _, _ in kinds.values()):
            self._require_utc()
        types = {name: written_as for name, (written_as, _, _) in kinds.items()}
        return types, next(iter(calendars), JULIAN)

    def _require_utc(self) -> None:
        zone = self.jvm.java.util.TimeZone.getDefault()
        if zone.getRawOffset() or zone.useDaylightTime():
            raise LoadError(
                f"Java's time zone is {zone.getID()}, in which ORC's timestamps change where clocks are put "
                "forward: start Spark with -Duser.timezone=UTC in spark.driver.extraJavaOptions and "
                "spark.executor.extraJavaOptions."
            )


_TASKS = 64


def _dropped(file: str) -> str:
    """Return a file's first timestamp of 96 bits with nanoseconds and its place; an empty text if none.

    Spark writes no such timestamps, and files that only Spark's JVM can open are not checked.
    """
    import numpy as np
    from pyarrow.parquet import ParquetFile  # type: ignore[import-not-found,import-untyped,unused-ignore]

    path = local_path(file)
    if path is None:
        return ""
    with ParquetFile(path) as opened:
        if b"org.apache.spark.version" in (opened.metadata.metadata or {}):
            return ""
        columns = [opened.schema.column(number) for number in range(len(opened.schema))]
        for column in columns:
            if column.physical_type != "INT96" or column.path != column.name:
                continue
            rows = 0
            for batch in opened.iter_batches(columns=[column.name]):
                values = batch.column(0)
                numbers = values.cast("int64").fill_null(0).to_numpy()
                if (odd := np.flatnonzero(numbers % 1000)).size:
                    value = values.cast("string")[int(odd[0])]
                    return f"{path}, row {rows + int(odd[0]) + 1}, column {column.name}: {value}"
                rows += len(values)
    return ""
