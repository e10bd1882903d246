"""A reference to a common table expression: a shared subplan under fresh column identities.

ID = ID of the subplan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from sqlglot import exp

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Dependencies, Keys
from orchestrator.algebra.dialect import Tree, identifier, reference
from orchestrator.algebra.operators.base import Identified, Operator
from orchestrator.algebra.operators.recursive import open_recursions
from orchestrator.algebra.operators.set_operation import Branch, renamed_columns, renamed_keys
from orchestrator.algebra.rendering import Block, Renderer


@dataclass(frozen=True)
class CteScan(Operator):
    """The rows of a shared subplan."""

    name: str
    """The name, unique in the plan; all references to a common table expression have the same."""
    shared: Branch
    outputs: tuple[Column, ...]

    symbol: ClassVar[str] = "cte"
    is_reference: ClassVar[bool] = True

    @property
    def children(self) -> tuple[Operator, ...]:
        """The shared subplan."""
        return (self.shared.input,)

    def with_children(self, children: tuple[Operator, ...]) -> CteScan:
        """Return the reference to another subplan."""
        [child] = children
        return replace(self, shared=replace(self.shared, input=child))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns under their new identities."""
        return self.outputs

    @property
    def mentions(self) -> Columns:
        """The columns of the subplan."""
        return frozenset(self.shared.columns)

    @property
    def label(self) -> str:
        """The name and the columns."""
        return f"cte {self.name} → {' '.join(map(str, self.outputs))}"

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return ID = ID of the subplan, under new identities."""
        [below] = inputs
        inner, outputs = list(self.shared.columns), list(self.outputs)
        for column in below.ids:
            if column not in inner:
                inner.append(column)
                outputs.append(replace(column, symbol=symbols.fresh(column.symbol)))
        ids = tuple(outputs[inner.index(column)] for column in below.ids)
        shared = Branch(below.operator, tuple(inner))
        return Identified(CteScan(self.name, shared, tuple(outputs)), ids)

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as a name from WITH; a subplan that reads rows of another query stays in place."""
        plan = self.shared.input
        if plan.outer_columns or open_recursions(plan):
            block = renderer.nested(renderer.block(plan, outer))
            return Block(
                block.items,
                {new: block.outputs[old] for old, new in self.shared.renamed(self.outputs)},
            )
        columns = tuple(dict.fromkeys(self.shared.columns))
        if not renderer.is_shared(self.name):
            renderer.shared(self.name, columns, renderer.query(plan, {}, columns))
        alias = renderer.symbols.fresh(self.name)
        item = exp.Table(this=identifier(self.name), alias=exp.TableAlias(this=identifier(alias)))
        return Block(
            (item,),
            {new: reference(old.symbol, alias) for old, new in self.shared.renamed(self.outputs)},
        )

    def _not_null(self) -> Columns:
        return renamed_columns(self.shared, self.outputs, self.shared.input.not_null)

    def _dependencies(self) -> Dependencies:
        return self.shared.input.dependencies.renamed(self.shared.renamed(self.outputs))

    def _keys(self) -> Keys:
        return renamed_keys(self.shared, self.outputs)
