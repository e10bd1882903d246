"""Databases as sources: the JDBC drivers that Spark uses, and the columns that are read as text.

Java has no infinite dates, no BC years that agree with PostgreSQL's, and no numbers without a scale. So
PostgreSQL writes such values as text, and the target PostgreSQL reads the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psycopg.sql import SQL, Identifier

from orchestrator.errors import UsageError
from orchestrator.spark.errors import LoadError
from orchestrator.spark.formats.exact import Exact, quoted, with_texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orchestrator.spark.formats.typed_files import TypedScan

_DRIVER_FOLDERS = (
    (Path("/usr/share/java"), "postgresql.jar"),
    (Path.home() / ".m2/repository/org/postgresql/postgresql", "*/postgresql-*.jar"),
)
_POSTGRESQL = "jdbc:postgresql"
_GIVEN = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")


def driver_jar() -> str | None:
    """Return PostgreSQL's own JDBC driver, if Debian's package or a Maven build has installed it."""
    paths = [
        path for folder, name in _DRIVER_FOLDERS for path in sorted(folder.glob(name), reverse=True)
    ]
    return str(paths[0]) if paths else None


def with_driver(config: Mapping[str, object], urls: Iterable[str]) -> dict[str, object]:
    """Return the settings of a session for these sources, with the installed driver if it is needed."""
    wanted = any(url.startswith(f"{_POSTGRESQL}:") for url in urls)
    if wanted and not set(_GIVEN) & set(config) and (jar := driver_jar()):
        return {**config, "spark.jars": jar}
    return dict(config)


_SESSION = (
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres';"
    " SET extra_float_digits = 1; SET bytea_output = 'hex'; SET xmloption = 'content'"
)
"""Settings with which the database writes text that means the same everywhere."""
_DIRECT = frozenset(
    ("int2", "int4", "int8", "float4", "float8", "bool", "text", "varchar", "bpchar", "bytea")
)
"""PostgreSQL types whose values Java represents completely."""
_MOMENTS = {
    "date": ("date", "date"),
    "timestamp": ("timestamp_ntz", "timestamp without time zone"),
    "timestamptz": ("timestamp", "timestamp with time zone"),
}
_NAMES = {
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "bool": "boolean",
    "varbit": "bit varying",
    "bit": "bit varying",
    "float4": "real",
    "float8": "double precision",
    "varchar": "character varying",
    "bpchar": "text",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
    "time": "time without time zone",
    "timetz": "time with time zone",
    "char": '"char"',
}
_KNOWN = frozenset(
    (
        *(
            "numeric",
            "text",
            "date",
            "bytea",
            "uuid",
            "json",
            "jsonb",
            "xml",
            "interval",
            "bit",
            "money",
            "oid",
        ),
        *(
            "inet",
            "cidr",
            "macaddr",
            "macaddr8",
            "point",
            "line",
            "lseg",
            "box",
            "path",
            "polygon",
            "circle",
        ),
        *(
            "int4range",
            "int8range",
            "numrange",
            "tsrange",
            "tstzrange",
            "daterange",
            "tsvector",
            "tsquery",
        ),
        *("int4multirange", "int8multirange", "nummultirange", "tsmultirange", "tstzmultirange"),
        *("datemultirange", "pg_lsn", "xid8", "name", "jsonpath"),
    )
)
_BY = "idivm_by"
"""The name of the column that divides the reading, in the query that the database runs."""


def open_database(spark: SparkSession, urls: Sequence[str], given: Mapping[str, str]) -> TypedScan:
    """Return a scan of the table or query in the source's options, whose names are in lower case."""
    from orchestrator.spark.formats.typed_files import TypedScan

    options = dict(given)
    if len(urls) != 1:
        raise LoadError("A load reads one database: give one JDBC URL.")
    url = urls[0]
    if "dbtable" not in options and "query" not in options:
        raise LoadError(
            "A JDBC source needs --options dbtable=TABLE or --options 'query=SELECT ...'."
        )
    kind = ":".join(url.split(":")[:2])
    options["url"] = url
    if kind == _POSTGRESQL:
        # Java finds only those drivers in added jars that are named.
        options.setdefault("driver", "org.postgresql.Driver")
    try:
        if kind == _POSTGRESQL and "customschema" not in options:
            return _open_postgresql(spark, options)
        reader = spark.read.format("jdbc").option("preferTimestampNTZ", "true")
        return TypedScan(reader.options(**options).load(), ())
    except Exception as error:
        if "No suitable driver" in str(error) or "ClassNotFoundException" in str(error):
            advice = "give its jar with --config spark.jars=/path/to/driver.jar" + (
                ", or install it (on Debian libpostgresql-jdbc-java)"
                if kind == _POSTGRESQL
                else " and its class with --options driver=CLASS"
            )
            raise LoadError(f"Spark has no driver for {kind}: {advice}.") from error
        raise


def _open_postgresql(spark: SparkSession, options: dict[str, str]) -> TypedScan:
    """Return a scan of a PostgreSQL table or query, with text for values that Java cannot hold."""
    from orchestrator.spark.formats.typed_files import TypedScan

    if "prefertimestampntz" in options:
        raise UsageError(
            "The option preferTimestampNTZ has no effect on PostgreSQL: a load keeps the types of columns."
        )
    start = options.pop("preparequery", "")
    table = options.pop("dbtable", "")
    if query := options.pop("query", ""):
        table = f"({query}) AS idivm_query"
    columns = _columns_of(spark, options, start, table)
    exact = [item for item in (_exact(*column) for column in columns) if item is not None]
    texts = {item.name for item in exact}
    listed = [
        (SQL("t.{0}::text AS {0}") if name in texts else SQL("t.{0}")).format(Identifier(name))
        for name, *_ in columns
    ]
    names = {name.lower(): name for name, *_ in columns}
    if by := names.get(options.get("partitioncolumn", "").strip('"').lower()):
        listed.append(SQL("t.{} AS {}").format(Identifier(by), Identifier(_BY)))
        options["partitioncolumn"] = _BY
    # The user's own SQL, which may have an alias of its own.
    statement = SQL("(SELECT {} FROM (SELECT * FROM {}) AS t) AS idivm_source").format(
        SQL(", ").join(listed), SQL(table)
    )
    given = options.pop("sessioninitstatement", "").rstrip("; ")
    options["sessioninitstatement"] = f"{given}; {_SESSION}" if given else _SESSION
    if start:
        options["preparequery"] = start
    rows = spark.read.format("jdbc").options(**options, dbtable=statement.as_string(None)).load()
    rows = rows.select(*(quoted(name) for name, *_ in columns))
    text_columns = {item.name: quoted(item.name) for item in exact}
    return TypedScan(with_texts(rows, exact, text_columns) if exact else rows, tuple(exact))


def _columns_of(
    spark: SparkSession, options: Mapping[str, str], start: str, table: str
) -> list[tuple[str, str, int, int]]:
    """Return the names, types, precisions and scales of the columns, as reported by the driver."""
    jvm: Any = spark._jvm
    settings = jvm.PythonUtils.toScalaMap({**options, "dbtable": table})
    jdbcoptions = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(settings)
    dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(options["url"])
    connection = dialect.createConnectionFactory(jdbcoptions).apply(-1)
    try:
        if statement := options.get("sessioninitstatement"):
            connection.createStatement().execute(statement)
        query = SQL("SELECT * FROM {} LIMIT 0").format(SQL(table)).as_string(None)
        columns = connection.prepareStatement(f"{start} {query}").getMetaData()
        return [
            (
                columns.getColumnLabel(number),
                columns.getColumnTypeName(number),
                columns.getPrecision(number),
                columns.getScale(number),
            )
            for number in range(1, columns.getColumnCount() + 1)
        ]
    finally:
        connection.close()


def _exact(name: str, kind: str, precision: int, scale: int) -> Exact | None:
    """Return how a column is read as text; None if Java can hold its values.

    >>> _exact("n", "numeric", 50, 25)
    Exact(name='n', kind='decimal(38,18)', postgresql_type='numeric(50,25)', free=False)
    >>> _exact("a", "_timestamptz", 0, 0).postgresql_type, _exact("m", '"public"."mood"', 0, 0).postgresql_type
    ('timestamp with time zone[]', 'text')
    """
    if kind in _DIRECT:
        return None
    if kind in _MOMENTS:
        return Exact(name, *_MOMENTS[kind])
    if kind == "numeric":
        scale -= 2048 * (scale > 1000)  # the driver shows negative scales as large ones
        sized = f"numeric({precision},{scale})" if precision else "numeric"
        held = 0 <= scale <= precision <= 38 and precision
        return Exact(name, f"decimal({precision},{scale})" if held else "decimal(38,18)", sized)
    if kind == "bit":
        return Exact(name, "string", f"bit({precision})")
    element = kind.removeprefix("_")
    type_ = _NAMES.get(element, element if element in _KNOWN else "text")
    return Exact(name, "string", type_ + "[]" * (type_ != "text" and element != kind))
