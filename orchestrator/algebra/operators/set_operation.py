"""Common parts of union, intersection and difference, whose inputs are matched column by column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from sqlglot import exp

from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dependencies import Columns, Dependencies, Keys
from orchestrator.algebra.dialect import Tree, identifier, reference
from orchestrator.algebra.operators.base import Identified, Operator
from orchestrator.algebra.rendering import Block, Renderer
from orchestrator.algebra.unsupported import NotModelledError

Self = TypeVar("Self", bound="TwoBranches")


@dataclass(frozen=True)
class Branch:
    """An input, and which of its columns correspond to the output columns, in order."""

    input: Operator
    columns: tuple[Column, ...]

    def renamed(self, outputs: tuple[Column, ...]) -> tuple[tuple[Column, Column], ...]:
        """Return the pairs of input and output columns."""
        return tuple(zip(self.columns, outputs, strict=True))


@dataclass(frozen=True)
class TwoBranches(Operator):
    """INTERSECT and EXCEPT, with or without ALL."""

    left: Branch
    right: Branch
    outputs: tuple[Column, ...]
    all: bool = False

    @property
    def children(self) -> tuple[Operator, ...]:
        """Both inputs."""
        return (self.left.input, self.right.input)

    def with_children(self: Self, children: tuple[Operator, ...]) -> Self:
        """Return the operator over other inputs."""
        left, right = children
        return replace(
            self, left=replace(self.left, input=left), right=replace(self.right, input=right)
        )

    @property
    def columns(self) -> tuple[Column, ...]:
        """The output columns."""
        return self.outputs

    @property
    def mentions(self) -> Columns:
        """The input columns."""
        return frozenset(self.left.columns + self.right.columns)

    @property
    def label(self) -> str:
        """The symbol and the columns."""
        names = " ".join(map(str, self.outputs))
        return f"{self.symbol}{' all' if self.all else ''} → {names}"

    def identified(self, inputs: tuple[Identified, ...], symbols: Symbols) -> Identified:
        """Return ID = all columns."""
        if self.all:
            raise NotModelledError("which of equal rows remain is not determined", self.label)
        left, right = inputs
        return Identified(self.with_children((left.operator, right.operator)), self.outputs)

    def render(self, renderer: Renderer, outer: Mapping[Column, Tree]) -> Block:
        """Render as INTERSECT or EXCEPT."""
        kind = exp.Intersect if self.symbol == "∩" else exp.Except
        queries = [branch_query(renderer, b, outer) for b in (self.left, self.right)]
        tree = kind(this=queries[0], expression=queries[1], distinct=not self.all)
        return combined(renderer, tree, self.outputs)

    def _dependencies(self) -> Dependencies:
        return self.left.input.dependencies.renamed(self.left.renamed(self.outputs))

    def _keys(self) -> Keys:
        whole = frozenset() if self.all else frozenset({frozenset(self.outputs)})
        return renamed_keys(self.left, self.outputs) | whole


def branch_query(renderer: Renderer, branch: Branch, outer: Mapping[Column, Tree]) -> Tree:
    """Return a branch as a query that can be an operand of UNION, INTERSECT or EXCEPT."""
    query = renderer.query(branch.input, outer, branch.columns)
    bare = not (query.args.get("order") or query.args.get("limit") or query.args.get("offset"))
    return query if bare else exp.Subquery(this=query)


def combined(renderer: Renderer, tree: Tree, outputs: tuple[Column, ...]) -> Block:
    """Return a set operation as a derived table that names its columns."""
    alias = renderer.symbols.fresh("q")
    names = [identifier(column.symbol) for column in outputs]
    item = exp.Subquery(this=tree, alias=exp.TableAlias(this=identifier(alias), columns=names))
    return Block((item,), {column: reference(column.symbol, alias) for column in outputs})


def renamed_keys(branch: Branch, outputs: tuple[Column, ...]) -> Keys:
    """Return the keys of a branch in terms of the output columns."""
    names = dict(reversed(branch.renamed(outputs)))
    return frozenset(
        frozenset(names[column] for column in key)
        for key in branch.input.keys
        if key <= names.keys()
    )


def renamed_columns(branch: Branch, outputs: tuple[Column, ...], columns: Columns) -> Columns:
    """Return the output columns that correspond to some columns of a branch."""
    return frozenset(new for old, new in branch.renamed(outputs) if old in columns)
