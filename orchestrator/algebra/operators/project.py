"""π_D(R): generalized projection, which passes columns on and computes new ones. Duplicates stay.

ID(π_D(R)) = ID(R). An ID that D lacks is added, unless D has a column equal to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Dependencies, Keys, visible_keys
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import Identified, Operator, listed
from orchestrator.algebra.predicates import never_null
from orchestrator.algebra.rendering import Block, Renderer
from orchestrator.algebra.scalar import Scalar


@dataclass(frozen=True)
class Item:
    """An output column and its expression. A column of the input that is passed on keeps its
    identity.
    """

    column: Column
    scalar: Scalar

    @staticmethod
    def kept(column: Column) -> Item:
        """Return the item that passes on a column of the input."""
        return Item(column, Scalar.column(column))

    @property
    def is_unchanged(self) -> bool:
        """Whether the item passes on a column of the input."""
        return self.scalar.as_column == self.column

    def __str__(self) -> str:
        """Return the column, or the expression and the column."""
        return self.column.symbol if self.is_unchanged else f"{self.scalar} → {self.column}"


@dataclass(frozen=True)
class Projection(Operator):
    """Columns of the input and columns computed from it."""

    input: Operator
    items: tuple[Item, ...]

    symbol: ClassVar[str] = "π"

    @property
    def children(self) -> tuple[Operator, ...]:
        """The input."""
        return (self.input,)

    def with_children(self, children: tuple[Operator, ...]) -> Projection:
        """Return the same items over another input."""
        [child] = children
        return replace(self, input=child)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the items."""
        return tuple(item.column for item in self.items)

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The expressions of the items."""
        return tuple(item.scalar for item in self.items)

    def map_scalars(self, change: Callable[[Scalar], Scalar]) -> Projection:
        """Return the projection with changed expressions."""
        return replace(
            self, items=tuple(replace(item, scalar=change(item.scalar)) for item in self.items)
        )

    @property
    def label(self) -> str:
        """The symbol π and the items."""
        return f"π {listed(self.items)}".rstrip()

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return ID(π(R)) = ID(R); missing IDs are added."""
        [below] = inputs
        outputs = set(self.columns)
        known = below.operator.dependencies
        ids = []
        for column in below.ids:
            equal = known.same(column) & outputs
            ids.append(column if column in outputs or not equal else min(equal, key=str))
        added = tuple(Item.kept(column) for column in ids if column not in outputs)
        return Identified(
            Projection(below.operator, (*self.items, *added)), tuple(dict.fromkeys(ids))
        )

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as the SELECT list."""
        block = renderer.block(self.input, outer)
        if block.distinct is not None or (block.limit and any(s.subqueries for s in self.scalars)):
            block = renderer.nested(block)
        names = {**outer, **block.outputs}
        outputs = {item.column: renderer.tree(item.scalar, names) for item in self.items}
        computed = frozenset(
            item.column
            for item in self.items
            if item.scalar.columns & block.windowed and not item.is_unchanged
        )
        return replace(block, outputs=outputs, windowed=block.windowed | computed)

    def _not_null(self) -> Columns:
        below = self.input.not_null
        return frozenset(item.column for item in self.items if never_null(item.scalar, below))

    def _dependencies(self) -> Dependencies:
        return self._widened().restricted(self.columns)

    def _keys(self) -> Keys:
        return visible_keys(self.input.keys, self._widened(), self.columns)

    def _widened(self) -> Dependencies:
        """Return the dependencies that hold for the columns of the input and the items together."""
        computed: list[tuple[Columns, list[Column]]] = []
        equal = []
        for item in self.items:
            same = item.scalar.as_column
            if item.is_unchanged:
                continue
            if same is not None and same in self.input.columns:
                equal.append((same, item.column))
            elif not item.scalar.subqueries and all(c.exact for c in item.scalar.columns):
                # Columns of a surrounding query are constant here.
                inputs = item.scalar.columns & frozenset(self.input.columns)
                computed.append((inputs, [item.column]))
        return self.input.dependencies | Dependencies.of(computed, equal)


def over(rows: Operator, columns: Iterable[Column]) -> Operator:
    """Return a plan reduced to some columns."""
    wanted = tuple(dict.fromkeys(columns))
    if rows.columns == wanted:
        return rows
    return Projection(rows, tuple(map(Item.kept, wanted)))
