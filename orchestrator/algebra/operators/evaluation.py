"""R with what a plan S(R) gives for each of its rows, and which tables' rows S looks at for which.

This is R ⋈→ S(R) or R ⟕→ S(R), prepared for maintenance: every part T of S that reads no column
of R is an input of its own, beside the condition under which a row of T matters to a row of R.
S itself is only ever evaluated for rows of R, as PostgreSQL would.

ID = ID(R) ∪ ID(S).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Dependencies, Keys
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import Identified, Operator
from orchestrator.algebra.operators.dependent_join import DependentJoin
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.rendering import Block, Renderer
from orchestrator.algebra.scalar import TRUE, Scalar, Subquery


@dataclass(frozen=True)
class Watched:
    """A part of S that reads no column of R, and when one of its rows matters to a row of R."""

    plan: Operator
    matters: tuple[Scalar, ...] = (TRUE,)
    """Conditions over both, of which one must hold."""


@dataclass(frozen=True)
class Evaluation(Operator):
    """Each row of the input with the rows that a plan gives for it."""

    input: Operator
    plan: Operator
    watched: tuple[Watched, ...] = ()
    outer: bool = False
    """Whether a row for which the plan gives none is kept, padded with NULLs."""
    left_open: str | None = None
    """The label of an operator within S because of which S may give another result each time."""

    symbol: ClassVar[str] = "⋈→"

    @property
    def children(self) -> tuple[Operator, ...]:
        """R, and the parts of S that read no column of R."""
        return (self.input, *(item.plan for item in self.watched))

    def with_children(self, children: tuple[Operator, ...]) -> Evaluation:
        """The same plan over other inputs."""
        first, *rest = children
        pairs = list(zip((item.plan for item in self.watched), rest, strict=True))
        return replace(
            self,
            input=first,
            plan=replaced(self.plan, pairs),
            watched=tuple(
                replace(item, plan=new) for item, (_, new) in zip(self.watched, pairs, strict=True)
            ),
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of R and S."""
        return self.input.columns + self.plan.columns

    @property
    def inner(self) -> tuple[Operator, ...]:
        """S."""
        return (self.plan,)

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The conditions under which rows matter."""
        return tuple(scalar for item in self.watched for scalar in item.matters)

    def map_scalars(self, change: Callable[[Scalar], Scalar]) -> Evaluation:
        """Changes the conditions."""
        watched = [replace(item, matters=tuple(map(change, item.matters))) for item in self.watched]
        return replace(self, watched=tuple(watched))

    @property
    def mentions(self) -> Columns:
        """What S reads of R."""
        return self.plan.outer_columns

    @property
    def single(self) -> bool:
        """Whether S gives exactly one row for each row of R."""
        return isinstance(self.plan, Projection) and self.plan.input.columns == ()

    @property
    def label(self) -> str:
        """What S is."""
        return f"{'⟕→' if self.outer else '⋈→'} {self.plan.label}"

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """ID(R) ∪ ID(S)."""
        first, *rest = inputs
        made = self.with_children(tuple(item.operator for item in inputs))
        known = {item.operator: item for item in rest}

        def visit(operator: Operator) -> Identified:
            if operator in known:
                return known[operator]
            return operator.identified(tuple(map(visit, operator.children)), symbols)

        below = visit(made.plan)
        return Identified(replace(made, plan=below.operator), (*first.ids, *below.ids))

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """A LATERAL item in FROM."""
        return self._join.render(renderer, outer)

    @cached_property
    def _join(self) -> DependentJoin:
        return DependentJoin(self.input, self.plan, TRUE, self.outer)

    def _not_null(self) -> Columns:
        return self._join.not_null

    def _dependencies(self) -> Dependencies:
        return self._join.dependencies

    def _keys(self) -> Keys:
        return self._join.keys


@dataclass(frozen=True)
class Expansion(Evaluation):
    """An evaluation that looks at nothing but the row of R: set-returning functions."""


def replaced(plan: Operator, pairs: list[tuple[Operator, Operator]]) -> Operator:
    """A plan with parts replaced, also in the subqueries of its expressions.

    Within expressions, where no IDs are wanted, a new part shows the columns of the old one.
    """
    if all(old == new for old, new in pairs):
        return plan

    def in_plan(operator: Operator, cut: bool) -> Operator:
        for old, new in pairs:
            if operator == old:
                return _cut(new, old) if cut else new
        made = operator.with_children(tuple(in_plan(child, cut) for child in operator.children))
        return made.map_scalars(in_scalar)

    def in_scalar(scalar: Scalar) -> Scalar:
        if not scalar.subqueries:
            return scalar
        subqueries = tuple(
            Subquery(in_plan(subquery.plan, True), subquery.columns)
            for subquery in scalar.subqueries
        )
        return Scalar.of(scalar.tree, scalar.columns, subqueries)

    return in_plan(plan, False)


def _cut(new: Operator, old: Operator) -> Operator:
    if new.columns == old.columns:
        return new
    return Projection(new, tuple(map(Item.kept, old.columns)))
