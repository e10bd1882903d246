"""The maintenance plan: the value that every strategy produces and everything else consumes.

A plan names no object of the database. It speaks of sources by the relation they capture, and of
state tables by their role; `runtime` gives both their names when it installs the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from orchestrator.deltascript.plan.costs import (
    Cost,
    Estimate,
    MissingIndex,
    Price,
    Probe,
    Statistics,
)
from orchestrator.deltascript.plan.enumeration import Enumeration, Partitioning
from orchestrator.deltascript.plan.steps import Step
from orchestrator.deltascript.plan.stored import decoded, encoded
from orchestrator.deltascript.plan.strategy import Strategy
from orchestrator.deltascript.plan.tables import (
    CACHE,
    BagTable,
    Shape,
    Source,
    State,
    StateTable,
    StateView,
)

VERSION = 1
"""Of the form that the catalog stores. A view with another version is planned again."""


@dataclass(frozen=True)
class Reason:
    """Why a strategy was taken or not."""

    strategy: str
    taken: bool
    because: str
    estimate: Estimate | None = None
    """Of a plan that was compared with others."""


@dataclass(frozen=True)
class Initialised:
    """Where the first content of a state was computed, if not all of it in PostgreSQL."""

    state: str
    by: Literal["Spark", "PostgreSQL"]
    because: str = ""

    def __str__(self) -> str:
        """For people."""
        return f"{self.state} by {self.by}" + (f" ({self.because})" if self.because else "")


@dataclass(frozen=True)
class Definition:
    """What a plan was made from."""

    algebra: str
    """The algebra plan in print, or what it does not model."""
    algebra_tree: dict[str, Any]
    """The same for programs."""
    inlined: tuple[int, ...]
    """The relations, by oid, whose definitions the plan has in it."""
    reads: tuple[tuple[int, int, tuple[int, ...]], ...] = ()
    """What the definition and each plain view below it read: view, relation, columns, by number."""
    types: tuple[int, ...] = ()
    """The types, by oid, of the columns that are read."""


@dataclass(frozen=True)
class Program:
    """What is captured, what is stored, and what a refresh does."""

    strategy: Strategy
    sources: tuple[Source, ...]
    states: tuple[State, ...]
    script: tuple[Step, ...]
    content: str
    """The role of the state that the view reads."""
    settings: tuple[tuple[str, str], ...]
    """Session settings that the content may depend on, as they were when the view was made."""
    time_dependent: tuple[str, ...]
    """Functions whose results change by themselves; with any, every refresh runs the script."""
    variables: tuple[tuple[str, str], ...] = ()
    """The variables that hold diffs, and the roles of their row types."""
    probes: tuple[Probe, ...] = ()
    """How the script looks for rows of tables."""
    costs: tuple[Cost, ...] = ()
    """By the statistics of the time of planning."""
    by_lookups: bool = False
    """Whether small diffs go through indexes, in the order in which joins are written, whatever the
    statistics say: where a bound on the cost is promised, no guess of the planner may break it."""
    applied: tuple[int, ...] = ()
    """The sources, by oid, whose changes are applied however many they are."""

    @property
    def variant(self) -> str:
        """The strategy, and whether the inputs of aggregations are stored for it."""
        cached = any(state.role == CACHE for state in self.states)
        return f"{self.strategy} with a cache" if cached else str(self.strategy)

    def accesses(self, variable: str) -> float:
        """What a row of a variable that holds changes costs."""
        return next((cost.accesses for cost in self.costs if cost.variable == variable), 1.0)

    def state(self, role: str) -> State:
        """The state of a role."""
        return next(state for state in self.states if state.role == role)

    @property
    def layout(self) -> tuple[object, ...]:
        """The layout of the table that holds the content, or of the view in its place."""
        state = self.state(self.content)
        assert not isinstance(state, Shape)
        return state.layout

    @property
    def shown(self) -> tuple[str, ...]:
        """The names of the view's columns."""
        state = self.state(self.content)
        if isinstance(state, StateTable):
            return tuple(column.name for column in state.columns if not column.hidden)
        assert isinstance(state, BagTable | StateView)
        return tuple(column.name for column in state.columns)

    @property
    def shown_states(self) -> frozenset[str]:
        """The roles of the tables whose rows the view shows or is computed from."""
        state = self.state(self.content)
        return state.query.states if isinstance(state, StateView) else frozenset({state.role})


@dataclass(frozen=True)
class Evidence:
    """Why a plan was taken, and what was known then."""

    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()
    """What costs more than the change does, and why."""
    statistics: tuple[Statistics | None, ...] = ()
    """What was known of each source when this was planned; by it the same plan is found again."""
    prices: tuple[Price, ...] = ()
    """What was known of accesses then."""
    missing: tuple[MissingIndex, ...] = ()
    """The indexes without which a change costs many times as much, here or in a better plan."""
    initialised: tuple[Initialised, ...] = ()
    """Where the first content was computed; empty if all of it by the refresh function."""


@dataclass(frozen=True)
class MaintenancePlan:
    """How a view is maintained, and why."""

    maintain: str
    definition: Definition
    program: Program
    evidence: Evidence
    partitioning: Partitioning | None = None
    """Of a plan over heavy and light parts of relations."""
    enumeration: Enumeration | None = None
    """Of a content that no table holds."""

    @property
    def strategy(self) -> str:
        """The strategy that made it."""
        return self.program.strategy.value

    def because(
        self,
        *reasons: Reason,
        prices: tuple[Price, ...] = (),
        missing: tuple[MissingIndex, ...] = (),
    ) -> MaintenancePlan:
        """Return the plan with the reasons for it, and what was known of costs."""
        evidence = replace(self.evidence, reasons=reasons, prices=prices, missing=missing)
        return replace(self, evidence=evidence)

    def drawn(self, picture: str) -> MaintenancePlan:
        """Return the plan with a drawing of its tree below the algebra."""
        algebra = f"{self.definition.algebra}\n\n{picture}"
        return replace(self, definition=replace(self.definition, algebra=algebra))

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values, for people: queries have the names of tables."""
        return {"variant": self.program.variant, **encoded(self, str)}

    def stored(self) -> dict[str, Any]:
        """The plan as plain values, for the catalog."""
        form = encoded(self, lambda query: query.stored)
        return {"version": VERSION, "variant": self.program.variant, **form}

    @staticmethod
    def of_stored(value: dict[str, Any]) -> MaintenancePlan | None:
        """Return the plan that has this form in the catalog, or None if the form is of another version."""
        return decoded(MaintenancePlan, value) if value.get("version") == VERSION else None
