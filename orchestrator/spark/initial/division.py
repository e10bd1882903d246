"""Decide which states of a plan Spark computes, and when PostgreSQL computes the others.

PostgreSQL computes a state either from tables, in the transaction whose snapshot Spark also reads, or from
other states alone, after Spark has computed its states. A state that reads tables and other states is
computed with the tables, together with all states that it reads.
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
    """The division of states between Spark and PostgreSQL; each state comes after the states that it reads."""

    by_spark: tuple[tuple[StateTable, Emitted], ...]
    before: tuple[StateTable, ...]
    """States that PostgreSQL computes from tables."""
    after: tuple[StateTable, ...]
    """States that PostgreSQL computes from other states."""
    reasons: Mapping[str, str]
    """Why a state is computed in PostgreSQL, by its role."""

    @property
    def initialised(self) -> tuple[Initialised, ...]:
        """The division in the form that is stored with the view."""
        spark = tuple(Initialised(state.role, "Spark") for state, _ in self.by_spark)
        rest = tuple(
            Initialised(state.role, "PostgreSQL", self.reasons[state.role])
            for state in (*self.before, *self.after)
        )
        return spark + rest


def tables_of(plan: MaintenancePlan) -> tuple[StateTable, ...] | None:
    """Return the states of a plan; None if a state has no query as a tree."""
    states = [state for state in plan.program.states if not isinstance(state, Shape | StateView)]
    if not all(isinstance(state, StateTable) for state in states):
        return None
    return tuple(state for state in states if isinstance(state, StateTable))


def divide(states: tuple[StateTable, ...], sources: Sources, fold: Fold) -> Division:
    """Divide states; `sources` says how the columns of tables are read."""
    reads = {state.role: state.query.states for state in states}
    of_tables = {state.role for state in states if _reads_tables(state)}
    reasons: dict[str, str] = {}
    while True:
        emitted = _emit_states(states, sources, fold, reasons)
        early = of_tables - set(emitted)
        while more := {role for reader in early for role in reads[reader]} - early:
            early |= more
        wanted = early & set(emitted)
        if not wanted:
            break
        for role in wanted:
            by = next(reader for reader in sorted(early) if role in reads[reader])
            reasons[role] = f"{by} is made of it and of tables as they are at one time"
    return Division(
        by_spark=tuple((s, emitted[s.role]) for s in states if s.role in emitted),
        before=tuple(s for s in states if s.role in early),
        after=tuple(s for s in states if s.role not in emitted and s.role not in early),
        reasons=reasons,
    )


def _emit_states(
    states: tuple[StateTable, ...],
    sources: Sources,
    fold: Fold,
    reasons: dict[str, str],
) -> dict[str, Emitted]:
    """Return the queries of the states that Spark can compute; add reasons for the others."""
    emitted: dict[str, Emitted] = {}

    def emitted_state(role: str) -> Emitted:
        if role not in emitted:
            raise InexactError(f"{role}, which PostgreSQL computes")
        return emitted[role]

    for state in states:
        if state.role in reasons:
            continue
        try:
            emitted[state.role] = emit(state, sources, emitted_state, fold)
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
