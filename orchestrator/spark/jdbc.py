"""Databases as sources: the drivers by which Spark's JVM reaches them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.spark.errors import LoadError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from orchestrator.spark.sources import Source

_PLACES = (
    (Path("/usr/share/java"), "postgresql.jar"),
    (Path.home() / ".m2/repository/org/postgresql/postgresql", "*/postgresql-*.jar"),
)
_POSTGRESQL = "jdbc:postgresql"
_GIVEN = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")


def driver_jar() -> str | None:
    """PostgreSQL's own JDBC driver, where Debian's package or a Maven build has put it."""
    found = [path for folder, name in _PLACES for path in sorted(folder.glob(name), reverse=True)]
    return str(found[0]) if found else None


def with_driver(config: Mapping[str, object], urls: Iterable[str]) -> dict[str, object]:
    """Settings of a session that is to read these sources: a driver that is here is made known."""
    wanted = any(url.startswith(f"{_POSTGRESQL}:") for url in urls)
    if wanted and not set(_GIVEN) & set(config) and (jar := driver_jar()):
        return {**config, "spark.jars": jar}
    return dict(config)


def open_database(spark: SparkSession, source: Source) -> DataFrame:
    """The table or the query that the options of a source name."""
    options = {name.lower(): value for name, value in source.options.items()}
    if len(source.paths) != 1:
        raise LoadError("A load reads one database: give one JDBC URL.")
    url = source.paths[0]
    if "dbtable" not in options and "query" not in options:
        raise LoadError(
            "A JDBC source needs --options dbtable=TABLE or --options 'query=SELECT ...'."
        )
    kind = ":".join(url.split(":")[:2])
    reader = spark.read.format("jdbc").option("preferTimestampNTZ", "true")
    reader = reader.options(**source.options).option("url", url)
    if kind == _POSTGRESQL and "driver" not in options:
        # Of the drivers in its own jars, Java knows only those that it is told of.
        reader = reader.option("driver", "org.postgresql.Driver")
    try:
        return reader.load()
    except Exception as error:
        if "No suitable driver" in str(error) or "ClassNotFoundException" in str(error):
            ways = "give its jar with --config spark.jars=/path/to/driver.jar" + (
                ", or install it (on Debian libpostgresql-jdbc-java)"
                if kind == _POSTGRESQL
                else " and its class with --options driver=CLASS"
            )
            raise LoadError(f"Spark has no driver for {kind}: {ways}.") from error
        raise
