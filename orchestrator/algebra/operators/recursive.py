"""μ: a recursive common table expression.

The result holds the rows of the base, then repeatedly the rows that the step derives from the rows
added last, until a step adds none. With UNION each row counts once (ID = all columns), with UNION
ALL as often as it is derived (a bag, numbered by ν).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from sqlglot import exp

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Keys
from orchestrator.algebra.dialect import Tree, identifier, reference
from orchestrator.algebra.operators.base import Identified, Operator
from orchestrator.algebra.operators.numbered import Numbered
from orchestrator.algebra.operators.set_operation import (
    Branch,
    branch_query,
    renamed_columns,
)
from orchestrator.algebra.rendering import Block, Renderer
from orchestrator.algebra.traversal import walk


@dataclass(frozen=True)
class RecursiveScan(Operator):
    """The rows added last, as the step of a recursion reads them."""

    name: str
    names: tuple[str, ...]
    """The names of the recursion's columns."""
    outputs: tuple[Column, ...]

    symbol: ClassVar[str] = "recursion"

    @property
    def children(self) -> tuple[Operator, ...]:
        """No inputs."""
        return ()

    def with_children(self, children: tuple[Operator, ...]) -> RecursiveScan:
        """Return the operator itself, which has no inputs."""
        return self

    @property
    def columns(self) -> tuple[Column, ...]:
        """The recursion's columns under new identities."""
        return self.outputs

    @property
    def label(self) -> str:
        """The name and the columns."""
        return f"recursion {self.name} → {' '.join(map(str, self.outputs))}"

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return all columns: the surrounding recursion removes duplicates or is numbered as a
        whole.
        """
        return Identified(self, self.outputs)

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as the name of the recursion."""
        alias = renderer.symbols.fresh(self.name)
        item = exp.Table(this=identifier(self.name), alias=exp.TableAlias(this=identifier(alias)))
        pairs = zip(self.outputs, self.names, strict=True)
        return Block((item,), {column: reference(name, alias) for column, name in pairs})


@dataclass(frozen=True)
class Recursion(Operator):
    """A recursive union."""

    name: str
    base: Branch
    step: Branch
    outputs: tuple[Column, ...]
    all: bool = False

    symbol: ClassVar[str] = "μ"

    @property
    def children(self) -> tuple[Operator, ...]:
        """The plans of base and step."""
        return (self.base.input, self.step.input)

    def with_children(self, children: tuple[Operator, ...]) -> Recursion:
        """Return the recursion with another base and step."""
        base, step = children
        return replace(
            self, base=replace(self.base, input=base), step=replace(self.step, input=step)
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """The output columns."""
        return self.outputs

    @property
    def mentions(self) -> Columns:
        """The columns of base and step."""
        return frozenset(self.base.columns + self.step.columns)

    @property
    def label(self) -> str:
        """The symbol μ, the name and the columns."""
        names = " ".join(map(str, self.outputs))
        return f"μ {self.name}{' all' if self.all else ''} → {names}"

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return ID = all columns. Base and step need no IDs, because they are not maintained
        separately.
        """
        if self.all:
            numbered = Numbered.of(self, symbols)
            return Identified(numbered, (numbered.row, numbered.nth))
        return Identified(self, self.outputs)

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as WITH RECURSIVE."""
        query = exp.Union(
            this=branch_query(renderer, self.base, outer),
            expression=branch_query(renderer, self.step, outer),
            distinct=not self.all,
        )
        alias = renderer.symbols.fresh(self.name)
        item = exp.Table(this=identifier(self.name), alias=exp.TableAlias(this=identifier(alias)))
        block = Block((item,), {c: reference(c.symbol, alias) for c in self.outputs})
        if not self.outer_columns:
            renderer.shared(self.name, self.outputs, query, recursive=True)
            return block
        names = [identifier(column.symbol) for column in self.outputs]
        cte = exp.CTE(this=query, alias=exp.TableAlias(this=identifier(self.name), columns=names))
        select = block.select((column, column.symbol) for column in self.outputs)
        select.set("with_", exp.With(expressions=[cte], recursive=True))
        return renderer.derived(select, self.outputs)

    def _not_null(self) -> Columns:
        base = renamed_columns(self.base, self.outputs, self.base.input.not_null)
        return base & renamed_columns(self.step, self.outputs, self.step.input.not_null)

    def _keys(self) -> Keys:
        return frozenset() if self.all else frozenset({frozenset(self.outputs)})


def open_recursions(plan: Operator) -> frozenset[str]:
    """Return the names of recursions that a plan reads and does not contain."""
    scanned = {operator.name for operator in walk(plan) if isinstance(operator, RecursiveScan)}
    return frozenset(
        scanned - {operator.name for operator in walk(plan) if isinstance(operator, Recursion)}
    )
