"""R ∪ S: bag union, the rows of all branches.

ID(R ∪ S) = ID(R) ∪ ID(S) ∪ {b}, where b numbers the branch that a row came from. An ID that only
one branch has is NULL in the rows of the others. So is one that another branch shows beside what changes:
table 1 of papers/idivm.txt takes the branches for alike, and an ID never changes.
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
        outputs = list(self.outputs)
        ids: list[Column] = []
        places: list[dict[Column, Column]] = []
        for branch, below in zip(self.branches, inputs, strict=True):
            # An ID that the branch does not show takes a column that another branch added for one
            # of the same type, or a new one.
            free = [column for column in outputs if column not in (*self.outputs, self.tag)]
            place = {}
            for column in below.ids:
                shown_as_id = self._shown_as_id(branch, column, inputs)
                if shown_as_id is not None:
                    ids.append(shown_as_id)
                    continue
                fitting = [item for item in free if _alike(item, column)]
                added = fitting[0] if fitting else _renamed(column, symbols)
                if fitting:
                    free.remove(added)
                else:
                    outputs.append(added)
                place[added] = column
                ids.append(added)
            places.append(place)
        tag = self.tag
        if tag is None:
            tag = Column(symbols.fresh("b"), "integer", "integer_ops", exact=True)
            outputs.append(tag)
        new = outputs[len(self.outputs) :]
        branches = [
            _widened(replace(branch, input=below.operator), number, place, new, tag, symbols)
            for number, (branch, below, place) in enumerate(
                zip(self.branches, inputs, places, strict=True)
            )
        ]
        union_all = UnionAll(tuple(branches), tuple(outputs), tag)
        return Identified(union_all, tuple(dict.fromkeys((*ids, tag))))

    def _shown_as_id(
        self, branch: Branch, column: Column, inputs: tuple[Identified, ...]
    ) -> Column | None:
        """The output in which a branch shows an ID, if what others show there never changes either."""
        for place, output in enumerate(self.outputs):
            if branch.columns[place] == column and all(
                _never_changes(below, other.columns[place])
                for other, below in zip(self.branches, inputs, strict=True)
            ):
                return output
        return None

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """UNION ALL."""
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
        items = [
            (item.determinant | {self.tag}, item.dependent)
            for each in known
            for item in each.items
            if all(other.imply(item.determinant, item.dependent) for other in known)
        ]
        return Dependencies.of(items)

    def _keys(self) -> Keys:
        if self.tag is None:
            return frozenset()
        result: Keys = frozenset({frozenset({self.tag})})
        for branch in self.branches:
            own = renamed_keys(branch, self.outputs)
            result = frozenset(item | other for item in result for other in own)
        return result


def _never_changes(below: Identified, column: Column) -> bool:
    """Whether a column is the same as long as its row is there: a constant, or equal to an ID."""
    known = below.operator.dependencies
    return not (known.same(column) | {column}).isdisjoint(below.ids) or known.imply((), (column,))


def _alike(column: Column, other: Column) -> bool:
    return column.type == other.type is not None and column.equality == other.equality


def _renamed(column: Column, symbols: Symbols) -> Column:
    return replace(column, symbol=symbols.fresh(column.symbol))


def _widened(
    branch: Branch,
    number: int,
    place: Mapping[Column, Column],
    new: list[Column],
    tag: Column,
    symbols: Symbols,
) -> Branch:
    """The branch with a column for each new output: an ID of its own, NULL, or its number."""
    if not new:
        return branch
    columns = list(branch.columns)
    items = [Item.kept(column) for column in branch.input.columns]
    for output in new:
        if output in place:
            columns.append(place[output])
            continue
        value = exp.Literal.number(number) if output == tag else _null(output)
        columns.append(_renamed(output, symbols))
        items.append(Item(columns[-1], Scalar.of(value)))
    return Branch(Projection(branch.input, tuple(items)), tuple(columns))


def _null(column: Column) -> Tree:
    if column.type is None:
        return exp.Null()
    return exp.Cast(this=exp.Null(), to=exp.DataType(this=exp.DType.USERDEFINED, kind=column.type))
