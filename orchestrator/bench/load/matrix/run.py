"""`idivm bench load --matrix`: load values of all types by all paths, and count what differs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from orchestrator.api import connect
from orchestrator.bench.load.matrix.comparing import Matrix
from orchestrator.bench.load.matrix.database import run_database
from orchestrator.bench.load.matrix.documents import run_json
from orchestrator.bench.load.matrix.text import run_csv
from orchestrator.bench.load.matrix.typed import run_files, run_frames
from orchestrator.bench.measure import machine
from orchestrator.bench.report import Bar, Report
from orchestrator.errors import UsageError
from orchestrator.spark.formats.jdbc import driver_jar, with_driver
from orchestrator.spark.loading.load import SETTINGS
from orchestrator.spark.session import spark_session

PATHS_AT_LEAST, TYPES_AT_LEAST, VALUES_AT_LEAST = 12, 45, 2_000

SOURCES: dict[str, Callable[[Matrix], None]] = {
    "CSV": run_csv,
    "JSON": run_json,
    "Parquet": partial(run_files, form="parquet"),
    "ORC": partial(run_files, form="orc"),
    "DataFrames": run_frames,
    "JDBC": run_database,
}


def run_matrix(dsn: str, *, seed: int, master: str, say: Callable[[str], None]) -> Report:
    """Load the whole matrix into a database, which the caller drops."""
    if driver_jar() is None:
        raise UsageError(
            "The matrix reads a database by JDBC, and PostgreSQL's driver is missing: install it "
            "(on Debian libpostgresql-jdbc-java)."
        )
    settings = with_driver(SETTINGS, ["jdbc:postgresql:"])
    rows = []
    with (
        tempfile.TemporaryDirectory() as name,
        connect(dsn) as orchestrator,
        spark_session(master, "idivm bench load", **settings) as spark,
    ):
        matrix = Matrix(orchestrator, spark, Path(name), seed)
        for source, run in SOURCES.items():
            say(f"loading {source} by all paths")
            paths, compared, wrong = len(matrix.paths), matrix.compared, len(matrix.wrong)
            started = time.perf_counter()
            run(matrix)
            rows.append(
                {
                    "source": source,
                    "paths": len(matrix.paths) - paths,
                    "compared values": matrix.compared - compared,
                    "changed": len(matrix.wrong) - wrong,
                    "seconds": time.perf_counter() - started,
                }
            )
        described, limits = machine(orchestrator.connection), bars(matrix)
    for difference in matrix.wrong[:20]:
        say(difference)
    return Report("load", described, tuple(rows), limits)


def bars(matrix: Matrix) -> tuple[Bar, ...]:
    """Return the limits of the matrix."""
    # Types with and without a length count once.
    listed = "SELECT DISTINCT t::regtype FROM unnest(%s::text[]) AS t"
    types = matrix.orc.connection.execute(listed, [[*matrix.values]]).fetchall()
    values = sum(map(len, matrix.values.values()))
    return (
        Bar("formats and paths", len(matrix.paths), ">=", PATHS_AT_LEAST),
        Bar("types", len(types), ">=", TYPES_AT_LEAST),
        Bar("different values", values, ">=", VALUES_AT_LEAST),
        Bar("values that were changed, or refused without need", len(matrix.wrong), "=", 0),
    )
