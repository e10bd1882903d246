"""Traversals of plans that work for all operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import is_
from typing import TypeVar

from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.scalar import Scalar, Subquery

Result = TypeVar("Result")


def fold(plan: Operator, combine: Callable[[Operator, tuple[Result, ...]], Result]) -> Result:
    """Return the result of combining each operator with the results of its inputs, bottom up.

    An operator that occurs several times is combined once.
    """
    results: dict[int, Result] = {}
    waiting = [plan]
    while waiting:
        operator = waiting[-1]
        children = operator.children
        missing = [child for child in children if id(child) not in results]
        if missing:
            waiting += reversed(missing)
            continue
        waiting.pop()
        if id(operator) not in results:
            results[id(operator)] = combine(
                operator, tuple(results[id(child)] for child in children)
            )
    return results[id(plan)]


def unfold(
    plan: Operator,
    given: Result,
    divide: Callable[[Operator, Result], tuple[Operator, tuple[Result, ...]]],
) -> Operator:
    """Rewrite a plan top down. `divide` returns an operator, which it may change, and a value for
    each of its inputs.
    """
    changed, parts = divide(plan, given)
    children = [
        unfold(child, part, divide) for child, part in zip(changed.children, parts, strict=True)
    ]
    return changed.with_children(tuple(children))


def rewrite(
    plan: Operator, change: Callable[[Operator], Operator], subqueries: bool = True
) -> Operator:
    """Return the plan with every operator changed, inputs first, also in the subqueries of
    expressions.
    """

    def in_scalar(scalar: Scalar) -> Scalar:
        changed = tuple(
            Subquery(rewrite(subquery.plan, change), subquery.columns)
            for subquery in scalar.subqueries
        )
        return Scalar.of(scalar.tree, scalar.columns, changed)

    def rebuild(operator: Operator, children: tuple[Operator, ...]) -> Operator:
        same = all(map(is_, children, operator.children))
        rebuilt = operator if same else operator.with_children(children)
        if subqueries and any(scalar.subqueries for scalar in rebuilt.scalars):
            rebuilt = rebuilt.map_scalars(in_scalar)
        return change(rebuilt)

    return fold(plan, rebuild)


def walk(plan: Operator, subqueries: bool = True) -> Iterator[Operator]:
    """Yield every operator of a plan, outer operators first, also those in subqueries of
    expressions.

    A subplan that several references share is visited once.
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
