"""The types that files were written with, and the conversion of values that are read in another form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.spark.formats.exact import Exact, bound, guarded, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


STAMP, INSTANT = "timestamp", "timestamp with local time zone"

MOMENTS = ("date", STAMP, INSTANT)

KINDS = {
    "date": ("date", "date"),
    STAMP: ("timestamp_ntz", "timestamp without time zone"),
    INSTANT: ("timestamp", "timestamp with time zone"),
}

JULIAN, GREGORIAN, UNSAID = "julian", "gregorian", "unsaid"
"""The calendar of days before 1582-10-15 in a file. If a file does not name it, Java assumes the Julian
calendar, unless ORC's C++ writer wrote the file."""


def of_nanoseconds(column: Exact) -> Column:
    """Return the text of a number of nanoseconds since 1970."""
    from pyspark.sql import functions as f

    value = quoted(column.name)
    rest = f.pmod(value, f.lit(1000))
    # Truncate, then correct: subtracting the remainder first could overflow.
    micros = f.expr("`" + column.name.replace("`", "``") + "` div 1000")
    micros = micros - f.when((value < 0) & (rest != 0), 1).otherwise(0)
    text = f.date_format(f.timestamp_micros(micros), "yyyy-MM-dd HH:mm:ss.SSSSSS")
    zone = f.lit("+00" if column.kind == "timestamp" else "")
    return f.concat(text, f.lpad(rest.cast("string"), 3, "0"), zone)


@dataclass(frozen=True)
class Written:
    """An ORC type."""

    category: str
    below: tuple[tuple[str, Written], ...]

    def has_moments(self) -> bool:
        """Return whether values contain dates or times."""
        return self.category in MOMENTS or any(item.has_moments() for _, item in self.below)

    def holds(self, category: str) -> bool:
        """Return whether the type, or a part of it, is of a category."""
        return self.category == category or any(item.holds(category) for _, item in self.below)


def written_type(kind: Any) -> Written:
    """Return a type of ORC's reader as a value."""
    category = kind.getCategory().getName()
    below = list(kind.getChildren() or ())
    names = list(kind.getFieldNames()) if category == "struct" else map(str, range(len(below)))
    return Written(
        category, tuple((name, written_type(item)) for name, item in zip(names, below, strict=True))
    )


def read_as(written: Written, kind: Any) -> DataType:
    """Return the type with which Spark reads values as they are written."""
    from pyspark.sql.types import (
        ArrayType,
        DecimalType,
        MapType,
        StringType,
        StructField,
        StructType,
    )

    if written.category == INSTANT:
        # Seconds since 1970, because a text would depend on Java's time zone. More digits would reduce the scale.
        return DecimalType(28, 9)
    if written.category in MOMENTS:
        return StringType()
    below = [item for _, item in written.below]
    if written.category == "array":
        return ArrayType(read_as(below[0], kind.elementType))
    if written.category == "map":
        return MapType(read_as(below[0], kind.keyType), read_as(below[1], kind.valueType))
    if written.category == "struct":
        fields = zip(kind.fields, below, strict=True)
        return StructType(
            [StructField(item.name, read_as(sub, item.dataType)) for item, sub in fields]
        )
    read: DataType = kind
    return read


def rebuilt(value: Column, written: Written, calendar: str, name: str) -> Column:
    """Return an array, struct or map in which times have Spark's types."""
    from pyspark.sql import functions as f

    below = written.below
    if not written.has_moments():
        return value
    if written.category in MOMENTS:
        return guarded(
            moment(value, written.category, calendar), Exact(name, *KINDS[written.category])
        )
    if written.category == "array":
        return f.transform(value, lambda element: rebuilt(element, below[0][1], calendar, name))
    if written.category == "map":
        entries = f.transform(
            f.map_entries(value),
            lambda item: f.struct(
                rebuilt(item.getField("key"), below[0][1], calendar, name),
                rebuilt(item.getField("value"), below[1][1], calendar, name),
            ),
        )
        return f.map_from_entries(entries)
    fields = [
        rebuilt(value.getField(field), entry, calendar, name).alias(field) for field, entry in below
    ]
    return f.when(value.isNotNull(), f.struct(*fields))


def moment(value: Column, category: str, calendar: str) -> Column:
    """Return an ORC date or time in the form that PostgreSQL reads."""
    from pyspark.sql import functions as f

    if category == INSTANT:
        return bound(value, lambda seconds: _of_seconds(seconds, calendar))
    if calendar != UNSAID:
        today = value.between("1582-10-15", "9999-12-31 23:59:59.999999999")
        return f.when(value.isNull() | today, value).otherwise(_as_named(value))
    today = value.between("1970", "9999-12-31 23:59:59.999999999")
    late = today | value.startswith("+") | ~value.contains(".")
    result = f.when(late, _as_gregorian(value)).otherwise(f.concat(value, f.lit(_TORN)))
    return f.when(value.isNull() | today, value).otherwise(result)


_TORN = " (a fraction of a second before 1970, which ORC's writers in C++ write in several ways)"

_REFORM = -12_219_292_800
"""The second at which 1582-10-15 begins."""

_LABEL = r"^([+-]?[0-9]+)-([0-9]{2})-([0-9]{2})(.*)$"


def _of_seconds(value: Column, calendar: str) -> Column:
    """Return the text of a number of seconds since 1970."""
    from pyspark.sql import functions as f

    seconds = f.floor(value).cast("bigint")
    fraction = (value - f.floor(value)).cast("decimal(28,9)").cast("string")
    label = f.concat(
        f.timestamp_seconds(seconds).cast("string"), f.substring(fraction, 2, 10), f.lit("+00")
    )
    result = f.when(value.between(0, 253_402_300_799), label).otherwise(_as_named(label))
    if calendar == UNSAID:
        torn = (value < 0) & (value != f.floor(value))
        result = f.when(torn, f.concat(label, f.lit(_TORN))).otherwise(result)
    if calendar == JULIAN:
        old = f.concat(label, f.lit(" (days counted by the Julian calendar)"))
        result = f.when(value < _REFORM, old).otherwise(result)
    return result


def _as_gregorian(label: Column) -> Column:
    """Return the Gregorian date of a day that Java names in the Julian calendar."""
    from pyspark.sql import functions as f

    def number(day: Column) -> Column:
        # The day's number, in a calendar whose years begin in March.
        months = f.floor((153 * (day.getField("month") - 3) + 2) / 5)
        years = 365 * day.getField("year") + f.floor(day.getField("year") / 4)
        return (day.getField("day") + months + years - 32083 - 2_440_588).cast("int")

    def with_gregorian_day(label: Column) -> Column:
        year, month, day = (f.regexp_extract(label, _LABEL, n).cast("int") for n in (1, 2, 3))
        early = month < 3
        march = f.struct(
            (year + f.when(early, 4799).otherwise(4800)).alias("year"),
            (month + f.when(early, 12).otherwise(0)).alias("month"),
            day.alias("day"),
        )
        proleptic = f.date_from_unix_date(bound(march, number)).cast("string")
        # Texts with a minus sign are smaller too; the plus sign of late years is excluded below.
        old = label < "1582-10-15"
        gregorian = f.concat(proleptic, f.regexp_extract(label, _LABEL, 4))
        return f.when(old & ~label.startswith("+"), gregorian).otherwise(label)

    return _as_named(bound(label, with_gregorian_day))


def _as_named(label: Column) -> Column:
    """Return a time with PostgreSQL's name of the year, which has no year 0 and no signs."""
    from pyspark.sql import functions as f

    def with_named_year(label: Column) -> Column:
        year = f.regexp_extract(label, _LABEL, 1).cast("int")
        rest = f.regexp_replace(label, "^[+-]?[0-9]+-", "-")
        before = f.concat(f.lpad((1 - year).cast("string"), 4, "0"), rest, f.lit(" BC"))
        early = label.startswith("-") | label.startswith("0000")
        return f.when(early, before).otherwise(f.regexp_replace(label, "^[+]", ""))

    return bound(label, with_named_year)
