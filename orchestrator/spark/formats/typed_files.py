"""Parquet and ORC: all columns of all files, and times as they are written, whatever their calendar.

Spark reads the files. What its readers would change on the way is read in another form: nanoseconds of
Parquet as numbers, dates and timestamps of ORC as text and decimals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.spark.errors import LoadError
from orchestrator.spark.formats.blocks import local_path
from orchestrator.spark.formats.exact import Exact, quoted, with_texts
from orchestrator.spark.session import set_for_a_block
from orchestrator.spark.types import made_type

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
        # What files say of their calendar counts; those that say nothing have the usual one.
        "datetimeRebaseMode": "CORRECTED",
        "int96RebaseMode": "CORRECTED",
    },
    "orc": {"mergeSchema": "true"},
}

_NANOS = "spark.sql.legacy.parquet.nanosAsLong"

_INFERENCE = "spark.sql.sources.partitionColumnTypeInference.enabled"


@dataclass(frozen=True)
class TypedScan:
    """Files as a DataFrame, with the columns of which the text is loaded."""

    rows: DataFrame
    exact: tuple[Exact, ...]


def open_files(
    spark: SparkSession, kind: str, paths: Sequence[str], options: Mapping[str, str]
) -> TypedScan:
    """Opens files of a format with types."""
    given = {name.lower() for name in options}
    own = {name: value for name, value in _OPTIONS[kind].items() if name.lower() not in given}
    reader = _Reader(spark, kind, list(paths), {**own, **options})
    return reader.parquet() if kind == "parquet" else reader.orc()


class _Reader:
    """Files of one source, of which the footers are looked at where their schema does not say enough."""

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
        # Stays so until the tasks have read the files.
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
        columns, texts, shown = [], {}, []
        for field in schema.fields:
            column = quoted(field.name)
            how = written.get(field.name.lower())
            if how is None or not how.has_moments():
                fields.append(field)
            else:
                fields.append(StructField(field.name, read_as(how, field.dataType)))
                if how.category in MOMENTS:
                    columns.append(Exact(field.name, *KINDS[how.category]))
                    texts[field.name] = moment(column, how.category, calendar)
                else:
                    column = rebuilt(column, how, calendar, field.name).alias(field.name)
            shown.append(column)
        raw = self._opened(StructType(fields)).select(*shown)
        return self._with_folders(raw, columns, texts)

    def _opened(self, schema: StructType | None = None) -> DataFrame:
        reader = self.spark.read.format(self.kind).options(**self.options)
        with set_for_a_block(self.spark, {_INFERENCE: "false"}):
            return (reader if schema is None else reader.schema(schema)).load(self.paths)

    def _with_folders(
        self, raw: DataFrame, columns: Sequence[Exact], texts: Mapping[str, Column]
    ) -> TypedScan:
        """With the columns that folders named column=value make, which PostgreSQL reads like CSV."""
        with set_for_a_block(self.spark, {_INFERENCE: "true"}):
            seen = self._any().schema.fields[1:]
        folders = [Exact(item.name, "string", made_type(item.dataType), free=True) for item in seen]
        exact = (*columns, *(folder for folder in folders if folder.name in raw.columns))
        made = {item.name: texts.get(item.name, quoted(item.name)) for item in exact}
        return TypedScan(with_texts(raw, exact, made) if exact else raw, exact)

    def _files(self) -> list[str]:
        return sorted(self._any().inputFiles())

    def _any(self) -> DataFrame:
        """The files whatever is in them, with the columns that their folders make."""
        return self.spark.read.format("text").options(**self.options).load(self.paths)

    def _require_micros(self) -> None:
        """Refuses old timestamps of 96 bits of which Spark would drop nanoseconds."""
        files = self._files()
        tasks = self.spark.sparkContext.parallelize(files, max(1, min(len(files), _TASKS)))
        for texts in tasks.map(_dropped).filter(bool).take(1):
            raise LoadError(
                f"{texts}, of which Spark reads no nanoseconds: write it with microseconds."
            )

    def _refused(self, error: Exception) -> LoadError:
        """Why Spark cannot tell the columns of the files, with the file and the column."""
        reason = re.sub(r"\s*SQLSTATE: \w+$", "", str(error).strip().splitlines()[0])
        reason = re.sub(r"^\[[\w.]+\] ", "", reason)
        seen: dict[str, tuple[str, str]] = {}
        for file in self._files() if self.kind == "parquet" else ():
            for name, kind, readable in self._parquet_columns(file):
                place = local_path(file) or file
                if not readable:
                    return LoadError(
                        f"{place}: Spark cannot read column {name}, whose type is {kind}."
                    )
                other, before = seen.setdefault(name.lower(), (place, kind))
                if before != kind:
                    return LoadError(
                        f"Column {name} has the type {before} in {other} and {kind} in {place}: "
                        "load the files one after the other."
                    )
        return LoadError(f"Spark cannot read {', '.join(self.paths)}: {reason.rstrip('.')}.")

    def _parquet_columns(self, file: str) -> Iterator[tuple[str, str, bool]]:
        """Names and types of the columns of a file, and whether Spark can read them."""
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
        """The columns of timestamps with nanoseconds, the same in all files."""
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
                _, before, other = written.setdefault(name.lower(), (name, kind, place))
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
        """How the columns are written, and by which calendar the days before 1582-10-15 are counted."""
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
                mine, shown = written_type(kind), str(kind)
                how, before, other = kinds.setdefault(name.lower(), (mine, shown, place))
                if how != mine and (how.has_moments() or mine.has_moments()):
                    raise LoadError(
                        f"Column {name} is {before} in {other} and {shown} in {place}: load the "
                        "files one after the other."
                    )
        if len(calendars) > 1:
            first, second = list(calendars.values())[:2]
            raise LoadError(
                f"{first} and {second} count the days before 1582-10-15 by different calendars: load the "
                "files one after the other."
            )
        if any(how.holds(STAMP) for how, _, _ in kinds.values()):
            self._require_utc()
        found = {name: how for name, (how, _, _) in kinds.items()}
        return found, next(iter(calendars), JULIAN)

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
    """The first timestamp of 96 bits with nanoseconds in a file, with its place; nothing if there is none.

    Spark writes none, and a file that only Spark's JVM reaches is not looked at.
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
                    shown = values.cast("string")[int(odd[0])]
                    return f"{path}, row {rows + int(odd[0]) + 1}, column {column.name}: {shown}"
                rows += len(values)
    return ""
