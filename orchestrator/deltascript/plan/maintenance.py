"""The maintenance plan: the value that every strategy produces and all other parts use.

A plan names no object of the database. It refers to sources by the relations that they capture, and
to state tables by their roles. `runtime` gives them names when it installs the plan.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlglot import exp

from orchestrator.deltascript.plan.costs import (
    Cost,
    Estimate,
    MissingIndex,
    Price,
    Probe,
    Statistics,
)
from orchestrator.deltascript.plan.enumeration import Enumeration, Partitioning
from orchestrator.deltascript.plan.merged import Merged
from orchestrator.deltascript.plan.ranking import Ranking
from orchestrator.deltascript.plan.steps import Apply, Assign, ReplaceContent, Step
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

EAGER, ON_READ = "eager", "on_read"
"""The modes in which writers update the view with their statements, and in which reads merge pending changes."""

VERSION = 7
"""The version of the stored form of plans. A view with another version is planned again."""


@dataclass(frozen=True)
class Reason:
    """Why a strategy was chosen or rejected."""

    strategy: str
    taken: bool
    because: str
    estimate: Estimate | None = None
    """The estimate of a plan that was compared with others."""


@dataclass(frozen=True)
class Initialised:
    """Where the first content of a state was computed, if PostgreSQL did not compute all of it."""

    state: str
    by: Literal["Spark", "PostgreSQL"]
    because: str = ""

    def __str__(self) -> str:
        """Return the text for users."""
        return f"{self.state} by {self.by}" + (f" ({self.because})" if self.because else "")


@dataclass(frozen=True)
class Definition:
    """The query that a plan was made from."""

    algebra: str
    """The printed algebra plan, or the part of the query that the algebra does not model."""
    algebra_tree: dict[str, Any]
    """The algebra plan as JSON."""
    inlined: tuple[int, ...]
    """The relations, by oid, whose definitions are part of the plan."""
    reads: tuple[tuple[int, int, tuple[int, ...]], ...] = ()
    """The columns that the definition and each plain view below it read: view, relation, column
    numbers."""
    types: tuple[int, ...] = ()
    """The types, by oid, of the columns that are read."""


@dataclass(frozen=True)
class Program:
    """The captured sources, the states, and the script of a refresh."""

    strategy: Strategy
    sources: tuple[Source, ...]
    states: tuple[State, ...]
    script: tuple[Step, ...]
    content: str
    """The role of the state that the view reads."""
    settings: tuple[tuple[str, str], ...]
    """Session settings that the content may depend on, with their values when the view was
    created."""
    time_dependent: tuple[str, ...]
    """Time-dependent functions of the query. If there are any, every refresh runs the script."""
    variables: tuple[tuple[str, str], ...] = ()
    """The variables that hold diffs, and the roles of their row types."""
    probes: tuple[Probe, ...] = ()
    """The lookups of rows of tables by the script."""
    costs: tuple[Cost, ...] = ()
    """Costs by the statistics at planning time."""
    by_lookups: bool = False
    """Whether small diffs always use indexes, in the written order of the joins, regardless of
    statistics. If the strategy guarantees a bound on the cost, a wrong choice of the planner must
    not break it."""
    applied: tuple[int, ...] = ()
    """The sources, by oid, whose changes are always applied, however many there are."""
    merged: Merged | None = None
    """What a read shows while changes are pending, if reads merge them."""
    not_merged: str = ""
    """Why there is no such query."""

    @property
    def variant(self) -> str:
        """The strategy, and whether inputs of aggregations are stored for it."""
        cached = any(state.role == CACHE for state in self.states)
        return f"{self.strategy} with a cache" if cached else str(self.strategy)

    def cost(self, variable: str) -> Cost | None:
        """Return the cost of a row of a variable that holds changes."""
        return next((cost for cost in self.costs if cost.variable == variable), None)

    def state(self, role: str) -> State:
        """Return the state with a role."""
        return next(state for state in self.states if state.role == role)

    @property
    def layout(self) -> tuple[object, ...]:
        """The layout of the table that holds the content, or of the view that replaces it."""
        state = self.state(self.content)
        assert not isinstance(state, Shape)
        return state.layout

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the view's columns."""
        state = self.state(self.content)
        if isinstance(state, StateTable):
            return tuple(column.name for column in state.columns if not column.hidden)
        assert isinstance(state, BagTable | StateView)
        return tuple(column.name for column in state.columns)

    @property
    def is_stored(self) -> bool:
        """Whether a table holds the rows of the view."""
        return not isinstance(self.state(self.content), StateView)

    @property
    def reads_log_alone(self) -> bool:
        """Whether a refresh of few changes reads the log of a single table, and otherwise states.

        Such a refresh needs no snapshot that all its statements share.
        """
        steps = [step for step in self.script if isinstance(step, Assign | Apply)]
        return (
            len(self.sources) == 1
            and not self.sources[0].is_own
            and not self.time_dependent
            and not any(isinstance(step, ReplaceContent) for step in self.script)
            and not any(step.query.sources for step in steps)
        )

    @property
    def content_stands_alone(self) -> bool:
        """Whether the content can be computed without what only diffs need, and this costs something.

        Diffs need the other states and the hidden columns of the content. Some of these are the parts of sums of
        numbers that may be NaN, infinite or of several scales. These take two to three times as long as the sums.
        """
        content = self.state(self.content)
        tables = [state for state in self.states if isinstance(state, StateTable)]
        if not isinstance(content, StateTable) or any(state.historic for state in tables):
            return False
        if len(tables) > 1:
            return True
        visible = set(self.column_names)
        return set(content.key) <= visible and content.query.tree.find(exp.Filter) is not None

    @property
    def shown_states(self) -> frozenset[str]:
        """The roles of the tables whose rows the view shows or is computed from."""
        state = self.state(self.content)
        return state.query.states if isinstance(state, StateView) else frozenset({state.role})


@dataclass(frozen=True)
class Evidence:
    """The reasons for a plan, and the facts that it is based on."""

    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()
    """Why some operations cost more than the change itself, and what a read costs that finds its rows by lookups."""
    statistics: tuple[Statistics | None, ...] = ()
    """The statistics of each source at planning time, with which the same plan can be made
    again."""
    prices: tuple[Price, ...] = ()
    """The measured access times at planning time."""
    missing: tuple[MissingIndex, ...] = ()
    """The indexes without which a change costs many times as much, in this plan or in a better
    one."""
    initialised: tuple[Initialised, ...] = ()
    """Where the first content was computed; empty if the refresh function computed all of it."""


@dataclass(frozen=True)
class MaintenancePlan:
    """How a view is maintained, and why."""

    maintain: str
    definition: Definition
    program: Program
    evidence: Evidence
    partitioning: Partitioning | None = None
    """The partitioning of a plan with heavy and light parts of relations."""
    enumeration: Enumeration | None = None
    """The enumeration of a content that no table holds."""
    ranking: Ranking | None = None
    """The order in which the rows of such a content can be read one after the other."""

    @property
    def merges(self) -> bool:
        """Whether a read merges the content with pending changes: with `on_read`, or if writers share the view."""
        return self.program.merged is not None

    @property
    def strategy(self) -> str:
        """The name of the strategy of the plan."""
        return self.program.strategy.value

    def because(
        self,
        *reasons: Reason,
        prices: tuple[Price, ...] = (),
        missing: tuple[MissingIndex, ...] = (),
    ) -> MaintenancePlan:
        """Return the plan with the reasons for it, and the facts about costs that were used."""
        evidence = replace(self.evidence, reasons=reasons, prices=prices, missing=missing)
        return replace(self, evidence=evidence)

    def drawn(self, picture: str) -> MaintenancePlan:
        """Return the plan with a drawing of its tree below the algebra plan."""
        algebra = f"{self.definition.algebra}\n\n{picture}"
        return replace(self, definition=replace(self.definition, algebra=algebra))

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain values for people; queries contain the names of tables."""
        return {"variant": self.program.variant, **encoded(self, str)}

    def stored(self) -> dict[str, Any]:
        """Return the plan as plain values for the catalog."""
        form = encoded(self, lambda query: query.stored)
        return {"version": VERSION, "variant": self.program.variant, **form}

    @staticmethod
    def of_stored(value: dict[str, Any]) -> MaintenancePlan | None:
        """Return the plan with this stored form, or None if the form has another version."""
        return decoded(MaintenancePlan, value) if value.get("version") == VERSION else None
