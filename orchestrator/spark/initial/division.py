"""Which states of a plan Spark computes, and when PostgreSQL computes the others.

PostgreSQL computes a state either from tables, in the transaction whose snapshot Spark reads too, or
from other states alone, once what Spark has made is there. A state that is made of both is the
former, together with all that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from orchestrator.deltascript.leaves import STATE
from orchestrator.deltascript.plan import Initialised, MaintenancePlan, Shape, StateTable, StateView
from orchestrator.spark.initial.kinds import InexactError
from orchestrator.spark.initial.queries import Emitted, Sources, emit
from orchestrator.spark.initial.scalars import Fold


@dataclass(frozen=True)
class Division:
    """Who computes which states, each after those that it reads."""

    by_spark: tuple[tuple[StateTable, Emitted], ...]
    before: tuple[StateTable, ...]
    """In PostgreSQL, from tables."""
    after: tuple[StateTable, ...]
    """In PostgreSQL, from states."""
    reasons: Mapping[str, str]
    """Why a state is computed in PostgreSQL, by its role."""

    @property
    def initialised(self) -> tuple[Initialised, ...]:
        """The same to be remembered."""
        spark = tuple(Initialised(state.role, "Spark") for state, _ in self.by_spark)
        rest = tuple(
            Initialised(state.role, "PostgreSQL", self.reasons[state.role])
            for state in (*self.before, *self.after)
        )
        return spark + rest


def tables_of(plan: MaintenancePlan) -> tuple[StateTable, ...] | None:
    """The states of a plan, if all are given by queries that are trees."""
    states = [state for state in plan.program.states if not isinstance(state, Shape | StateView)]
    if not all(isinstance(state, StateTable) for state in states):
        return None
    return tuple(state for state in states if isinstance(state, StateTable))


def divide(states: tuple[StateTable, ...], sources: Sources, fold: Fold) -> Division:
    """Divides states; `sources` says what the columns of tables are read as."""
    reads = {state.role: state.query.states for state in states}
    of_tables = {state.role for state in states if _reads_tables(state)}
    reasons: dict[str, str] = {}
    while True:
        emitted = _emitted(states, sources, fold, reasons)
        early = of_tables - set(emitted)
        while more := {role for item in early for role in reads[item]} - early:
            early |= more
        wanted = early & set(emitted)
        if not wanted:
            break
        for role in wanted:
            by = next(item for item in sorted(early) if role in reads[item])
            reasons[role] = f"{by} is made of it and of tables as they are at one time"
    return Division(
        by_spark=tuple((s, emitted[s.role]) for s in states if s.role in emitted),
        before=tuple(s for s in states if s.role in early),
        after=tuple(s for s in states if s.role not in emitted and s.role not in early),
        reasons=reasons,
    )


def _emitted(
    states: tuple[StateTable, ...],
    sources: Sources,
    fold: Fold,
    reasons: dict[str, str],
) -> dict[str, Emitted]:
    """What Spark can make of the states; the reasons for the others are added to."""
    emitted: dict[str, Emitted] = {}

    def known(role: str) -> Emitted:
        if role not in emitted:
            raise InexactError(f"{role}, which PostgreSQL computes")
        return emitted[role]

    for state in states:
        if state.role in reasons:
            continue
        try:
            emitted[state.role] = emit(state, sources, known, fold)
        except InexactError as reason:
            reasons[state.role] = str(reason)
    return emitted


def _reads_tables(state: StateTable) -> bool:
    tree = state.query.tree
    shared = {cte.alias for cte in tree.find_all(exp.CTE)}
    return any(
        table.db != STATE and (table.db or table.name not in shared)
        for table in tree.find_all(exp.Table)
    )
