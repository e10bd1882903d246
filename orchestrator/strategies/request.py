"""What a strategy is asked: a view's facts, free of connections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from orchestrator.algebra.column_type import ColumnType
from orchestrator.algebra.plan import Plan
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
    """The relations, by oid, whose definitions the plan has in it: plain views that it expands, tables
    whose rows it reads as values."""
    time_dependent: tuple[str, ...]
    """What may change the content while no captured table changes: now(), a foreign table."""
    distinct: bool
    """Whether the content is known to have no two equal rows."""
    settings: tuple[tuple[str, str], ...]
    algebra: str
    """The algebra plan in print, or what it does not model."""
    algebra_tree: dict[str, Any]
    """The same for programs."""
    maintain: str = "deferred"
    plan: Plan | None = None
    """The query over the captured tables, as it was written."""
    lowered: Plan | None = None
    """The plan in the operators that have rules."""
    identified: Plan | Unsupported | None = None
    """The lowered plan with IDs in every result, or why there are none."""
    types: Mapping[str, ColumnType] = field(default_factory=dict)
    """Of the plan's columns by their symbols; behind an aggregate's, `()` stands for its argument."""
    statistics: Mapping[int, Statistics] = field(default_factory=dict)
    """Of the sources, by oid."""
    prices: tuple[Price, ...] = ()
    """What refreshes took, by the ways of their plans."""
    static: frozenset[int] = frozenset()
    """The tables, by oid, that the user says hardly ever change."""
    factorizable: frozenset[int] = frozenset()
    """Those whose changes are often products, as of whole rows of a matrix."""
    cache: bool = True
    """Whether the input of an aggregation is stored where joins make it."""
    cache_is_open: bool = False
    """Whether that may be decided otherwise, by costs."""
    minimise: bool = True
    """Whether queries are cut down by what is known of diffs."""
    factorized: bool = False
    """Whether the result is kept as views of a tree whose join it is, and not row by row."""
    variable_order: str | None = None
    """The order that the user wants a view tree to follow."""
    epsilon: Fraction = Fraction(1, 2)
    """Where heavy values begin: at N^ε rows."""
    epsilons: tuple[tuple[str, Fraction], ...] = ()
    """The same for single relations, by their names in the query or in the database."""
    create_indexes: bool = False
    """Whether the indexes that a plan looks for are created with it."""
    rings: Mapping[str, Ring] = field(default_factory=dict)
    """Of users, by the names of their aggregates, as `Aggregate.function` has them."""
    double: bool = False
    """Whether the relations of a triangle are all divided by both of their variables."""

    @property
    def unmodelled(self) -> Unsupported:
        """Why there is no plan, if there is none."""
        missing = "; ".join(self.algebra_tree["unsupported"])
        return Unsupported("the query is not modelled", missing)

    def maintained_by(
        self,
        strategy: Strategy,
        states: Iterable[State],
        script: Iterable[Step],
        variables: Iterable[tuple[str, str]] = (),
    ) -> MaintenancePlan:
        """The maintenance plan that a strategy has made; why it was taken is not its matter."""
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
