"""Compare refreshes of the running example's views with SQL by hand and REFRESH MATERIALIZED VIEW."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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
    require_strategy,
    statement,
    view_name,
)
from orchestrator.bench.measure import Execution
from orchestrator.bench.parts.data import FILES, WORKLOAD, Prices, query
from orchestrator.bench.workload import vacuum
from orchestrator.errors import DatabaseError

BY_HAND = "by hand"
MATERIALIZED = "REFRESH MATERIALIZED VIEW"

PAIR = "V and V'"
CASES = {"V": ("V",), "V'": ("V'",), PAIR: ("V", "V'")}
_MAINTAIN = {"V": "maintain_v", "V'": "maintain_v_prime", PAIR: "maintain_both"}
_BY_HAND = {"V": "by_hand_v", "V'": "by_hand_v_prime"}
_MATERIALIZED = {"V": "materialized_v", "V'": "materialized_v_prime"}


@dataclass(frozen=True)
class Against:
    """The measurements of one case: a refresh and its alternatives."""

    case: str
    refresh: Series
    by_hand: Series
    materialized: Series

    @property
    def times_by_hand(self) -> float:
        """The ratio of a refresh's time to that of SQL by hand."""
        return self.refresh.times_slower_than(self.by_hand)

    @property
    def times_faster(self) -> float:
        """The ratio of the time to recompute the views to that of a refresh."""
        return self.materialized.times_slower_than(self.refresh)


def measure(
    orchestrator: Orchestrator, case: str, contender: Contender, d: int, repeat: int
) -> Against | None:
    """Measure one case on the loaded tables; return None if the strategy refuses a view."""
    views = [view_name(FILES[view], contender) for view in CASES[case]]
    connection = orchestrator.connection
    prices = Prices(orchestrator, d)
    with _rivals(orchestrator, case):
        try:
            for view in CASES[case]:
                if create(orchestrator, FILES[view], query(view), contender) is not None:
                    return None
            vacuum(orchestrator)
            by_hand = sql.SQL("SELECT {}()").format(sql.Identifier(_MAINTAIN[case]))
            sides = {
                contender.label: refreshing(connection, views),
                BY_HAND: statement(connection, by_hand),
                MATERIALIZED: _materializing(orchestrator, case),
            }

            def next_round() -> None:
                orchestrator.refresh(*views)
                prices.change()

            series = in_turn(sides, next_round, repeat, SETTLE)
            for name, view in zip(views, CASES[case], strict=True):
                require_strategy(orchestrator, name, contender)
                _require_the_same(orchestrator, view)
            require_equal(orchestrator, views)
            return Against(case, series[contender.label], series[BY_HAND], series[MATERIALIZED])
        finally:
            for view in views:
                orchestrator.drop_view(view, if_exists=True)


@contextmanager
def _rivals(orchestrator: Orchestrator, case: str) -> Iterator[None]:
    """Create tables maintained by hand and materialized views; drop them afterwards."""
    execute = orchestrator.connection.execute
    execute(WORKLOAD.text("by_hand").encode())
    try:
        for view in CASES[case]:
            name = sql.Identifier(_MATERIALIZED[view])
            # The query comes from a file of the workload.
            content = sql.SQL(query(view))
            execute(sql.SQL("CREATE MATERIALIZED VIEW {} AS {}").format(name, content))
        yield
    finally:
        if not orchestrator.connection.closed:
            for view in CASES[case]:
                name = sql.Identifier(_MATERIALIZED[view])
                execute(sql.SQL("DROP MATERIALIZED VIEW IF EXISTS {}").format(name))
            for table in _BY_HAND.values():
                execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(table)))
            for function in _MAINTAIN.values():
                execute(sql.SQL("DROP FUNCTION {}").format(sql.Identifier(function)))


def _materializing(orchestrator: Orchestrator, case: str) -> Callable[[], Execution]:
    statements = [
        sql.SQL("REFRESH MATERIALIZED VIEW {}").format(sql.Identifier(_MATERIALIZED[view]))
        for view in CASES[case]
    ]
    return statement(orchestrator.connection, sql.SQL("; ").join(statements))


def _require_the_same(orchestrator: Orchestrator, view: str) -> None:
    """Raise an error if the two alternatives have different results."""
    row = orchestrator.connection.execute(
        sql.SQL(
            "SELECT EXISTS ((TABLE {hand} EXCEPT TABLE {view}) UNION ALL"
            " (TABLE {view} EXCEPT TABLE {hand}))"
        ).format(hand=sql.Identifier(_BY_HAND[view]), view=sql.Identifier(_MATERIALIZED[view]))
    ).fetchone()
    if row != (False,):
        raise DatabaseError(f"What was maintained by hand is not {view}: its times say nothing.")
