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
from orchestrator.spark.formats.exact import Exact, bound, guarded, quoted, with_texts
from orchestrator.spark.session import set_for_a_block
from orchestrator.spark.types import made_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

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
_STAMP, _INSTANT = "timestamp", "timestamp with local time zone"
_MOMENTS = ("date", _STAMP, _INSTANT)
_KINDS = {
    "date": ("date", "date"),
    _STAMP: ("timestamp_ntz", "timestamp without time zone"),
    _INSTANT: ("timestamp", "timestamp with time zone"),
}
_JULIAN, _GREGORIAN, _UNSAID = "julian", "gregorian", "unsaid"
"""How files count the days before 1582-10-15. Java takes those that do not say so for Julian ones, unless it
is the writer in C++ that has not said so."""


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
        texts = {one.name: _of_nanoseconds(one) for one in columns}
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
        if calendar == _GREGORIAN:
            self.options["orc.proleptic.gregorian"] = "true"
        fields = []
        columns, texts, shown = [], {}, []
        for one in schema.fields:
            column = quoted(one.name)
            how = written.get(one.name.lower())
            if how is None or not how.has_moments():
                fields.append(one)
            else:
                fields.append(StructField(one.name, _read_as(how, one.dataType)))
                if how.category in _MOMENTS:
                    columns.append(Exact(one.name, *_KINDS[how.category]))
                    texts[one.name] = _moment(column, how.category, calendar)
                else:
                    column = _rebuilt(column, how, calendar, one.name).alias(one.name)
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
        folders = [Exact(one.name, "string", made_type(one.dataType), free=True) for one in seen]
        exact = (*columns, *(one for one in folders if one.name in raw.columns))
        made = {one.name: texts.get(one.name, quoted(one.name)) for one in exact}
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
        for told in tasks.map(_dropped).filter(bool).take(1):
            raise LoadError(
                f"{told}, of which Spark reads no nanoseconds: write it with microseconds."
            )

    def _refused(self, error: Exception) -> LoadError:
        """Why Spark cannot tell the columns of the files, with the file and the column."""
        reason = re.sub(r"\s*SQLSTATE: \w+$", "", str(error).strip().splitlines()[0])
        reason = re.sub(r"^\[[\w.]+\] ", "", reason)
        seen: dict[str, tuple[str, str]] = {}
        for file in self._files() if self.kind == "parquet" else ():
            for name, written, readable in self._parquet_columns(file):
                place = local_path(file) or file
                if not readable:
                    return LoadError(
                        f"{place}: Spark cannot read column {name}, whose type is {written}."
                    )
                other, before = seen.setdefault(name.lower(), (place, written))
                if before != written:
                    return LoadError(
                        f"Column {name} has the type {before} in {other} and {written} in {place}: "
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
            precisions = [int(one) for one in re.findall(r"DECIMAL\((\d+)", text)]
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
            Exact(name, *_KINDS[_INSTANT if kind.endswith("true)") else _STAMP])
            for name, kind, _ in written.values()
            if "NANOS" in kind
        ]

    def _orc_footers(self) -> tuple[dict[str, _Written], str]:
        """How the columns are written, and by which calendar the days before 1582-10-15 are counted."""
        jvm = self.jvm
        orc = jvm.org.apache.orc.OrcFile
        kinds: dict[str, tuple[_Written, str, str]] = {}
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
                calendars.setdefault(_GREGORIAN, place)
            else:
                calendars.setdefault(_JULIAN if calendar or in_java else _UNSAID, place)
            for name, kind in columns:
                mine, shown = _written(kind), str(kind)
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
        if any(how.holds(_STAMP) for how, _, _ in kinds.values()):
            self._require_utc()
        found = {name: how for name, (how, _, _) in kinds.items()}
        return found, next(iter(calendars), _JULIAN)

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


def _of_nanoseconds(column: Exact) -> Column:
    """The text of a number of nanoseconds since 1970."""
    from pyspark.sql import functions as f

    value = quoted(column.name)
    rest = f.pmod(value, f.lit(1000))
    # Rounding down must not leave the numbers that there are.
    micros = f.expr("`" + column.name.replace("`", "``") + "` div 1000")
    micros = micros - f.when((value < 0) & (rest != 0), 1).otherwise(0)
    shown = f.date_format(f.timestamp_micros(micros), "yyyy-MM-dd HH:mm:ss.SSSSSS")
    zone = f.lit("+00" if column.kind == "timestamp" else "")
    return f.concat(shown, f.lpad(rest.cast("string"), 3, "0"), zone)


@dataclass(frozen=True)
class _Written:
    """A type of ORC."""

    category: str
    below: tuple[tuple[str, _Written], ...]

    def has_moments(self) -> bool:
        return self.category in _MOMENTS or any(one.has_moments() for _, one in self.below)

    def holds(self, category: str) -> bool:
        return self.category == category or any(one.holds(category) for _, one in self.below)


def _written(kind: Any) -> _Written:
    category = kind.getCategory().getName()
    below = list(kind.getChildren() or ())
    names = list(kind.getFieldNames()) if category == "struct" else map(str, range(len(below)))
    return _Written(
        category, tuple((name, _written(one)) for name, one in zip(names, below, strict=True))
    )


def _read_as(written: _Written, kind: Any) -> DataType:
    """The type in which Spark gets values as they are written."""
    from pyspark.sql.types import (
        ArrayType,
        DecimalType,
        MapType,
        StringType,
        StructField,
        StructType,
    )

    if written.category == _INSTANT:
        # Seconds since 1970: a text would depend on Java's time zone. More digits would cost places below.
        return DecimalType(28, 9)
    if written.category in _MOMENTS:
        return StringType()
    below = [one for _, one in written.below]
    if written.category == "array":
        return ArrayType(_read_as(below[0], kind.elementType))
    if written.category == "map":
        return MapType(_read_as(below[0], kind.keyType), _read_as(below[1], kind.valueType))
    if written.category == "struct":
        fields = zip(kind.fields, below, strict=True)
        return StructType(
            [StructField(one.name, _read_as(sub, one.dataType)) for one, sub in fields]
        )
    read: DataType = kind
    return read


def _rebuilt(value: Column, written: _Written, calendar: str, name: str) -> Column:
    """An array, struct or map with times of Spark's types within."""
    from pyspark.sql import functions as f

    below = written.below
    if not written.has_moments():
        return value
    if written.category in _MOMENTS:
        return guarded(
            _moment(value, written.category, calendar), Exact(name, *_KINDS[written.category])
        )
    if written.category == "array":
        return f.transform(value, lambda one: _rebuilt(one, below[0][1], calendar, name))
    if written.category == "map":
        entries = f.transform(
            f.map_entries(value),
            lambda one: f.struct(
                _rebuilt(one.getField("key"), below[0][1], calendar, name),
                _rebuilt(one.getField("value"), below[1][1], calendar, name),
            ),
        )
        return f.map_from_entries(entries)
    fields = [
        _rebuilt(value.getField(field), one, calendar, name).alias(field) for field, one in below
    ]
    return f.when(value.isNotNull(), f.struct(*fields))


def _moment(value: Column, category: str, calendar: str) -> Column:
    """A date or a time of ORC as PostgreSQL reads it."""
    from pyspark.sql import functions as f

    if category == _INSTANT:
        return bound(value, lambda seconds: _of_seconds(seconds, calendar))
    if calendar != _UNSAID:
        today = value.between("1582-10-15", "9999-12-31 23:59:59.999999999")
        return f.when(value.isNull() | today, value).otherwise(_as_named(value))
    today = value.between("1970", "9999-12-31 23:59:59.999999999")
    late = today | value.startswith("+") | ~value.contains(".")
    shown = f.when(late, _as_gregorian(value)).otherwise(f.concat(value, f.lit(_TORN)))
    return f.when(value.isNull() | today, value).otherwise(shown)


_TORN = " (a fraction of a second before 1970, which ORC's writers in C++ write in several ways)"


_REFORM = -12_219_292_800
"""The second at which 1582-10-15 begins."""
_LABEL = r"^([+-]?[0-9]+)-([0-9]{2})-([0-9]{2})(.*)$"


def _of_seconds(value: Column, calendar: str) -> Column:
    """The text of a number of seconds since 1970."""
    from pyspark.sql import functions as f

    seconds = f.floor(value).cast("bigint")
    fraction = (value - f.floor(value)).cast("decimal(28,9)").cast("string")
    label = f.concat(
        f.timestamp_seconds(seconds).cast("string"), f.substring(fraction, 2, 10), f.lit("+00")
    )
    shown = f.when(value.between(0, 253_402_300_799), label).otherwise(_as_named(label))
    if calendar == _UNSAID:
        torn = (value < 0) & (value != f.floor(value))
        shown = f.when(torn, f.concat(label, f.lit(_TORN))).otherwise(shown)
    if calendar == _JULIAN:
        old = f.concat(label, f.lit(" (days counted by the Julian calendar)"))
        shown = f.when(value < _REFORM, old).otherwise(shown)
    return shown


def _as_gregorian(label: Column) -> Column:
    """The day that Java calls by its name in the Julian calendar."""
    from pyspark.sql import functions as f

    def number(day: Column) -> Column:
        # The day's number, with years that begin in March.
        months = f.floor((153 * (day.getField("month") - 3) + 2) / 5)
        years = 365 * day.getField("year") + f.floor(day.getField("year") / 4)
        return (day.getField("day") + months + years - 32083 - 2_440_588).cast("int")

    def shown(label: Column) -> Column:
        year, month, day = (f.regexp_extract(label, _LABEL, n).cast("int") for n in (1, 2, 3))
        early = month < 3
        march = f.struct(
            (year + f.when(early, 4799).otherwise(4800)).alias("year"),
            (month + f.when(early, 12).otherwise(0)).alias("month"),
            day.alias("day"),
        )
        proleptic = f.date_from_unix_date(bound(march, number)).cast("string")
        old = (
            label < "1582-10-15"
        )  # with a sign before the year as well, but for that of late years
        there = f.concat(proleptic, f.regexp_extract(label, _LABEL, 4))
        return f.when(old & ~label.startswith("+"), there).otherwise(label)

    return _as_named(bound(label, shown))


def _as_named(label: Column) -> Column:
    """A time with the name of its year in PostgreSQL, which has no year 0 and no signs."""
    from pyspark.sql import functions as f

    def shown(label: Column) -> Column:
        year = f.regexp_extract(label, _LABEL, 1).cast("int")
        rest = f.regexp_replace(label, "^[+-]?[0-9]+-", "-")
        before = f.concat(f.lpad((1 - year).cast("string"), 4, "0"), rest, f.lit(" BC"))
        early = label.startswith("-") | label.startswith("0000")
        return f.when(early, before).otherwise(f.regexp_replace(label, "^[+]", ""))

    return bound(label, shown)
