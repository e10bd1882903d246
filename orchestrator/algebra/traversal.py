"""Ways through a plan, written once for all operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.scalar import Scalar, Subquery

Result = TypeVar("Result")


def fold(plan: Operator, combine: Callable[[Operator, tuple[Result, ...]], Result]) -> Result:
    """Bottom up: what `combine` makes of each operator and the results of its inputs."""
    return combine(plan, tuple(fold(child, combine) for child in plan.children))


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
        rebuilt = operator.with_children(children) if children else operator
        if subqueries and any(scalar.subqueries for scalar in rebuilt.scalars):
            rebuilt = rebuilt.map_scalars(in_scalar)
        return change(rebuilt)

    return fold(plan, one)


def walk(plan: Operator, subqueries: bool = True) -> Iterator[Operator]:
    """Every operator of a plan, outer ones first, also those in subqueries of expressions."""
    yield plan
    if subqueries:
        for inner in plan.inner:
            yield from walk(inner)
        for scalar in plan.scalars:
            for subquery in scalar.subqueries:
                yield from walk(subquery.plan)
    for child in plan.children:
        yield from walk(child, subqueries)
