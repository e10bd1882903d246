"""Measure the cost that the running example's eager views V and V' add to updates of their tables.

The benchmark updates prices in `parts` and in a copy that no view reads.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from psycopg import Connection
from psycopg.sql import SQL, Identifier

from orchestrator import catalog
from orchestrator.api import Orchestrator, connect
from orchestrator.bench.contenders import SETTLE
from orchestrator.bench.measure import Paired, alternate, in_c_or_say, machine, own_server, timed
from orchestrator.bench.parts.data import FILES, WORKLOAD, Dataset, query
from orchestrator.bench.report import Bar, Report, progress
from orchestrator.bench.workload import SCHEMA, vacuum
from orchestrator.errors import DatabaseError, UsageError

VIEWS = ("V", "V'")
READ, BARE = "parts", "parts_bare"

FEW, MANY = 1, 200
"""Rows in an update."""

ADDED_AT_MOST = 0.6
"""Milliseconds for an update of one row."""

MANY_AT_MOST = 12.0
"""Milliseconds for an update of many rows; the same update without views takes about 1.7."""


def run(
    *,
    dsn: str | None = None,
    parts: int = 100_000,
    repeat: int = 50,
    pg: int | None = None,
    say: Callable[[str], None] = progress,
) -> Report:
    """Run the benchmark on its own server, or in schema idivm_bench of the database at `dsn`."""
    if parts < MANY or repeat < 1:
        raise UsageError(f"It needs --parts of {MANY} or more, and --repeat of 1 or more.")
    if dsn is None:
        with own_server(pg) as server:
            in_c_or_say(server, "So capture is measured in plpgsql.", say)
            return run(dsn=server.up().dsn, parts=parts, repeat=repeat, say=say)
    with connect(dsn) as orchestrator:
        in_c = catalog.captures_in_c(orchestrator.connection)
        described = {**machine(orchestrator.connection), "capture in": "C" if in_c else "plpgsql"}
        say("loading")
        with (
            WORKLOAD.tables(
                orchestrator, Dataset(parts, fanout=10, selectivity=20, joins=2).settings()
            ),
            _views(orchestrator),
        ):
            taken = {}
            for rows in (FEW, MANY):
                say(f"updating {rows} of {parts:,} prices at a time")
                taken[rows] = _taken(orchestrator.connection, parts, rows, repeat)
            if not all(report.equal for report in orchestrator.check()):
                raise DatabaseError("A view differs from its query: what was measured is wrong.")
    bare, eager = taken[FEW].medians
    bars = (
        Bar("1 row, added by the views, ms", eager - bare, "<=", ADDED_AT_MOST),
        Bar(f"{MANY} rows, with the views, ms", taken[MANY].medians[1], "<=", MANY_AT_MOST),
    )
    return Report("eager", described, tuple(_row(rows, taken[rows]) for rows in taken), bars)


def _row(rows: int, paired: Paired) -> dict[str, Any]:
    bare, eager = paired.medians
    return {
        "rows updated": rows,
        "without views, ms": bare,
        "V and V' eager, ms": eager,
        "added, ms": eager - bare,
    }


@contextmanager
def _views(orchestrator: Orchestrator) -> Iterator[None]:
    """Create the views, and a copy of the table that they do not read; both go with the schema."""
    orchestrator.connection.execute(
        SQL("CREATE TABLE {copy} (LIKE {read} INCLUDING ALL)").format(
            copy=Identifier(SCHEMA, BARE), read=Identifier(SCHEMA, READ)
        )
    )
    orchestrator.connection.execute(
        SQL("INSERT INTO {copy} TABLE {read}").format(
            copy=Identifier(SCHEMA, BARE), read=Identifier(SCHEMA, READ)
        )
    )
    for view in VIEWS:
        orchestrator.create_view(f"{SCHEMA}.eager_{FILES[view]}", query(view), maintain="eager")
    vacuum(orchestrator)
    yield


def _taken(connection: Connection[Any], parts: int, rows: int, repeat: int) -> Paired:
    """Measure updates without and with the views, in milliseconds."""
    chance = random.Random(rows)

    def updating(table: str) -> Callable[[], float]:
        statement = SQL("UPDATE {} SET price = price + 1 WHERE pid = ANY (%s)").format(
            Identifier(SCHEMA, table)
        )

        def update() -> float:
            chosen = chance.sample(range(1, parts + 1), rows)
            # The time excludes the commit, which waits for the disk.
            with connection.transaction():
                return 1000 * timed(lambda: connection.execute(statement, [chosen], prepare=True))

        return update

    return alternate(updating(BARE), updating(READ), repeat, warm_up=2 * SETTLE)
