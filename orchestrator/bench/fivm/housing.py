"""Compare a factorized join with the same join row by row (papers/fivm.txt, sections 9.4 and 9.8).

Each postcode has a star of houses, shops and restaurants. The rows of the join grow with the cube
of the scale, and the factorized result grows like the tables. Section 9.4 has four variants: the
result is maintained after each batch (eager) or made when it is read (lazy), as rows or factorized.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from psycopg import sql

from orchestrator.api import Orchestrator
from orchestrator.bench.contenders import (
    SETTLE,
    Contender,
    Series,
    create,
    in_turn,
    refreshing,
    require_equal,
    row,
    statement,
    view_name,
)
from orchestrator.bench.measure import Execution
from orchestrator.bench.report import Bar
from orchestrator.bench.workload import Workload, vacuum
from orchestrator.errors import DatabaseError

HOUSING = Workload("housing")
LIST = Contender("list", "viewtree")
FACT = Contender("fact", "viewtree", (("representation", "factorized"),))

SCALES = (1, 5, 10, 20)
POSTCODES = 25
BATCHES = 10
"""Batches of changes; the join is read after some of them."""
INTERVALS = (1, 10)
"""The numbers of batches between two reads."""

BARS_FROM = 20
"""The smallest scale to which the bars apply."""
LESS_SPACE_AT_LEAST = 50
FASTER_AT_LEAST = 20


def measure(
    orchestrator: Orchestrator,
    scales: Sequence[int],
    postcodes: int,
    repeat: int,
    seed: int,
    say: Callable[[str], None],
) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Measure maintenance, space and reading at each scale, and four variants at the largest."""
    found: list[dict[str, Any]] = []
    bars: list[Bar] = []
    for scale in scales:
        say(f"the join of houses at scale {scale}")
        settings = {"scale": scale, "postcodes": postcodes, "seed": seed}
        with HOUSING.tables(orchestrator, settings):
            more, further = _at(orchestrator, scale, postcodes, repeat)
            found += more
            bars += further
            if scale == max(scales):
                say("keeping it up beside making it when it is read")
                found += _variants(orchestrator, scale, postcodes)
    return found, bars


def _at(
    orchestrator: Orchestrator, scale: int, postcodes: int, repeat: int
) -> tuple[list[dict[str, Any]], list[Bar]]:
    connection, size = orchestrator.connection, postcodes * scale**3
    views = {item.label: _created(orchestrator, item) for item in (LIST, FACT)}
    vacuum(orchestrator)
    rounds = count(1)

    def change() -> None:
        orchestrator.refresh(*views.values())
        _change(orchestrator, next(rounds), scale, postcodes)

    sides = {label: refreshing(connection, [view]) for label, view in views.items()}
    kept = in_turn(sides, change, repeat, SETTLE)
    require_equal(orchestrator, list(views.values()))
    read = in_turn(
        {label: _reading(orchestrator, view) for label, view in views.items()},
        lambda: None,
        repeat,
        1,
    )
    stored = {label: _stored(orchestrator, view) for label, view in views.items()}
    found = []
    for label in views:
        found.append(row("housing, a batch", size, label, kept[label], stored=stored[label]))
        found.append(row("housing, reading all", size, label, read[label], stored=stored[label]))
    if scale < BARS_FROM:
        return found, []
    space = round(stored[LIST.label] / stored[FACT.label], 1)
    times = round(kept[LIST.label].times_slower_than(kept[FACT.label]), 1)
    return found, [
        Bar(f"housing at scale {scale}, times less space", space, ">=", LESS_SPACE_AT_LEAST),
        Bar(f"housing at scale {scale}, times faster to maintain", times, ">=", FASTER_AT_LEAST),
    ]


def _variants(orchestrator: Orchestrator, scale: int, postcodes: int) -> list[dict[str, Any]]:
    """Measure the total time of some batches and of the reads between them, in each variant."""
    connection, size = orchestrator.connection, postcodes * scale**3
    answer = statement(connection, sql.SQL(HOUSING.text("query")))
    views = {item.label: view_name("housing", item) for item in (LIST, FACT)}
    rounds = count(1_000)
    result = []
    for interval in INTERVALS:
        for eager in (True, False):
            for label, view in views.items():
                # The lazy list is the result of the query itself.
                kept = eager or label == FACT.label
                refresh = refreshing(connection, [view])
                read = _reading(orchestrator, view) if kept else answer
                orchestrator.refresh(*views.values())
                runs: list[Execution] = []
                for number in range(1, BATCHES + 1):
                    _change(orchestrator, next(rounds), scale, postcodes)
                    asked = number % interval == 0
                    if kept and (eager or asked):
                        runs.append(refresh())
                    if asked:
                        runs.append(read())
                side = f"{'eager' if eager else 'lazy'}-{label}"
                name = f"housing, {BATCHES} batches, read after each {interval}"
                result.append(row(name, size, side, Series((_sum(runs),))))
    return result


def _sum(runs: Sequence[Execution]) -> Execution:
    return Execution(
        sum(run.milliseconds for run in runs),
        sum(run.buffers for run in runs),
        sum(run.dirtied for run in runs),
        sum(run.wal_records for run in runs),
        sum(run.wal_bytes for run in runs),
        sum(run.read for run in runs),
    )


def _created(orchestrator: Orchestrator, contender: Contender) -> str:
    refused = create(orchestrator, "housing", HOUSING.text("query"), contender)
    if refused is not None:
        raise DatabaseError(f"{contender.label} cannot be measured: {refused}")
    return view_name("housing", contender)


def _change(orchestrator: Orchestrator, number: int, scale: int, postcodes: int) -> None:
    text = sql.SQL(HOUSING.text("change")).format(
        round=sql.Literal(number),
        postcode=sql.Literal(1 + number % postcodes),
        id=sql.Literal(1 + number % scale),
    )
    orchestrator.connection.execute(text)


def _reading(orchestrator: Orchestrator, view: str) -> Callable[[], Execution]:
    text = sql.SQL("SELECT * FROM {}").format(sql.Identifier(*view.split(".")))
    return statement(orchestrator.connection, text)


def _stored(orchestrator: Orchestrator, view: str) -> int:
    """Return the bytes of a view's tables, including indexes."""
    asked = orchestrator.connection.execute(
        "SELECT idivm.state_bytes(%s)", [orchestrator.view(view).id]
    ).fetchone()
    assert asked is not None
    return int(asked[0])
