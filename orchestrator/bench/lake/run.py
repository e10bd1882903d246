"""Measure views over a stream whose rows stay in Parquet files, beside the same views over a stored table.

Batches of files go to both in turn. At the end, the views over the stream are recomputed from all files and
compared with what the batches made of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from psycopg.sql import SQL, Identifier, Literal

from orchestrator.api import Orchestrator, connect
from orchestrator.bench.measure import Paired, in_c_or_say, machine, own_server
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.bench.workload import SCHEMA, Workload
from orchestrator.errors import UsageError

COLUMNS = (
    "day int NOT NULL, shop int NOT NULL, item int NOT NULL, units int NOT NULL, cents int NOT NULL"
)

WORKLOAD = Workload("lake")

VIEWS = ("covariance", "by_city", "by_kind", "by_month", "by_city_and_kind")

_OVER_SEVERAL = ("covariance", "by_city_and_kind")

GROWTH_AT_MOST = 3.0
"""The growth of the database by stream and views, in percent of the stored rows."""

REFRESH_AT_MOST = 1.1
"""A refresh after a batch, in refreshes of the views over the stored table."""

_FILE_ROWS = 1_000_000
_DAYS, _SHOPS, _ITEMS = 1_000, 1_000, 20_000


def run(
    *,
    rows: int = 20_000_000,
    batches: int = 10,
    batch_rows: int = 10_000,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Run the benchmark on its own server."""
    if rows < 1 or batches < 1 or batch_rows < 1:
        raise UsageError("It needs --rows, --batches and --batch-rows of 1 or more.")
    with (
        tempfile.TemporaryDirectory() as name,
        own_server(pg) as server,
        connect(server.up().dsn) as orchestrator,
    ):
        in_c_or_say(server, "So capture is measured in plpgsql.", say)
        described = machine(orchestrator.connection)
        files = _Files(Path(name))
        say(f"writing {rows:,} rows as Parquet")
        for start in range(0, rows, _FILE_ROWS):
            files.write(min(_FILE_ROWS, rows - start))
        with WORKLOAD.tables(orchestrator, {"shops": _SHOPS, "items": _ITEMS, "days": _DAYS}):
            return _measured(orchestrator, files, described, batches, batch_rows, say)


def _measured(
    orchestrator: Orchestrator,
    files: _Files,
    described: dict[str, Any],
    batches: int,
    batch_rows: int,
    say: Callable[[str], None],
) -> Report:
    stream, stored = f"{SCHEMA}.sales", f"{SCHEMA}.stored"
    empty = _size(orchestrator)
    orchestrator.create_stream(stream, COLUMNS, files.folder, format="parquet")
    orchestrator.run_stream(stream, once=True)
    say("creating the views over the stream")
    with orchestrator.read_streams(stream):
        _create(orchestrator, "sales")
    grown = _size(orchestrator) - empty
    say("storing the rows, and creating the views over them")
    orchestrator.connection.execute(
        SQL("CREATE TABLE {} ({})").format(Identifier(SCHEMA, "stored"), SQL(COLUMNS))
    )
    orchestrator.load(files.folder, stored, format="parquet")
    row = orchestrator.connection.execute(
        "SELECT pg_total_relation_size(%s::regclass)", [stored]
    ).fetchone()
    assert row is not None
    _create(orchestrator, "stored")
    refreshes: dict[str, list[float]] = {stream: [], stored: []}
    whole: dict[str, list[float]] = {stream: [], stored: []}
    for number in range(batches + 1):
        say(f"batch {number} of {batches}")
        new = files.write(batch_rows)
        for table in (stream, stored) if number % 2 else (stored, stream):
            report = _load(orchestrator, table, new)
            # The first refresh of a view measures nothing: its statements are planned.
            if number:
                refreshes[table].append(report.stages["views"])
                whole[table].append(report.seconds)
    pairs = {
        name: Paired(tuple(taken[stored]), tuple(taken[stream]))
        for name, taken in (("views", refreshes), ("whole batch", whole))
    }
    say("computing the views over the stream anew")
    wrong = _differences(orchestrator, stream)
    growth = 100 * grown / row[0]
    measured: list[dict[str, Any]] = [
        {
            "part": name,
            "stored, s": pair.medians[0],
            "stream, s": pair.medians[1],
            "times": pair.ratio,
        }
        for name, pair in pairs.items()
    ]
    measured.append(
        {"part": "bytes", "stored": row[0], "stream and views": grown, "percent": growth}
    )
    bars = (
        Bar("growth of the database, % of the stored rows", growth, "<=", GROWTH_AT_MOST),
        Bar("refresh after a batch, times of stored", pairs["views"].ratio, "<=", REFRESH_AT_MOST),
        Bar("views that differ when computed anew", wrong, "<=", 0),
    )
    return Report("lake", described, tuple(measured), bars)


class _Files:
    """The Parquet files of the stream, with made-up sales."""

    def __init__(self, folder: Path) -> None:
        import numpy as np

        self.folder, self.number = folder, 0
        self.random = np.random.default_rng(1)

    def write(self, rows: int) -> Path:
        """Write a file of so many rows, and return it."""
        import pyarrow as pa  # type: ignore[import-not-found,import-untyped,unused-ignore]
        import pyarrow.parquet as pq  # type: ignore[import-not-found,import-untyped,unused-ignore]

        limits = {"day": _DAYS, "shop": _SHOPS, "item": _ITEMS, "units": 20, "cents": 10_000}
        columns = {
            name: self.random.integers(1, limit, rows, dtype="int32", endpoint=True)
            for name, limit in limits.items()
        }
        self.number += 1
        path = self.folder / f"{self.number:04}.parquet"
        pq.write_table(pa.table(columns), path)
        return path


def _create(orchestrator: Orchestrator, table: str) -> None:
    for view in VIEWS:
        query = WORKLOAD.text(view).replace("sales", table)
        # The states of views over several dimensions hold few rows only if the dimensions do not change.
        options = {"updatable": table} if view in _OVER_SEVERAL else {}
        orchestrator.create_view(f"{SCHEMA}.{view}_of_{table}", query, **options)  # type: ignore[arg-type]


def _load(orchestrator: Orchestrator, table: str, file: Path) -> Any:
    reports: list[Any] = []
    if table.endswith("sales"):
        orchestrator.run_stream(table, once=True, on_batch=lambda done: reports.append(done.report))
    else:
        reports.append(orchestrator.load(file, table, views="refresh"))
    return reports[-1]


def _size(orchestrator: Orchestrator) -> int:
    row = orchestrator.connection.execute(
        "SELECT pg_database_size(current_database())::bigint"
    ).fetchone()
    assert row is not None
    return int(row[0])


def _differences(orchestrator: Orchestrator, stream: str) -> int:
    """Recompute the views over the stream, and return how many differ from what they held before."""
    connection = orchestrator.connection
    wrong = 0
    with orchestrator.read_streams(stream):
        for view in VIEWS:
            name, copy = Identifier(SCHEMA, f"{view}_of_sales"), Identifier(SCHEMA, f"{view}_kept")
            connection.execute(SQL("CREATE TABLE {} AS SELECT * FROM {}").format(copy, name))
            connection.execute(
                SQL(
                    "UPDATE idivm.views SET status = 'invalid' WHERE relation = {}::regclass"
                ).format(Literal(name.as_string(connection)))
            )
        orchestrator.refresh()
        for view in VIEWS:
            name, copy = Identifier(SCHEMA, f"{view}_of_sales"), Identifier(SCHEMA, f"{view}_kept")
            query = SQL(
                "SELECT EXISTS (SELECT r::text FROM {0} AS r EXCEPT ALL SELECT r::text FROM {1} AS r)"
                " OR EXISTS (SELECT r::text FROM {1} AS r EXCEPT ALL SELECT r::text FROM {0} AS r)"
            ).format(name, copy)
            wrong += connection.execute(query).fetchone() == (True,)
    return wrong
