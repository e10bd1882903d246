"""Columns with values that Spark's own types cannot all hold: they are read, and loaded, as text.

Besides its text, such a column has a value of Spark's type, so that `where` and `select` can compute with it.
The value is derived from the text if it fits. A value that does not fit ends the load when an expression
uses it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TEXT = "idivm_text_"


@dataclass(frozen=True)
class Exact:
    """A column that is loaded as text."""

    name: str
    kind: str
    """Spark's type to compute with, in DDL syntax; `string` if no type fits."""
    postgresql_type: str
    """The PostgreSQL type of the values, which a table that the load creates gets."""
    free: bool = False
    """Whether any type may read the text, as for CSV."""


def text_name(name: str) -> str:
    """Return the name of the column with the text of a column.

    >>> is_text_name(text_name("a"))
    True
    """
    return _TEXT + name


def is_text_name(name: str) -> bool:
    """Return whether a column holds the text of another column."""
    return name.startswith(_TEXT)


def quoted(name: str) -> Column:
    """Return a column by its exact name."""
    from pyspark.sql import functions as f

    return f.col("`" + name.replace("`", "``") + "`")


def with_texts(
    raw: DataFrame, columns: Iterable[Exact], text_columns: Mapping[str, Column]
) -> DataFrame:
    """Return a scan with the values to compute with and the texts to load; `text_columns` maps names to texts."""
    exact = {column.name: column for column in columns}
    selected = [
        guarded(text_columns[name], exact[name]).alias(name) if name in exact else quoted(name)
        for name in raw.columns
    ]
    return raw.select(*selected, *(text_columns[name].alias(text_name(name)) for name in exact))


def guarded(text: Column, column: Exact) -> Column:
    """Return a text as a value of Spark's type, or raise an error that names the text if it does not fit."""
    from pyspark.sql import functions as f

    if column.kind == "string":
        return text

    def value(text: Column) -> Column:
        file = f.input_file_name()
        message = f.concat(
            f.lit(f"column {column.name}: Spark cannot compute with the value "),
            text,
            f.lit(f" as {column.kind}"),
            f.when(file != "", f.concat(f.lit(", in "), file)).otherwise(""),
        )
        wrong = f.raise_error(message).cast(column.kind)
        fits = text.isNull() | text.rlike(_pattern(column.kind))
        read = f.when(text.endswith(" BC"), _with_year(text)).otherwise(text)
        return f.when(fits, read.cast(column.kind)).otherwise(wrong)

    return bound(text, value)


def bound(value: Column, use: Callable[[Column], Column]) -> Column:
    """Return an expression that uses a value several times but computes it once, so that it stays short."""
    from pyspark.sql import functions as f

    return f.transform(f.array(value), use).getItem(0)


def _with_year(text: Column) -> Column:
    """Return a time in Spark's form, with year 0 and negative years instead of PostgreSQL's BC."""
    from pyspark.sql import functions as f

    year = f.lpad((f.regexp_extract(text, "^[0-9]+", 0).cast("int") - 1).cast("string"), 4, "0")
    rest = f.regexp_extract(text, "^[0-9]+(.*) BC$", 1)
    return f.concat(f.lit("-"), year, rest)


def _pattern(kind: str) -> str:
    """Return the pattern of the texts that a Spark type can hold.

    >>> bool(re.match(_pattern("decimal(4,2)"), "12.50")), bool(re.match(_pattern("date"), "infinity"))
    (True, False)
    """
    day = r"^[0-9]{4,6}-[0-9]{2}-[0-9]{2}"
    moment = day + r" [0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6}0*)?"
    if kind.startswith("decimal"):
        precision, scale = map(int, re.findall(r"\d+", kind))
        return rf"^-?[0-9]{{1,{max(precision - scale, 1)}}}([.][0-9]{{1,{max(scale, 1)}}}0*)?$"
    end = "( BC)?$"
    return {"date": day, "timestamp": moment + "[+]00", "timestamp_ntz": moment}[kind] + end


def passed(select: str | None, columns: Sequence[str]) -> dict[str, str]:
    """Return the columns that a select list passes on unchanged, by their new names.

    >>> passed("A, b AS c, b + 1 AS d", ["a", "b"])
    {'A': 'a', 'c': 'b'}
    >>> passed("A, a, b", ["a", "A"])
    {'A': 'A', 'a': 'a'}
    >>> passed("*", ["a", "b"]) == passed(None, ["a", "b"]) == {"a": "a", "b": "b"}
    True
    """
    own = {name.lower(): name for name in columns} | {name: name for name in columns}
    if select is None:
        return {name: name for name in columns}
    import sqlglot  # here, because the workers of loads need no parser
    from sqlglot import exp

    try:
        tree = sqlglot.parse_one(f"SELECT {select}", dialect="spark")
    except sqlglot.errors.SqlglotError:
        return {}  # then all items count as computed, and items that cannot be computed fail
    result: dict[str, str] = {}
    for item in tree.expressions:
        if isinstance(item, exp.Star):
            left_out = {excepted.name.lower() for excepted in item.args.get("except_") or ()}
            result |= {name: name for name in columns if name.lower() not in left_out}
            continue
        column = item.unalias()
        # A name before the point may be a struct's name.
        if isinstance(column, exp.Column) and not column.table:
            result[item.alias_or_name] = own.get(column.name, own.get(column.name.lower(), ""))
    return {name: there for name, there in result.items() if there}


def texts_passed(select: str, columns: Sequence[str]) -> list[tuple[str, str]]:
    """Return the text columns that a select list passes on: their new names, and items for the list.

    >>> texts_passed("a AS b", ["a", text_name("a")])
    [('idivm_text_b', '`idivm_text_a` AS `idivm_text_b`')]
    """
    from sqlglot import exp

    names = [column.removeprefix(_TEXT) for column in columns if is_text_name(column)]
    items = [
        (text_name(here), exp.column(text_name(there), quoted=True))
        for here, there in passed(select, names).items()
    ]
    return [(here, exp.alias_(item, here, quoted=True).sql("spark")) for here, item in items]


def scale_of(wanted: str) -> int | None:
    """Return the decimal places of the seconds in a PostgreSQL type; None for types without seconds.

    >>> scale_of("timestamp(3) with time zone"), scale_of("time without time zone"), scale_of("date")
    (3, 6, None)
    """
    match = re.match(r"time(?:stamp)?(?:\((\d)\))? with", wanted)
    return int(match[1] or 6) if match else None
