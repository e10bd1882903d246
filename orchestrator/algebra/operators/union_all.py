"""R ∪ S: bag union, the rows of all branches.

ID(R ∪ S) = ID(R) ∪ ID(S) ∪ {b}, where b is the number of the branch of a row. An ID that only one
branch has is NULL in the rows of the other branches. An ID that shares an output with a column of
another branch that can change also gets a column of its own: table 1 of papers/idivm.txt assumes
branches with the same IDs, and an ID never changes.
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
    """All rows of all branches. `tag`, if any, is an output column with the number of the branch."""

    branches: tuple[Branch, ...]
    outputs: tuple[Column, ...]
    tag: Column | None = None
    across: Keys = frozenset()
    """Keys of the union that do not follow from the keys of the branches."""

    symbol: ClassVar[str] = "∪"

    @property
    def children(self) -> tuple[Operator, ...]:
        """The inputs of the branches."""
        return tuple(branch.input for branch in self.branches)

    def with_children(self, children: tuple[Operator, ...]) -> UnionAll:
        """Return the union over other inputs."""
        pairs = zip(self.branches, children, strict=True)
        return replace(self, branches=tuple(replace(b, input=child) for b, child in pairs))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The output columns."""
        return self.outputs

    @property
    def mentions(self) -> Columns:
        """The columns of the branches."""
        return frozenset(column for branch in self.branches for column in branch.columns)

    @property
    def label(self) -> str:
        """The symbol ∪ and the columns."""
        return f"∪ → {' '.join(map(str, self.outputs))}"

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return ID(R ∪ S) = ID(R) ∪ ID(S) ∪ {b}."""
        outputs = list(self.outputs)
        ids: list[Column] = []
        added_ids: list[dict[Column, Column]] = []
        for branch, below in zip(self.branches, inputs, strict=True):
            # An ID that is no output of the branch takes a column of the same type that another
            # branch added for an ID, or a new column.
            free = [column for column in outputs if column not in (*self.outputs, self.tag)]
            branch_ids = {}
            for column in below.ids:
                output = self._shown_as_id(branch, column, inputs)
                if output is not None:
                    ids.append(output)
                    continue
                reusable = [candidate for candidate in free if _same_type(candidate, column)]
                added = reusable[0] if reusable else _renamed(column, symbols)
                if reusable:
                    free.remove(added)
                else:
                    outputs.append(added)
                branch_ids[added] = column
                ids.append(added)
            added_ids.append(branch_ids)
        tag = self.tag
        if tag is None:
            tag = Column(symbols.fresh("b"), "integer", "integer_ops", exact=True)
            outputs.append(tag)
        new = outputs[len(self.outputs) :]
        branches = [
            _with_outputs(
                replace(branch, input=below.operator), number, branch_ids, new, tag, symbols
            )
            for number, (branch, below, branch_ids) in enumerate(
                zip(self.branches, inputs, added_ids, strict=True)
            )
        ]
        union_all = replace(self, branches=tuple(branches), outputs=tuple(outputs), tag=tag)
        return Identified(union_all, tuple(dict.fromkeys((*ids, tag))))

    def _shown_as_id(
        self, branch: Branch, column: Column, inputs: tuple[Identified, ...]
    ) -> Column | None:
        """Return the output that shows an ID of a branch, if the output never changes in any
        branch.
        """
        for position, output in enumerate(self.outputs):
            if branch.columns[position] == column and all(
                _never_changes(below, other.columns[position])
                for other, below in zip(self.branches, inputs, strict=True)
            ):
                return output
        return None

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as UNION ALL."""
        queries = [branch_query(renderer, branch, outer) for branch in self.branches]
        tree = queries[0]
        for query in queries[1:]:
            tree = exp.Union(this=tree, expression=query, distinct=False)
        return combined(renderer, tree, self.outputs)

    def _not_null(self) -> Columns:
        result = [renamed_columns(b, self.outputs, b.input.not_null) for b in self.branches]
        return frozenset.intersection(*result)

    def _dependencies(self) -> Dependencies:
        if self.tag is None:
            return Dependencies()
        known = [b.input.dependencies.renamed(b.renamed(self.outputs)) for b in self.branches]
        common = [
            (item.determinant | {self.tag}, item.dependent)
            for dependencies in known
            for item in dependencies.items
            if all(other.imply(item.determinant, item.dependent) for other in known)
        ]
        return Dependencies.of(common)

    def _keys(self) -> Keys:
        across = frozenset(key for key in self.across if key <= set(self.outputs))
        if self.tag is None:
            return across
        result: Keys = frozenset({frozenset({self.tag})})
        for branch in self.branches:
            own = renamed_keys(branch, self.outputs)
            result = frozenset(key | other for key in result for other in own)
        return result | across


def _never_changes(below: Identified, column: Column) -> bool:
    """Return whether the column of a row never changes: it is constant or equal to an ID."""
    known = below.operator.dependencies
    return not (known.same(column) | {column}).isdisjoint(below.ids) or known.imply((), (column,))


def _same_type(column: Column, other: Column) -> bool:
    return column.type == other.type is not None and column.equality == other.equality


def _renamed(column: Column, symbols: Symbols) -> Column:
    return replace(column, symbol=symbols.fresh(column.symbol))


def _with_outputs(
    branch: Branch,
    number: int,
    branch_ids: Mapping[Column, Column],
    new: list[Column],
    tag: Column,
    symbols: Symbols,
) -> Branch:
    """Return the branch with a column for each new output: an ID of the branch, NULL, or its
    number.
    """
    if not new:
        return branch
    columns = list(branch.columns)
    items = [Item.kept(column) for column in branch.input.columns]
    for output in new:
        if output in branch_ids:
            columns.append(branch_ids[output])
            continue
        value = exp.Literal.number(number) if output == tag else _typed_null(output)
        columns.append(_renamed(output, symbols))
        items.append(Item(columns[-1], Scalar.of(value)))
    return Branch(Projection(branch.input, tuple(items)), tuple(columns))


def _typed_null(column: Column) -> Tree:
    if column.type is None:
        return exp.Null()
    return exp.Cast(this=exp.Null(), to=exp.DataType(this=exp.DType.USERDEFINED, kind=column.type))
