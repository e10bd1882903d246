"""The planning request: the facts about a view that a strategy gets, without a database connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from orchestrator.algebra.column_type import ColumnType
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.recognition.first_rows import FirstRows
from orchestrator.algebra.ring import Ring
from orchestrator.algebra.unsupported import Unsupported
from orchestrator.deltascript.plan import (
    CONTENT,
    Column,
    Definition,
    Evidence,
    MaintenancePlan,
    Price,
    Program,
    Source,
    State,
    Statistics,
    Step,
    Strategy,
)


@dataclass(frozen=True)
class PlanningRequest:
    """A view to maintain, as the frontend and the user describe it."""

    columns: tuple[Column, ...]
    sources: tuple[Source, ...]
    unkeyed: tuple[str, ...]
    """Captured relations without a key."""
    inlined: tuple[int, ...]
    """The oids of relations whose definitions or rows are part of the plan: expanded plain views, and
    tables whose rows are read as constants."""
    time_dependent: tuple[str, ...]
    """What may change the content while no captured table changes: now(), a foreign table."""
    distinct: bool
    """Whether no two rows of the content can be equal."""
    settings: tuple[tuple[str, str], ...]
    algebra: str
    """The algebra plan as text, or the parts of the query that the algebra does not model."""
    algebra_tree: dict[str, Any]
    """The same plan as JSON."""
    maintain: str = "deferred"
    may_be_shared: bool = False
    """Whether writers may share an eager view, if its plan allows this."""
    plan: Plan | None = None
    """The query over the captured tables, as it was written."""
    lowered: Plan | None = None
    """The plan in the operators that have rules."""
    recognized: Plan | None = None
    """The lowered plan with its joins and groupings in the form that normal forms are read from."""
    first_rows: FirstRows | Unsupported | None = None
    """The query without its limit, if it shows the first rows in an order, or why these are not known."""
    identified: Plan | Unsupported | None = None
    """The lowered plan with IDs in every result, or why an operator has no IDs."""
    types: Mapping[str, ColumnType] = field(default_factory=dict)
    """The types of the plan's columns by symbol; `symbol()` is the type of an aggregate's argument."""
    statistics: Mapping[int, Statistics] = field(default_factory=dict)
    """The statistics of the sources, by oid."""
    prices: tuple[Price, ...] = ()
    """The measured prices of accesses, by plan variant."""
    static: frozenset[int] = frozenset()
    """The oids of tables that the user declares as hardly ever changing."""
    factorizable: frozenset[int] = frozenset()
    """The oids of tables whose changes are often products, for example whole rows of a matrix."""
    cache: bool = True
    """Whether the input of an aggregation over a join is stored."""
    cache_is_open: bool = False
    """Whether the planner may turn the cache off if that is cheaper."""
    minimise: bool = True
    """Whether queries are simplified by the facts known about diffs."""
    factorized: bool = False
    """Whether the result is stored as views of a tree whose join it is, and not row by row."""
    inputs: tuple[str, ...] = ()
    """The columns whose values readers give; the result is then factorized."""
    ranked: str | None = None
    """The order in which readers get the rows one after the other; the result is then factorized."""
    table: bool = False
    """Whether users read the rows in a table, to which refreshes carry the changes of the content."""
    streams: frozenset[int] = frozenset()
    """The oids of tables whose rows stay in files, so that a refresh cannot read them."""
    growing: frozenset[int] = frozenset()
    """The oids of tables to which rows are only added, so that any other change leads to a recomputation."""
    feed: bool = False
    """Whether the changes of the rows are kept, for which a table must hold the rows."""
    variable_order: str | None = None
    """The variable order that the user requests for a view tree."""
    epsilon: Fraction = Fraction(1, 2)
    """The exponent ε of the threshold N^ε above which a value is heavy."""
    epsilon_is_open: bool = False
    """Whether a plan may choose another ε."""
    epsilons: tuple[tuple[str, Fraction], ...] = ()
    """The exponents of single relations, by their names in the query or in the database."""
    create_indexes: bool = False
    """Whether the indexes that a plan needs are created with it."""
    rings: Mapping[str, Ring] = field(default_factory=dict)
    """User-defined rings, by the names of their aggregates as in `Aggregate.function`."""
    double: bool = False
    """Whether all relations of a triangle are divided by both of their variables."""

    @property
    def unmodelled(self) -> Unsupported:
        """Return why the query cannot be planned: the parts that the algebra does not model."""
        missing = "; ".join(self.algebra_tree["unsupported"])
        return Unsupported("the query is not modelled", missing)

    def maintained_by(
        self,
        strategy: Strategy,
        states: Iterable[State],
        script: Iterable[Step],
        variables: Iterable[tuple[str, str]] = (),
    ) -> MaintenancePlan:
        """Return the maintenance plan of a strategy's program; the caller adds the reasons."""
        return MaintenancePlan(
            maintain=self.maintain,
            definition=Definition(self.algebra, self.algebra_tree, self.inlined),
            program=Program(
                strategy=strategy,
                sources=self.sources,
                states=tuple(states),
                script=tuple(script),
                content=CONTENT,
                settings=self.settings,
                time_dependent=self.time_dependent,
                variables=tuple(variables),
            ),
            evidence=Evidence(
                statistics=tuple(self.statistics.get(source.oid) for source in self.sources)
            ),
        )
