"""ω(R): each row with values computed over a window of rows.

ID(ω(R)) = ID(R). All functions of an operator share partition, order and frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from sqlglot import exp

from orchestrator.algebra.columns import Column
from orchestrator.algebra.dependencies import Columns, Dependencies, Keys
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import SortKey, listed
from orchestrator.algebra.operators.group import Aggregate
from orchestrator.algebra.operators.unary import Unary
from orchestrator.algebra.rendering import Block, Renderer, order_clause
from orchestrator.algebra.scalar import Scalar


@dataclass(frozen=True)
class Window(Unary):
    """The input with the results of window functions."""

    functions: tuple[Aggregate, ...]
    """The calls without OVER."""
    partition: tuple[Column, ...] = ()
    order: tuple[SortKey, ...] = ()
    frame: Scalar | None = None
    """ROWS, RANGE or GROUPS with bounds and exclusion; the frame reads no columns."""

    symbol: ClassVar[str] = "ω"

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the input, then the results of the functions."""
        return self.input.columns + tuple(function.column for function in self.functions)

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The calls and the frame."""
        calls = tuple(function.call for function in self.functions)
        return calls if self.frame is None else (*calls, self.frame)

    def map_scalars(self, change: Callable[[Scalar], Scalar]) -> Window:
        """Return the operator with changed calls and frame."""
        changed = tuple(replace(f, call=change(f.call)) for f in self.functions)
        frame = None if self.frame is None else change(self.frame)
        return replace(self, functions=changed, frame=frame)

    @property
    def mentions(self) -> Columns:
        """The columns of PARTITION BY and ORDER BY."""
        return frozenset(self.partition) | {key.column for key in self.order}

    @property
    def label(self) -> str:
        """The symbol ω, the functions and the window."""
        parts = [listed(self.functions)]
        parts += [f"partition {listed(self.partition)}"] if self.partition else []
        parts += [f"by {listed(self.order)}"] if self.order else []
        if self.frame is not None:
            parts.append(str(self.frame).lower())
        return f"ω {'; '.join(parts)}"

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render with OVER."""
        block = renderer.block(self.input, outer)
        if not block.ungrouped or self.references & block.windowed:
            block = renderer.nested(block)
        if not block.named(*self.mentions) and block.group is None:
            block = renderer.nested(block)
        names = {**outer, **block.outputs}
        outputs = dict(block.outputs)
        for function in self.functions:
            over = exp.Window(this=renderer.tree(function.call, names), over="OVER")
            if self.partition:
                over.set("partition_by", [names[column].copy() for column in self.partition])
            if self.order:
                over.set("order", order_clause(self.order, names))
            if self.frame is not None:
                over.set("spec", self.frame.tree)
            outputs[function.column] = over
        windowed = block.windowed | {function.column for function in self.functions}
        return replace(block, outputs=outputs, windowed=windowed)

    def _not_null(self) -> Columns:
        ranking = ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "count")
        never_null = {f.column for f in self.functions if f.function in ranking}
        return self.input.not_null | never_null

    def _dependencies(self) -> Dependencies:
        return self.input.dependencies

    def _keys(self) -> Keys:
        # No two rows of a partition have the same number.
        numbers = [f.column for f in self.functions if f.function == "row_number"]
        numbered = {frozenset({*self.partition, number}) for number in numbers}
        return self.input.keys | numbered
