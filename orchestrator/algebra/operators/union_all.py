"""R ∪ S: bag union, the rows of all branches.

ID(R ∪ S) = ID(R) ∪ ID(S) ∪ {b}, where b numbers the branch that a row came from. An ID that only
one branch has is NULL in the rows of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from sqlglot import exp

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Dependencies, Keys
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import Identified, Operator
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.set_operation import (
    Branch,
    branch_query,
    combined,
    renamed_columns,
    renamed_keys,
)
from orchestrator.algebra.rendering import Block, Renderer
from orchestrator.algebra.scalar import Scalar


@dataclass(frozen=True)
class UnionAll(Operator):
    """All rows of all branches; `tag`, if any, is one of the outputs and numbers the branch."""

    branches: tuple[Branch, ...]
    outputs: tuple[Column, ...]
    tag: Column | None = None

    symbol: ClassVar[str] = "∪"

    @property
    def children(self) -> tuple[Operator, ...]:
        """The branches' inputs."""
        return tuple(branch.input for branch in self.branches)

    def with_children(self, children: tuple[Operator, ...]) -> UnionAll:
        """The same over other inputs."""
        pairs = zip(self.branches, children, strict=True)
        return replace(self, branches=tuple(replace(b, input=child) for b, child in pairs))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The output columns."""
        return self.outputs

    @property
    def mentions(self) -> Columns:
        """The branches' columns."""
        return frozenset(column for branch in self.branches for column in branch.columns)

    @property
    def label(self) -> str:
        """∪ and the columns."""
        return f"∪ → {' '.join(map(str, self.outputs))}"

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """ID(R ∪ S) = ID(R) ∪ ID(S) ∪ {b}."""
        branches = [
            replace(branch, input=below.operator)
            for branch, below in zip(self.branches, inputs, strict=True)
        ]
        outputs = list(self.outputs)
        ids: list[Column] = []
        for number, below in enumerate(inputs):
            for column in below.ids:
                if column in branches[number].columns:
                    ids.append(outputs[branches[number].columns.index(column)])
                    continue
                added = replace(column, symbol=symbols.fresh(column.symbol))
                outputs.append(added)
                ids.append(added)
                branches = [
                    _extended(branch, column if other == number else None, added, symbols)
                    for other, branch in enumerate(branches)
                ]
        tag = self.tag
        if tag is None:
            tag = Column(symbols.fresh("b"), "integer", "integer_ops", exact=True)
            outputs.append(tag)
            branches = [
                _with_constant(branch, exp.Literal.number(number), tag, symbols)
                for number, branch in enumerate(branches)
            ]
        made = UnionAll(tuple(branches), tuple(outputs), tag)
        return Identified(made, tuple(dict.fromkeys((*ids, tag))))

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """UNION ALL."""
        queries = [branch_query(renderer, branch, outer) for branch in self.branches]
        tree = queries[0]
        for query in queries[1:]:
            tree = exp.Union(this=tree, expression=query, distinct=False)
        return combined(renderer, tree, self.outputs)

    def _not_null(self) -> Columns:
        found = [renamed_columns(b, self.outputs, b.input.not_null) for b in self.branches]
        return frozenset.intersection(*found)

    def _dependencies(self) -> Dependencies:
        if self.tag is None:
            return Dependencies()
        known = [b.input.dependencies.renamed(b.renamed(self.outputs)) for b in self.branches]
        items = [
            (item.determinant | {self.tag}, item.dependent)
            for one in known
            for item in one.items
            if all(other.imply(item.determinant, item.dependent) for other in known)
        ]
        return Dependencies.of(items)

    def _keys(self) -> Keys:
        if self.tag is None:
            return frozenset()
        found: Keys = frozenset({frozenset({self.tag})})
        for branch in self.branches:
            own = renamed_keys(branch, self.outputs)
            found = frozenset(one | other for one in found for other in own)
        return found


def _extended(branch: Branch, column: Column | None, added: Column, symbols: Symbols) -> Branch:
    if column is not None:
        return replace(branch, columns=(*branch.columns, column))
    null: Tree = exp.Null()
    if added.type is not None:
        null = exp.Cast(this=null, to=exp.DataType(this=exp.DType.USERDEFINED, kind=added.type))
    return _with_constant(branch, null, added, symbols)


def _with_constant(branch: Branch, value: Tree, like: Column, symbols: Symbols) -> Branch:
    column = replace(like, symbol=symbols.fresh(like.symbol))
    kept = [Item.kept(other) for other in branch.input.columns]
    below = Projection(branch.input, (*kept, Item(column, Scalar.of(value))))
    return Branch(below, (*branch.columns, column))
