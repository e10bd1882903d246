"""Ways through a plan, written once for all operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import is_
from typing import TypeVar

from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.scalar import Scalar, Subquery

Result = TypeVar("Result")


def fold(plan: Operator, combine: Callable[[Operator, tuple[Result, ...]], Result]) -> Result:
    """Bottom up: what `combine` makes of each operator and the results of its inputs.

    An operator that stands in several places is combined once.
    """
    made: dict[int, Result] = {}
    waiting = [plan]
    while waiting:
        operator = waiting[-1]
        children = operator.children
        missing = [child for child in children if id(child) not in made]
        if missing:
            waiting += reversed(missing)
            continue
        waiting.pop()
        if id(operator) not in made:
            made[id(operator)] = combine(operator, tuple(made[id(child)] for child in children))
    return made[id(plan)]


def unfold(
    plan: Operator,
    given: Result,
    divide: Callable[[Operator, Result], tuple[Operator, tuple[Result, ...]]],
) -> Operator:
    """Top down: `divide` may change an operator, and says what each of its inputs is given."""
    changed, parts = divide(plan, given)
    children = [
        unfold(child, part, divide) for child, part in zip(changed.children, parts, strict=True)
    ]
    return changed.with_children(tuple(children))


def rewrite(
    plan: Operator, change: Callable[[Operator], Operator], subqueries: bool = True
) -> Operator:
    """The plan with every operator changed, inputs first, also in the subqueries of expressions."""

    def in_scalar(scalar: Scalar) -> Scalar:
        changed = tuple(
            Subquery(rewrite(subquery.plan, change), subquery.columns)
            for subquery in scalar.subqueries
        )
        return Scalar.of(scalar.tree, scalar.columns, changed)

    def one(operator: Operator, children: tuple[Operator, ...]) -> Operator:
        same = all(map(is_, children, operator.children))
        rebuilt = operator if same else operator.with_children(children)
        if subqueries and any(scalar.subqueries for scalar in rebuilt.scalars):
            rebuilt = rebuilt.map_scalars(in_scalar)
        return change(rebuilt)

    return fold(plan, one)


def walk(plan: Operator, subqueries: bool = True) -> Iterator[Operator]:
    """Every operator of a plan, outer ones first, also those in subqueries of expressions.

    What several references share comes once.
    """
    shared: set[int] = set()
    waiting = [plan]
    while waiting:
        operator = waiting.pop()
        yield operator
        below: list[Operator] = []
        if subqueries:
            below += operator.inner
            below += (
                subquery.plan for scalar in operator.scalars for subquery in scalar.subqueries
            )
        if operator.is_reference:
            below += (child for child in operator.children if id(child) not in shared)
            shared.update(map(id, operator.children))
        else:
            below += operator.children
        waiting += reversed(below)
