"""R joined with a plan S(R) that is evaluated for each row of R, prepared for maintenance.

This is R ⋈→ S(R) or R ⟕→ S(R). Each part T of S that reads no column of R becomes an input of its
own, with the condition under which a row of T matters to a row of R. S itself is only evaluated for
rows of R, as in PostgreSQL.

ID = ID(R) ∪ ID(S).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Dependencies, Keys
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import Identified, Operator
from orchestrator.algebra.operators.dependent_join import DependentJoin
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.values import Values
from orchestrator.algebra.rendering import Block, Renderer
from orchestrator.algebra.scalar import TRUE, Scalar, Subquery
from orchestrator.caching import cached_property


@dataclass(frozen=True)
class Watched:
    """A part of S that reads no column of R, and when one of its rows matters to a row of R."""

    plan: Operator
    matters: tuple[Scalar, ...] = (TRUE,)
    """Conditions over both rows; a row matters if at least one condition is true."""


@dataclass(frozen=True)
class Evaluation(Operator):
    """Each row of the input, joined with the rows that a plan returns for it."""

    input: Operator
    plan: Operator
    watched: tuple[Watched, ...] = ()
    outer: bool = False
    """Whether a row for which the plan returns none stays in the result, padded with NULLs."""
    left_open: str | None = None
    """The label of an operator in S that makes the result of S nondeterministic."""

    symbol: ClassVar[str] = "⋈→"

    @property
    def children(self) -> tuple[Operator, ...]:
        """R, and the parts of S that read no column of R."""
        return (self.input, *(item.plan for item in self.watched))

    def with_children(self, children: tuple[Operator, ...]) -> Evaluation:
        """Return the evaluation with other inputs, which also replace the parts of S."""
        input_, *rest = children
        pairs = list(zip((item.plan for item in self.watched), rest, strict=True))
        return replace(
            self,
            input=input_,
            plan=replaced(self.plan, pairs),
            watched=tuple(
                replace(item, plan=new) for item, (_, new) in zip(self.watched, pairs, strict=True)
            ),
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of R and S."""
        return self.input.columns + self.plan.columns

    @property
    def inner(self) -> tuple[Operator, ...]:
        """The plan S."""
        return (self.plan,)

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The conditions under which rows matter."""
        return tuple(scalar for item in self.watched for scalar in item.matters)

    def map_scalars(self, change: Callable[[Scalar], Scalar]) -> Evaluation:
        """Return the evaluation with changed conditions."""
        watched = [replace(item, matters=tuple(map(change, item.matters))) for item in self.watched]
        return replace(self, watched=tuple(watched))

    @property
    def mentions(self) -> Columns:
        """The columns of R that S reads."""
        return self.plan.outer_columns

    @property
    def single(self) -> bool:
        """Whether the result has exactly one row for each row of R."""
        plan = self.plan
        while isinstance(plan, Projection) or (self.outer and isinstance(plan, Selection)):
            plan = plan.input
        return isinstance(plan, Values) and plan.rows == ((),)

    @property
    def label(self) -> str:
        """The symbol and the label of S."""
        return f"{'⟕→' if self.outer else '⋈→'} {self.plan.label}"

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """ID(R) ∪ ID(S)."""
        first, *rest = inputs
        over_inputs = self.with_children(tuple(item.operator for item in inputs))
        identified_parts = {item.operator: item for item in rest}

        def visit(operator: Operator) -> Identified:
            if operator in identified_parts:
                return identified_parts[operator]
            return operator.identified(tuple(map(visit, operator.children)), symbols)

        below = visit(over_inputs.plan)
        return Identified(replace(over_inputs, plan=below.operator), (*first.ids, *below.ids))

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as a LATERAL item in FROM."""
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
    """An evaluation that reads only the row of R, for example set-returning functions."""


def replaced(plan: Operator, pairs: list[tuple[Operator, Operator]]) -> Operator:
    """Return a plan with parts replaced, also in the subqueries of its expressions.

    Expressions need no IDs, so a new part within them shows only the columns of the old part.
    """
    if all(old == new for old, new in pairs):
        return plan

    def in_plan(operator: Operator, in_expression: bool) -> Operator:
        for old, new in pairs:
            if operator == old:
                return _with_columns_of(new, old) if in_expression else new
        rebuilt = operator.with_children(
            tuple(in_plan(child, in_expression) for child in operator.children)
        )
        return rebuilt.map_scalars(in_scalar)

    def in_scalar(scalar: Scalar) -> Scalar:
        if not scalar.subqueries:
            return scalar
        subqueries = tuple(
            Subquery(in_plan(subquery.plan, True), subquery.columns)
            for subquery in scalar.subqueries
        )
        return Scalar.of(scalar.tree, scalar.columns, subqueries)

    return in_plan(plan, False)


def _with_columns_of(new: Operator, old: Operator) -> Operator:
    if new.columns == old.columns:
        return new
    return Projection(new, tuple(map(Item.kept, old.columns)))
