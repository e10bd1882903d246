"""The initial states of the eight BSMA views, by Spark and by PostgreSQL."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, Final

from psycopg import sql

from orchestrator.api import Orchestrator, connect
from orchestrator.bench.bsma import QUERIES, WORKLOAD
from orchestrator.bench.measure import alternate, timed
from orchestrator.bench.report import Bar
from orchestrator.bench.workload import SCHEMA
from orchestrator.runtime.diagnosis import check

STRATEGY: Final = "id"
"""The strategy of all views, so that both sides create the same tables."""


def measure(
    dsn: str, spark: Any, *, users: int, repeat: int, say: Callable[[str], None]
) -> tuple[tuple[dict[str, Any], ...], Bar]:
    """Create each view by both sides in turn, and compare the contents once."""
    texts: list[dict[str, Any]] = []
    differing = 0
    with connect(dsn) as orchestrator, WORKLOAD.tables(orchestrator, {"users": users, "seed": 1}):
        for query in QUERIES:
            say(f"initial states of {query.name}, {users:,} users")

            def created(side: Any, text: str = query.text) -> None:
                orchestrator.create_view(
                    _name(side),
                    text,
                    strategy=STRATEGY,
                    initialise=side,
                    spark=spark if side == "spark" else None,
                )

            def side(name: str) -> Callable[[], float]:
                def once() -> float:
                    orchestrator.drop_view(_name(name), if_exists=True)
                    return timed(lambda: created(name))

                return once

            pair = alternate(side("spark"), side("postgresql"), repeat)
            differing += not _equal(orchestrator)
            rows = orchestrator.view(_name("spark")).rows
            for name, seconds in (("Spark", pair.a), ("PostgreSQL", pair.b)):
                middle = statistics.median(seconds)
                texts.append(
                    {
                        "measured": f"initial states of {query.name}, {name}",
                        "rows": rows,
                        "seconds": middle,
                        "rows/s": rows / middle,
                        "driver MiB": None,
                    }
                )
            for name in ("spark", "postgresql"):
                orchestrator.drop_view(_name(name))
    return tuple(texts), Bar(
        "views of BSMA whose contents by Spark and by PostgreSQL differ", differing, "<=", 0
    )


def _name(side: str) -> str:
    return f"{SCHEMA}.by_{side}"


def _equal(orchestrator: Orchestrator) -> bool:
    return check.compare(
        orchestrator.connection,
        view=sql.SQL(_name("spark")),
        definition=sql.Identifier(SCHEMA, "by_postgresql"),
    ).equal
