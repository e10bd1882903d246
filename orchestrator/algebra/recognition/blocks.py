"""Blocks: joins as a set of leaves, conditions, and computed columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.semijoin import Semijoin
from orchestrator.algebra.operators.sort import Sort
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.predicates import equal_columns, facts
from orchestrator.algebra.scalar import TRUE, Scalar, conjunction
from orchestrator.algebra.unsupported import NotModelledError


@dataclass(frozen=True)
class Lookup:
    """The right side of a left join, and the condition on both sides."""

    rows: Operator
    condition: Scalar

    @property
    def columns(self) -> frozenset[Column]:
        """The columns of the right side."""
        return frozenset(self.rows.columns)


@dataclass
class Block:
    """A join: its leaves, its conditions and its computed columns, all over columns of leaves."""

    leaves: list[Operator] = field(default_factory=list)
    """Scans of tables, unions of them, and both with computed columns."""
    conditions: list[Scalar] = field(default_factory=list)
    defined: dict[Column, Scalar] = field(default_factory=dict)
    lookups: list[Lookup] = field(default_factory=list)
    """Left joins around the join; each of its rows has at most one partner."""

    @property
    def owner(self) -> dict[Column, int]:
        """The number of the leaf of each column."""
        return {column: n for n, leaf in enumerate(self.leaves) for column in leaf.columns}

    def owners(self, scalar: Scalar) -> set[int]:
        """Return the numbers of the leaves that an expression reads."""
        owner = self.owner
        if not scalar.references <= owner.keys() or scalar.subqueries:
            raise NotModelledError("an expression reads more than its tables", str(scalar))
        return {owner[column] for column in scalar.references}

    @property
    def equal(self) -> list[set[Column]]:
        """The classes of columns that the conditions make equal."""
        return equal_columns(self.conditions)

    @property
    def not_null(self) -> frozenset[Column]:
        """The columns that are never NULL in a row of the join."""
        inputs = list(self.owner)
        by_conditions = (facts(condition, inputs).not_null for condition in self.conditions)
        return frozenset[Column]().union(*(leaf.not_null for leaf in self.leaves), *by_conditions)

    def substitute(self, replacements: dict[Column, Scalar]) -> None:
        """Replace columns that no leaf has any more; they stay visible as computed columns."""
        self.conditions = [condition.substitute(replacements) for condition in self.conditions]
        self.defined = {c: scalar.substitute(replacements) for c, scalar in self.defined.items()}
        self.defined |= replacements
        self.lookups = [
            Lookup(item.rows, item.condition.substitute(replacements)) for item in self.lookups
        ]

    def rows(self, wanted: Iterable[Column]) -> Operator:
        """Return the join as a plan that shows some columns."""
        joined, *others = self.leaves
        for leaf in others:
            joined = Join(joined, leaf, TRUE)
        condition = conjunction(self.conditions)
        if condition != TRUE:
            joined = Selection(joined, condition)
        columns = tuple(dict.fromkeys(wanted))
        items = tuple(Item(c, self.defined.get(c, Scalar.column(c))) for c in columns)
        return Projection(joined, items)


def flattened(rows: Operator) -> Block:
    """Return a join as a block. An outer join whose padded rows a condition excludes is a join."""
    block = Block()
    outer: list[Lookup] = []
    _collect(rows, block, outer)
    while True:
        read = frozenset[Column]().union(*(condition.references for condition in block.conditions))
        needed = next((item for item in outer if item.columns & read), None)
        if needed is None:
            break
        outer.remove(needed)
        if not any(
            facts(condition, condition.references).not_null & needed.columns
            for condition in block.conditions
        ):
            raise NotModelledError("a condition keeps rows without a partner", needed.rows.label)
        _collect(needed.rows, block, outer)
        _add(block, needed.condition)
    for item in outer:
        if not has_one_partner(item.rows, item.condition):
            raise NotModelledError("a left join may find several rows", item.rows.label)
    block.lookups = outer
    return block


def _collect(rows: Operator, block: Block, outer: list[Lookup]) -> None:
    """Add the leaves, conditions and computed columns of a plan to a block."""
    if isinstance(rows, Scan) or is_linear(rows):
        block.leaves.append(rows)
    elif isinstance(rows, Selection):
        _collect(rows.input, block, outer)
        _add(block, rows.condition)
    elif isinstance(rows, Join) or (
        isinstance(rows, Semijoin)
        and not isinstance(rows, Antisemijoin)
        and has_one_partner(rows.right, rows.condition)
    ):
        _collect(rows.left, block, outer)
        _collect(rows.right, block, outer)
        _add(block, rows.condition)
    elif isinstance(rows, LeftJoin):
        _collect(rows.left, block, outer)
        outer.append(Lookup(rows.right, rows.condition.substitute(block.defined)))
    elif isinstance(rows, Projection):
        _collect(rows.input, block, outer)
        for item in rows.items:
            if not item.is_unchanged:
                block.defined[item.column] = item.scalar.substitute(block.defined)
    elif isinstance(rows, Sort) or (isinstance(rows, Distinct) and rows.input.keys):
        _collect(rows.children[0], block, outer)
    else:
        raise NotModelledError("only joins and selections fit a view tree", rows.label)


def _add(block: Block, condition: Scalar) -> None:
    block.conditions += [
        conjunct.substitute(block.defined) for conjunct in condition.conjuncts if conjunct != TRUE
    ]


def is_linear(rows: Operator) -> bool:
    """Return whether a plan is a union of selections and projections of tables, such as a graph's edges
    in both directions, or has the rows of such a plan that satisfy conditions on the time.
    """
    if isinstance(rows, Projection) and isinstance(rows.input, Join):
        of_rows = set(rows.columns) <= set(rows.input.left.columns)
        return of_rows and all(item.is_unchanged for item in rows.items) and _is_part(rows.input)
    return isinstance(rows, UnionAll) and rows.tag is None and all(map(_is_part, rows.children))


def _is_part(rows: Operator) -> bool:
    if any(scalar.subqueries for scalar in rows.scalars):
        return False
    if isinstance(rows, Selection | Projection | Sort):
        return _is_part(rows.children[0])
    if isinstance(rows, Join):
        return isinstance(rows.right, Scan) and rows.right.is_clock and _is_part(rows.left)
    return isinstance(rows, Scan) or is_linear(rows)


def has_one_partner(rows: Operator, condition: Scalar) -> bool:
    """Return whether a row of another side has at most one partner that satisfies a condition."""
    if condition.subqueries:
        return False
    own = frozenset(rows.columns)
    known = facts(condition, condition.references | own)
    fixed = {c for pair in known.equal if len(own & set(pair)) == 1 for c in pair if c in own}
    fixed |= facts(condition, own).constant
    return any(key <= fixed for key in rows.keys)
