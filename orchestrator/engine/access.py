"""How the queries of a script reach their rows: loops over a diff (papers/idivm.txt, appendix A).

For each row of a diff, the joined rows are looked up in one table or stored result after the other,
by the columns that are known so far. Indexes serve these lookups, and cost estimates count them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import product

from sqlglot import exp

from orchestrator.algebra.analysis.flat import Flat, flattened
from orchestrator.algebra.columns import Column, in_order
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.evaluation import Evaluation
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import Scalar, unwrapped
from orchestrator.algebra.traversal import walk
from orchestrator.deltascript.leaves import DiffScan, StateScan

Rows = Scan | StateScan


class Use(Enum):
    """What a loop does with the rows that a lookup finds."""

    JOIN = "join"
    """It joins them."""
    EVALUATE = "evaluate"
    """It evaluates an expression over them for each of its own rows."""
    EVALUATE_ONCE = "evaluate once"
    """It evaluates an expression over them that is the same for all of its own rows."""


@dataclass(frozen=True)
class Lookup:
    """A lookup of rows of a table or a stored result by some columns; without columns, it reads all
    rows.
    """

    rows: Rows
    by: tuple[Column, ...]
    use: Use = Use.JOIN


Fanout = Callable[[Lookup], float]
"""A function that returns how many rows a lookup finds on average."""


@dataclass(frozen=True)
class Loop:
    """Diffs, and the lookups for each of their rows, in this order."""

    diffs: tuple[DiffScan, ...]
    lookups: tuple[Lookup, ...]
    conditions: tuple[Scalar, ...]
    """The conditions on the rows other than equalities of columns, which lookups use."""
    equal: tuple[frozenset[Column], ...] = ()
    """Sets of columns that are equal in the rows."""


def loops(plan: Operator) -> tuple[Loop, ...]:
    """Return the loops of a query; each branch of a union has a separate loop.

    >>> from orchestrator.algebra.examples import running_example
    >>> [lookup.rows.label for loop in loops(running_example().root) for lookup in loop.lookups]
    ['parts', 'devices_parts', 'devices']
    """
    return tuple(_loops(plan, frozenset()))


def _loops(plan: Operator, given: frozenset[Column]) -> Iterator[Loop]:
    """Yield the loops of a plan if some of its columns are known for each requested row."""
    if isinstance(plan, UnionAll):
        for branch in plan.branches:
            renamed = tuple(branch.renamed(plan.outputs))
            known = {old for old, new in renamed if new in given}
            for loop in _loops(branch.input, frozenset(known)):
                yield replace(loop, equal=(*loop.equal, *map(frozenset, renamed)))
        return
    flat = flattened(plan, probing=True)
    known = {
        column
        for item in given
        if item in flat.items and (column := flat.items[item].as_column) is not None
    }
    own = [condition for condition in flat.conditions if not _is_equality(condition)]
    equal = [frozenset(pair) for pair in _equal_pairs(flat)]
    for choice in product(*(_atom_loops(*each) for each in loop_order(flat, known))):
        yield Loop(
            tuple(diff for loop in choice for diff in loop.diffs),
            tuple(lookup for loop in choice for lookup in loop.lookups),
            (*own, *(condition for loop in choice for condition in loop.conditions)),
            (*equal, *(pair for loop in choice for pair in loop.equal)),
        )


def _equal_pairs(flat: Flat) -> Iterator[tuple[Column, Column]]:
    """Yield pairs of equal columns; an output of the product equals the column that it shows."""
    for condition in flat.conditions:
        if condition.sides is not None:
            left, right = (side.as_column for side in condition.sides)
            if left is not None and right is not None:
                yield left, right
    for item, scalar in flat.items.items():
        if (column := scalar.as_column) is not None and column != item:
            yield item, column


def loop_order(
    flat: Flat, given: Collection[Column] = (), fanout: Fanout | None = None
) -> Iterator[tuple[Operator, tuple[Column, ...]]]:
    """Yield the atoms in the order in which a loop reaches them, with their columns known at that
    point.

    Diffs come first. Then follows each time the atom with the most known columns, and among several
    such atoms the one in which the fewest rows are found.
    """

    def rows_found(atom: Operator, by: frozenset[Column]) -> float:
        return fanout(Lookup(atom, tuple(by))) if fanout and isinstance(atom, Rows) else 0.0

    equal = list(_equalities(flat.conditions))
    known = set(given)
    diffs = [atom for atom in flat.atoms if _is_change(atom)]
    remaining = [atom for atom in flat.atoms if not _is_change(atom)]
    for diff in diffs:
        known = known | set(diff.columns)
        yield diff, ()
    ranks: dict[int, tuple[frozenset[Column], tuple[bool, int, float]]] = {}
    while remaining:
        known = _determined(equal, known)
        for atom in remaining:
            by = frozenset(known.intersection(atom.columns))
            if id(atom) not in ranks or ranks[id(atom)][0] != by:
                ranks[id(atom)] = by, (_is_unique(atom, by), len(by), -rows_found(atom, by))
        atom = max(remaining, key=lambda item: ranks[id(item)][1])
        remaining = [other for other in remaining if other is not atom]
        yield atom, in_order(ranks[id(atom)][0], atom.columns)
        known = known | set(atom.columns)


def _is_change(atom: Operator) -> bool:
    """Return whether the rows of an atom come from diffs; for a union, in each of its branches."""
    if isinstance(atom, UnionAll):
        return all(
            any(isinstance(leaf, DiffScan) for leaf in walk(child)) for child in atom.children
        )
    return isinstance(atom, DiffScan)


def _is_unique(atom: Operator, by: frozenset[Column]) -> bool:
    return any(key <= by for key in atom.keys)


def _atom_loops(atom: Operator, by: tuple[Column, ...]) -> list[Loop]:
    if isinstance(atom, DiffScan):
        return [Loop((atom,), (), ())]
    if isinstance(atom, Rows):
        return [Loop((), (Lookup(atom, by),), ())]
    if isinstance(atom, UnionAll):
        return list(_loops(atom, frozenset(by)))
    if isinstance(atom, Evaluation) and atom.single:
        return list(_evaluation_loops(atom, frozenset(by)))
    if isinstance(atom, Limit) and atom.indexed:
        rows = [leaf for leaf in walk(atom) if isinstance(leaf, StateScan)]
        return [Loop((), tuple(Lookup(leaf, leaf.ids) for leaf in rows), ())]
    if len(atom.children) == 1:
        # The operator is evaluated completely, over rows that a diff below it may reach.
        return list(_loops(atom.children[0], frozenset()))
    # No lookups reach through this operator: it reads everything below.
    below = [operator for operator in walk(atom) if not operator.children]
    return [
        Loop(
            tuple(leaf for leaf in below if isinstance(leaf, DiffScan)),
            tuple(Lookup(leaf, ()) for leaf in below if isinstance(leaf, Rows)),
            (),
        )
    ]


def _evaluation_loops(evaluation: Evaluation, by: frozenset[Column]) -> Iterator[Loop]:
    """Yield the loops of the rows that an expression with subqueries is evaluated for."""
    is_correlated = any(
        subquery.correlated
        for operator in walk(evaluation.plan)
        for scalar in operator.scalars
        for subquery in scalar.subqueries
    )
    use = Use.EVALUATE if is_correlated else Use.EVALUATE_ONCE
    read = [
        Lookup(leaf, (), use)
        for part in evaluation.watched
        for leaf in walk(part.plan)
        if isinstance(leaf, Rows)
    ]
    for loop in _loops(evaluation.input, by.intersection(evaluation.input.columns)):
        yield replace(loop, lookups=(*loop.lookups, *read))


def _determined(equal: list[tuple[Column, frozenset[Column]]], known: set[Column]) -> set[Column]:
    """Return known columns together with all columns that equalities determine from them."""
    grew = True
    while grew:
        columns = {column for column, others in equal if others and others <= known}
        grew = not columns <= known
        known = known | columns
    return known


def known_by(plan: Operator, given: Collection[Column]) -> frozenset[Column]:
    """Return the columns of a plan that some columns of a diff determine.

    Equalities in which NULL equals NULL also count.
    """
    flat = flattened(plan, probing=True)
    known = _determined(list(_equalities(flat.conditions)), set(given))
    result = {c for c, scalar in flat.items.items() if scalar.references <= known}
    return plan.dependencies.closure(result)


def equal_to(column: Column, pairs: Collection[frozenset[Column]]) -> frozenset[Column]:
    """Return the columns that pairs of equal columns connect with a column, and the column."""
    return equal_to_any([column], pairs)


def equal_to_any(
    columns: Iterable[Column], pairs: Collection[frozenset[Column]]
) -> frozenset[Column]:
    """Return the columns that pairs of equal columns connect with some columns, and these columns."""
    result = frozenset(columns)
    while grown := frozenset().union(*(pair for pair in pairs if pair & result)) - result:
        result |= grown
    return result


def _equalities(conditions: tuple[Scalar, ...]) -> Iterator[tuple[Column, frozenset[Column]]]:
    """Yield columns with the columns that the expressions equal to them read; NULL may equal NULL."""
    for condition in conditions:
        if (sides := condition.sides) is not None:
            for side, other in (sides, sides[::-1]):
                if (column := side.as_column) is not None:
                    yield column, other.references


def _is_equality(condition: Scalar) -> bool:
    tree = unwrapped(condition.tree)
    tree = unwrapped(tree.this) if isinstance(tree, exp.Or) else tree
    if not isinstance(tree, exp.EQ):
        return False
    return all(isinstance(unwrapped(side), exp.Column) for side in (tree.this, tree.expression))


def probes(alternatives: Iterable[Loop]) -> Iterator[Lookup]:
    """Yield the lookups by known columns for the rows of a diff."""
    for loop in alternatives:
        for lookup in loop.lookups if loop.diffs else ():
            if lookup.by:
                yield lookup
