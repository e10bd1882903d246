"""Compare a factorized join with the same join row by row (papers/fivm.txt, section 9.8).

Each postcode has a star of houses, shops and restaurants. The rows of the join grow with the cube
of the scale, and the factorized result grows like the tables (figure 30, right).
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
    create,
    in_turn,
    refreshing,
    require_equal,
    row,
    statement,
    view_name,
)
from orchestrator.bench.fivm.stream import STORED, stored
from orchestrator.bench.measure import Execution
from orchestrator.bench.report import Bar
from orchestrator.bench.workload import Workload, vacuum
from orchestrator.errors import DatabaseError

HOUSING = Workload("housing")
LIST = Contender("list", "viewtree")
FACT = Contender("fact", "viewtree", (("representation", "factorized"),))

SCALES = (1, 5, 10, 20)
POSTCODES = 25
BARS_FROM = 20
"""The smallest scale to which the bars and the paper's figures apply."""
PAPER_TIME, PAPER_SPACE = 481, 548
"""The paper's ratios of listed to factorized payloads at this scale."""
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
    """Measure maintenance, space and reading at each scale."""
    result: list[dict[str, Any]] = []
    bars: list[Bar] = []
    for scale in scales:
        say(f"the join of houses at scale {scale}")
        settings = {"scale": scale, "postcodes": postcodes, "seed": seed, "skew": 0}
        with HOUSING.tables(orchestrator, settings):
            more, further = _at(orchestrator, scale, postcodes, repeat)
            result += more
            bars += further
    return result, bars


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
    taken = {label: stored(orchestrator, [view]) for label, view in views.items()}
    space = round(taken[LIST.label] / taken[FACT.label], 1)
    times = round(kept[LIST.label].times_slower_than(kept[FACT.label]), 1)
    beside = {
        "housing, a batch": (kept, times, PAPER_TIME),
        "housing, reading all": (read, None, None),
    }
    result = [
        row(name, size, label, series[label], stored=taken[label])
        | (
            {"ratio": ratio, "paper": paper if scale == BARS_FROM else None}
            if label == LIST.label
            else {}
        )
        for name, (series, ratio, paper) in beside.items()
        for label in views
    ]
    for label in views:
        item = row(f"housing, {STORED}", size, label, None, stored=taken[label])
        listed = label == LIST.label
        paper = PAPER_SPACE if listed and scale == BARS_FROM else None
        result.append(item | {"ratio": space if listed else None, "paper": paper})
    if scale < BARS_FROM:
        return result, []
    return result, [
        Bar(f"housing at scale {scale}, times less space", space, ">=", LESS_SPACE_AT_LEAST),
        Bar(f"housing at scale {scale}, times faster to maintain", times, ">=", FASTER_AT_LEAST),
    ]


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
