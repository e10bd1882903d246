"""λ(R): the first rows in an order (LIMIT, OFFSET, FETCH ... WITH TIES).

ID(λ(R)) = ID(R).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from sqlglot import exp

from orchestrator.algebra.columns import Column
from orchestrator.algebra.dependencies import Columns, Keys
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import SortKey, listed
from orchestrator.algebra.operators.unary import Unary
from orchestrator.algebra.rendering import Block, Renderer, order_clause
from orchestrator.algebra.scalar import Scalar, unwrapped


@dataclass(frozen=True)
class Limit(Unary):
    """The first rows of the input, after an offset, in an order."""

    order: tuple[SortKey, ...] = ()
    count: Scalar | None = None
    offset: Scalar | None = None
    with_ties: bool = False
    """Whether rows that are equal to the last row in the order also stay."""
    indexed: bool = False
    """Whether an index in this order finds the first rows for each row of a surrounding query, without reading the
    others."""

    symbol: ClassVar[str] = "λ"

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The count and the offset."""
        return tuple(scalar for scalar in (self.count, self.offset) if scalar is not None)

    def map_scalars(self, change: Callable[[Scalar], Scalar]) -> Limit:
        """Return the operator with changed count and offset."""
        return replace(
            self,
            count=None if self.count is None else change(self.count),
            offset=None if self.offset is None else change(self.offset),
        )

    @property
    def mentions(self) -> Columns:
        """The columns in ORDER BY."""
        return frozenset(key.column for key in self.order)

    @property
    def label(self) -> str:
        """The symbol λ, count, offset and order."""
        parts = [] if self.count is None else [str(self.count)]
        parts += ["with ties"] if self.with_ties else []
        parts += [] if self.offset is None else [f"offset {self.offset}"]
        parts += [f"by {listed(self.order)}"] if self.order else []
        return f"λ {' '.join(parts)}"

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as ORDER BY, LIMIT and OFFSET."""
        block = renderer.block(self.input, outer)
        if not (block.ungrouped and block.named(*self.mentions)):
            block = renderer.nested(block)
        limit: dict[str, Tree] = {}
        if self.count is not None:
            count = renderer.tree(self.count, outer)
            # FETCH accepts an expression only in parentheses.
            ties = exp.LimitOptions(rows=True, with_ties=True)
            limit["limit"] = (
                exp.Fetch(direction="FIRST", count=exp.Paren(this=count), limit_options=ties)
                if self.with_ties
                else exp.Limit(expression=count)
            )
        if self.offset is not None:
            limit["offset"] = exp.Offset(expression=renderer.tree(self.offset, outer))
        order = order_clause(self.order, block.outputs) if self.order else None
        return replace(block, order=order, limit=limit)

    def _keys(self) -> Keys:
        if self.count is not None and not self.with_ties:
            tree = unwrapped(self.count.tree)
            tree = unwrapped(tree.this) if isinstance(tree, exp.Cast) else tree
            if isinstance(tree, exp.Literal) and tree.name in ("0", "1"):
                return frozenset({frozenset()})
        return self.input.keys
