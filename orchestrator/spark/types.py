"""How Spark's types map to PostgreSQL's types, for existing tables and for tables that a load creates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from orchestrator.frontend.facts import Relation, RelationColumn
from orchestrator.spark.errors import LoadError
from orchestrator.spark.formats.exact import Exact, scale_of

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_INTEGERS = {"smallint": 2, "integer": 4, "bigint": 8}
_POSTGRES_TYPES = {
    "tinyint": "smallint",
    "smallint": "smallint",
    "int": "integer",
    "bigint": "bigint",
    "float": "real",
    "double": "double precision",
    "boolean": "boolean",
    "string": "text",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
    "binary": "bytea",
    "void": "text",
}
NOTHING: Mapping[str, Exact] = MappingProxyType({})
_TEXTUAL = ("text", "character varying", "character", "name", "citext")
_JSON = ("json", "jsonb")


@dataclass(frozen=True)
class Column:
    """A column that a load fills, with its names in the source and in the table."""

    source: str
    name: str
    type: str
    as_json: bool = False
    """Whether it holds JSON that is built from other values."""
    places: int | None = None
    """The number of decimal places of its seconds, if the source may have more."""
    added: bool = False
    """Whether the load adds the column to the table."""
    control: bool = False
    """Whether the column controls the load and does not go into the table."""


def type_to_create(kind: DataType, exact: bool = False) -> str:
    """Return the PostgreSQL type of a new column for a Spark type; `exact` uses numeric for floats.

    >>> from pyspark.sql.types import ArrayType, DecimalType, DoubleType, IntegerType
    >>> type_to_create(DecimalType(10, 2)), type_to_create(ArrayType(IntegerType()))
    ('numeric(10,2)', 'integer[]')
    >>> type_to_create(DoubleType(), exact=True)
    'numeric'
    """
    name = kind.typeName()
    simple = kind.simpleString()
    if exact and name in ("double", "float", "decimal"):
        return "numeric"
    if name == "decimal":
        return f"numeric({simple[len('decimal(') : -1]})"
    if name == "array":
        inner = type_to_create(_element(kind), exact)
        return "jsonb" if inner == "jsonb" else f"{inner.removesuffix('[]')}[]"
    if name in ("struct", "map", "variant"):
        return "jsonb"
    if simple in _POSTGRES_TYPES:
        return _POSTGRES_TYPES[simple]
    if re.match(r"(var)?char\(", simple):
        return "text"
    raise LoadError(f"Spark's type {simple} has no counterpart in PostgreSQL: cast it (--select).")


def pair(
    schema: StructType,
    table: Relation,
    defaults: frozenset[int] = frozenset(),
    *,
    text: bool = False,
    positional: bool = False,
    exact: Mapping[str, Exact] = NOTHING,
) -> tuple[Column, ...]:
    """Return the columns to fill, matched by name, or by position if the source has no names of its own.

    With `text`, PostgreSQL reads the values, and only the names must match. The `exact` columns are read as
    text. The columns in `defaults` may be missing. The error lists everything that does not fit.
    """
    mismatches: list[str] = []
    columns: list[Column] = []
    writable = [column for column in table.columns if not column.generated]
    for number, field in enumerate(schema.fields):
        column = writable[number] if positional and number < len(writable) else None
        column = column or named(field.name, table.columns)
        if column is None:
            mismatches.append(f"column {field.name} is not in the table")
            continue
        if column.generated:
            mismatches.append(f"column {column.name} is generated, leave it out")
            continue
        if any(column.name == other.name for other in columns):
            mismatches.append(f"column {column.name} is there more than once")
        if field.name in exact:
            reason = unfit_exact(exact[field.name], field.dataType, column.plain_type)
        else:
            reason = unfit(field.dataType, column.plain_type, text)
        if reason:
            mismatches.append(f"column {column.name}: {reason}")
        nested = field.dataType.typeName() in ("struct", "map", "variant", "array")
        as_json = nested and column.plain_type in _JSON
        places = None if text else _places(column.plain_type, exact.get(field.name))
        columns.append(Column(field.name, column.name, column.type, as_json, places))
    filled = {column.name for column in columns}
    for column in table.columns:
        needed = column.not_null and not column.generated and column.attnum not in defaults
        if needed and column.name not in filled and not column.identity:
            mismatches.append(f"column {column.name} is not in the source, and must not be NULL")
    if mismatches:
        raise LoadError(f"The source does not fit {table.qualified}: {'; '.join(mismatches)}.")
    return tuple(columns)


def columns_to_create(
    names: Sequence[str], types: Mapping[str, str], exact: Mapping[str, Exact]
) -> tuple[Column, ...]:
    """Return the columns of a table that is created for a source."""
    return tuple(
        Column(name, name, types[name], types[name] == "jsonb" and name not in exact, places)
        for name in names
        for places in [_places(types[name], exact.get(name))]
    )


def added_names(schema: StructType, table: Relation) -> list[str]:
    """Return the columns of a source that a table does not have."""
    return [field.name for field in schema.fields if named(field.name, table.columns) is None]


def _places(wanted: str, exact: Exact | None) -> int | None:
    """Return the number of decimal places of a column's seconds, if the source may have more."""
    if exact is not None:
        return None if exact.free else scale_of(wanted)
    places = scale_of(wanted)
    return None if places == 6 else places


def handling(columns: Sequence[Column]) -> dict[str, Any]:
    """Return what tasks must know about the columns, by the columns' names in the source."""
    return {
        "as_json": tuple(column.source for column in columns if column.as_json),
        "as_double": tuple(
            column.source for column in columns if column.type.startswith("double precision")
        ),
        "places": {column.source: column.places for column in columns if column.places is not None},
    }


def is_json_type(name: str) -> bool:
    """Return whether a PostgreSQL type holds JSON."""
    return name in _JSON


def unfit_exact(column: Exact, kind: DataType, wanted: str) -> str | None:
    """Return why the text of a column does not fit a column type; None if it fits.

    >>> from pyspark.sql.types import DecimalType
    >>> unfit_exact(Exact("n", "decimal(38,18)", "numeric(50,25)"), DecimalType(38, 18), "numeric(45,18)")
    'numeric(50,25) may be too large for numeric(45,18), cast it (--select)'
    """
    base = re.sub(r"\(.*?\)", "", wanted)
    if column.free or column.postgresql_type == wanted or base in _TEXTUAL:
        return None
    if column.postgresql_type.startswith("numeric") and base == "numeric":
        if wanted == base:
            return None
        if "(" in column.postgresql_type:
            precision, scale = _decimal(column.postgresql_type)
            most, places = _decimal(wanted)
            if 0 <= scale <= places and precision - scale <= most - places:
                return None
        return f"{column.postgresql_type} may be too large for {wanted}, cast it (--select)"
    if column.kind != "string":
        return unfit(kind, wanted)
    if column.postgresql_type == "text" or (column.postgresql_type in _JSON and base in _JSON):
        return unfit(kind, wanted)
    if column.postgresql_type == base and (base.startswith(("time", "bit")) or "(" not in wanted):
        return None
    return f"{column.postgresql_type} does not go into {wanted}, cast it in the query"


def unfit(kind: DataType, wanted: str, text: bool = False) -> str | None:
    """Return why values of a Spark type do not fit a column type; None if they fit.

    >>> from pyspark.sql.types import LongType, TimestampType, StringType
    >>> unfit(LongType(), "integer")
    'bigint may be too large for integer, cast it (--select)'
    >>> unfit(TimestampType(), "timestamp without time zone")
    'timestamp has a time zone and the column has none, cast it (--select) to timestamp_ntz'
    >>> unfit(StringType(), "uuid")
    """
    name, simple = kind.typeName(), kind.simpleString()
    base = re.sub(r"\(.*?\)", "", wanted)
    cast = "cast it (--select)"
    if name in ("struct", "map", "variant"):
        if base not in _JSON:
            return f"{simple} goes into json or jsonb, not {wanted}"
        return _undocumented(kind)
    if name == "array":
        if base in _JSON:
            return _undocumented(kind)
        if not wanted.endswith("[]"):
            return f"{simple} does not go into {wanted}"
        if re.match(r"time(stamp)?\([0-5]\)", wanted):
            return f"{simple} may have more decimal places than {wanted}, {cast} to array<string>"
        element = _element(kind)
        below = wanted if element.typeName() == "array" else wanted.removesuffix("[]")
        return unfit(element, below, text)
    if base in _TEXTUAL or name == "void":
        return f"{simple} does not go into {wanted}, {cast}" if name == "binary" else None
    if name == "string":
        plain = base in _PLAIN and not text
        return f"text does not go into {wanted} unseen, {cast}" if plain else None
    if name == "timestamp" and base == "timestamp without time zone":
        return f"timestamp has a time zone and the column has none, {cast} to timestamp_ntz"
    if name == "timestamp_ntz" and base == "timestamp with time zone":
        return f"timestamp_ntz has no time zone and the column has one, {cast} to timestamp"
    return None if _fits(kind, wanted, base) else _unfitting(kind, wanted, base, cast)


_DOCUMENTED = (
    *(
        "byte",
        "short",
        "integer",
        "long",
        "decimal",
        "float",
        "double",
        "boolean",
        "string",
        "void",
    ),
    *("char", "varchar", "date", "timestamp", "timestamp_ntz", "binary"),
)


def _undocumented(kind: Any, within: bool = False) -> str | None:
    """Return why values of a type do not fit a JSON document; None if they fit.

    >>> from pyspark.sql.types import IntegerType, StructType, VariantType
    >>> _undocumented(StructType().add("a", IntegerType()).add("a", IntegerType()))
    'struct<a:int,a:int> has two fields a, cast it (--select)'
    >>> _undocumented(VariantType()), _undocumented(StructType().add("v", VariantType()))
    (None, 'variant does not go into a document, cast it (--select) by to_json')
    """
    name = kind.typeName()
    if name == "struct":
        repeated = [item for item in kind.names if kind.names.count(item) > 1]
        if repeated:
            return f"{kind.simpleString()} has two fields {repeated[0]}, cast it (--select)"
        below = [field.dataType for field in kind.fields]
    elif name == "map":
        if kind.keyType.typeName() in ("struct", "map", "array"):
            return f"{kind.simpleString()} has keys that are no texts, cast it (--select)"
        below = [kind.keyType, kind.valueType]
    elif name == "array":
        below = [kind.elementType]
    else:
        fits = name in _DOCUMENTED or (name == "variant" and not within)
        refusal = (
            f"{kind.simpleString()} does not go into a document, cast it (--select) by to_json"
        )
        return None if fits else refusal
    return next(
        (undocumented for item in below if (undocumented := _undocumented(item, within=True))), None
    )


_PLAIN = {
    *_INTEGERS,
    "numeric",
    "real",
    "double precision",
    "boolean",
    "date",
    "timestamp with time zone",
    "timestamp without time zone",
    "bytea",
}


def _fits(kind: DataType, wanted: str, base: str) -> bool:
    name = kind.typeName()
    sizes = {"byte": 1, "short": 2, "integer": 4, "long": 8}
    if name in sizes:
        digits = _INTEGERS.get(base, 0) or {"real": 3, "double precision": 7}.get(base, 0)
        if base == "numeric" and wanted != base:
            return _decimal(wanted)[1] >= 0
        return digits >= sizes[name] or base == "numeric"
    if name == "decimal":
        precision, scale = _decimal(kind.simpleString())
        if base == "numeric":
            if wanted == "numeric":
                return True
            most, places = _decimal(wanted)
            return precision - scale <= most - places and scale <= places
        return scale == 0 and precision <= {2: 4, 4: 9, 8: 18}.get(_INTEGERS.get(base, 0), 0)
    if name in ("float", "double"):
        return base in ("double precision", "numeric") or (name == "float" and base == "real")
    times = {
        "timestamp_ntz": "timestamp without time zone",
        "timestamp": "timestamp with time zone",
    }
    return base == times.get(name, {"binary": "bytea"}.get(name, name))


def _unfitting(kind: DataType, wanted: str, base: str, cast: str) -> str:
    simple = kind.simpleString()
    numbers = ("byte", "short", "integer", "long", "decimal", "float", "double")
    if kind.typeName() in numbers and (base in _INTEGERS or base in ("numeric", "real")):
        return f"{simple} may be too large for {wanted}, {cast}"
    return f"{simple} does not go into {wanted}, {cast}"


def _decimal(text: str) -> tuple[int, int]:
    numbers = [int(number) for number in re.findall(r"-?\d+", text)]
    return numbers[0], numbers[1] if len(numbers) > 1 else 0


def _element(kind: Any) -> DataType:
    element: DataType = kind.elementType
    return element


def named(name: str, columns: Sequence[RelationColumn]) -> RelationColumn | None:
    """Return the column of this name, or the only column whose name differs just in case."""
    for column in columns:
        if column.name == name:
            return column
    folded = [column for column in columns if column.name.lower() == name.lower()]
    return folded[0] if len(folded) == 1 else None
