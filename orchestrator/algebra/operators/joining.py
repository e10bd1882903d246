"""Common parts of joins, semijoins and antisemijoins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from sqlglot import exp

from orchestrator.algebra.columns import Column
from orchestrator.algebra.dependencies import Columns, Dependencies, Keys
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import Identified, Operator
from orchestrator.algebra.predicates import Facts, facts
from orchestrator.algebra.rendering import Block, Names, Renderer, joined
from orchestrator.algebra.scalar import TRUE, Scalar, unwrapped
from orchestrator.caching import cached_property

Self = TypeVar("Self", bound="Binary")


@dataclass(frozen=True)
class Binary(Operator):
    """An operator with two inputs and a condition over the columns of both."""

    left: Operator
    right: Operator
    condition: Scalar = TRUE

    @property
    def children(self) -> tuple[Operator, ...]:
        """The left and the right input."""
        return (self.left, self.right)

    def with_children(self: Self, children: tuple[Operator, ...]) -> Self:
        """Return the same condition on other inputs."""
        left, right = children
        return replace(self, left=left, right=right)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of both inputs."""
        return self.left.columns + self.right.columns

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The condition."""
        return (self.condition,)

    def map_scalars(self: Self, change: Callable[[Scalar], Scalar]) -> Self:
        """Return the operator with a changed condition."""
        return replace(self, condition=change(self.condition))

    @property
    def label(self) -> str:
        """The symbol and the condition."""
        return self.symbol if self.condition == TRUE else f"{self.symbol} {self.condition}"

    @cached_property
    def facts(self) -> Facts:
        """The facts that the condition establishes for each matching pair of rows."""
        return facts(self.condition, self.left.columns + self.right.columns)


def product(left: Keys, right: Keys) -> Keys:
    """Return the unions of a key of the left side and a key of the right side."""
    return frozenset(left_key | right_key for left_key in left for right_key in right)


def united_ids(
    left: Identified, right: Identified, dependencies: Dependencies
) -> tuple[Column, ...]:
    """Return ID(R) ∪ ID(S), without IDs of S that are equal to an ID of R."""
    ids = list(left.ids)
    for column in right.ids:
        if not dependencies.same(column) & set(ids):
            ids.append(column)
    return tuple(ids)


def surviving(dependencies: Dependencies, never_null: Columns) -> Dependencies:
    """Return the dependencies that still hold after an outer join pads a side with NULLs.

    Padded rows agree on all columns. X → Y stays if X cannot be all NULL in any other row. It is
    enough that some column of X is never NULL there.
    """
    items = [
        (item.determinant, item.dependent)
        for item in dependencies.items
        if item.determinant & never_null
    ]
    equal = []
    for pair in dependencies.equal:
        first, second = sorted(pair, key=str)
        equal.append((first, second))
    return Dependencies.of(items, equal)


def join_blocks(
    renderer: Renderer, left: Block, right: Block, on: Tree | None, side: str = ""
) -> Block:
    """Return a single block that joins two blocks with only FROM (and, for an inner join, WHERE)."""
    # A row without FROM, as in (SELECT 1 WHERE false), must become a derived table to be joined.
    left, right = (block if block.items else renderer.nested(block) for block in (left, right))
    condition = unwrapped(on) if on is not None else None
    always = condition is None or (isinstance(condition, exp.Boolean) and condition.this)
    item = exp.Join(this=joined(right.items))
    if side:
        item.set("side", side)
    if always and not side:
        item.set("kind", "CROSS")
    else:
        item.set("on", exp.true() if condition is None else condition.copy())
    return Block(
        (*left.items, item), {**left.outputs, **right.outputs}, (*left.where, *right.where)
    )


def padded_side(renderer: Renderer, operator: Operator, outer: Names) -> Block:
    """Return a block whose columns become NULL in the rows that an outer join pads."""
    block = renderer.block(operator, outer)
    return block if block.from_only(outer) else renderer.nested(block)
