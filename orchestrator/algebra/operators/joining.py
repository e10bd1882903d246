"""What joins, semijoins and antisemijoins share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from sqlglot import exp

from orchestrator.algebra.columns import Column
from orchestrator.algebra.dependencies import Columns, Dependencies, Keys
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import Identified, Operator
from orchestrator.algebra.predicates import Facts, facts
from orchestrator.algebra.rendering import Block, Names, Renderer, joined
from orchestrator.algebra.scalar import TRUE, Scalar, unwrapped

Self = TypeVar("Self", bound="Binary")


@dataclass(frozen=True)
class Binary(Operator):
    """Two inputs and a condition over the columns of both."""

    left: Operator
    right: Operator
    condition: Scalar = TRUE

    @property
    def children(self) -> tuple[Operator, ...]:
        """Left and right."""
        return (self.left, self.right)

    def with_children(self: Self, children: tuple[Operator, ...]) -> Self:
        """The same condition on other inputs."""
        left, right = children
        return replace(self, left=left, right=right)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of both."""
        return self.left.columns + self.right.columns

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The condition."""
        return (self.condition,)

    def map_scalars(self: Self, change: Callable[[Scalar], Scalar]) -> Self:
        """Changes the condition."""
        return replace(self, condition=change(self.condition))

    @property
    def label(self) -> str:
        """The symbol and the condition."""
        return self.symbol if self.condition == TRUE else f"{self.symbol} {self.condition}"

    @cached_property
    def facts(self) -> Facts:
        """What the condition establishes for a pair of rows that satisfies it."""
        return facts(self.condition, self.left.columns + self.right.columns)


def product(left: Keys, right: Keys) -> Keys:
    """A key of each side together."""
    return frozenset(item | other for item in left for other in right)


def united_ids(
    left: Identified, right: Identified, dependencies: Dependencies
) -> tuple[Column, ...]:
    """ID(R) ∪ ID(S), without an ID that is equal to one already there."""
    ids = list(left.ids)
    for column in right.ids:
        if not dependencies.same(column) & set(ids):
            ids.append(column)
    return tuple(ids)


def surviving(dependencies: Dependencies, marked: Columns) -> Dependencies:
    """The dependencies of a side that an outer join pads with NULLs.

    Padded rows agree on everything. X → Y stays if X cannot be all NULL in any other row, for
    which one column of X that is never NULL there is enough.
    """
    items = [
        (item.determinant, item.dependent)
        for item in dependencies.items
        if item.determinant & marked
    ]
    equal = []
    for pair in dependencies.equal:
        each, other = sorted(pair, key=str)
        equal.append((each, other))
    return Dependencies.of(items, equal)


def join_blocks(
    renderer: Renderer, left: Block, right: Block, on: Tree | None, side: str = ""
) -> Block:
    """Two blocks with nothing but FROM (and, on an inner join, WHERE) as one."""
    # A row without a FROM, as of (SELECT 1 WHERE false), needs one to be joined.
    left, right = (block if block.items else renderer.nested(block) for block in (left, right))
    bare = unwrapped(on) if on is not None else None
    always = bare is None or (isinstance(bare, exp.Boolean) and bare.this)
    item = exp.Join(this=joined(right.items))
    if side:
        item.set("side", side)
    if always and not side:
        item.set("kind", "CROSS")
    else:
        item.set("on", exp.true() if bare is None else bare.copy())
    return Block(
        (*left.items, item), {**left.outputs, **right.outputs}, (*left.where, *right.where)
    )


def padded_side(renderer: Renderer, operator: Operator, outer: Names) -> Block:
    """A block whose columns become NULL in the rows that an outer join pads."""
    block = renderer.block(operator, outer)
    return block if block.from_only(outer) else renderer.nested(block)
