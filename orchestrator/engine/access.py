"""How the queries of a script reach their rows: loops over a diff (papers/idivm.txt, appendix A).

For each row of a diff, the rows that it joins are looked up in one table or stored result after the
other, by the columns that are known so far. This is what indexes are for, and what costs count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from sqlglot import exp

from orchestrator.algebra.analysis.flat import Flat, flattened
from orchestrator.algebra.columns import Column, in_order
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import Scalar, unwrapped
from orchestrator.algebra.traversal import walk
from orchestrator.deltascript.leaves import DiffScan, StateScan

Rows = Scan | StateScan


@dataclass(frozen=True)
class Lookup:
    """Rows of a table or a stored result, found by some of their columns; by none, all of them."""

    rows: Rows
    by: tuple[Column, ...]


Fanout = Callable[[Lookup], float]
"""How many rows a lookup finds on average."""


@dataclass(frozen=True)
class Loop:
    """Diffs, and what is looked up for each of their rows, in this order."""

    diffs: tuple[DiffScan, ...]
    lookups: tuple[Lookup, ...]
    conditions: tuple[Scalar, ...]
    """What the rows satisfy besides equalities of columns, which lookups go by."""
    equal: tuple[frozenset[Column], ...] = ()
    """Columns that the rows have equal."""


def loops(plan: Operator) -> tuple[Loop, ...]:
    """The loops of a query; each branch of a union is one of its own.

    >>> from orchestrator.algebra.examples import running_example
    >>> [str(one.rows.label) for loop in loops(running_example().root) for one in loop.lookups]
    ['parts', 'devices_parts', 'devices']
    """
    return tuple(_loops(plan, frozenset()))


def _loops(plan: Operator, given: frozenset[Column]) -> Iterator[Loop]:
    """The loops of a plan, some of whose columns are known for each row that is wanted."""
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
    for choice in product(*(_found(*each) for each in in_reach(flat, known))):
        yield Loop(
            tuple(diff for loop in choice for diff in loop.diffs),
            tuple(lookup for loop in choice for lookup in loop.lookups),
            (*own, *(condition for loop in choice for condition in loop.conditions)),
            (*equal, *(pair for loop in choice for pair in loop.equal)),
        )


def _equal_pairs(flat: Flat) -> Iterator[tuple[Column, Column]]:
    """Pairs of equal columns; an item of the product is equal to the column that it shows."""
    for condition in flat.conditions:
        if condition.sides is not None:
            left, right = (side.as_column for side in condition.sides)
            if left is not None and right is not None:
                yield left, right
    for item, scalar in flat.items.items():
        if (column := scalar.as_column) is not None and column != item:
            yield item, column


def in_reach(
    flat: Flat, given: Collection[Column] = (), fanout: Fanout | None = None
) -> Iterator[tuple[Operator, tuple[Column, ...]]]:
    """The atoms as a loop reaches them, each with the columns of it that are known by then.

    Diffs come first, then each time the atom of which most is known; of several, the one in which
    fewest rows are found.
    """

    def found(atom: Operator, by: frozenset[Column]) -> float:
        return fanout(Lookup(atom, tuple(by))) if fanout and isinstance(atom, Rows) else 0.0

    equal = list(_equalities(flat.conditions))
    known = set(given)
    diffs = [each for each in flat.atoms if _is_change(each)]
    left = [each for each in flat.atoms if not _is_change(each)]
    for diff in diffs:
        known = known | set(diff.columns)
        yield diff, ()
    weighed: dict[int, tuple[frozenset[Column], tuple[bool, int, float]]] = {}
    while left:
        known = _determined(equal, known)
        for atom in left:
            by = frozenset(known.intersection(atom.columns))
            if id(atom) not in weighed or weighed[id(atom)][0] != by:
                weighed[id(atom)] = by, (_is_unique(atom, by), len(by), -found(atom, by))
        atom = max(left, key=lambda item: weighed[id(item)][1])
        left = [each for each in left if each is not atom]
        yield atom, in_order(weighed[id(atom)][0], atom.columns)
        known = known | set(atom.columns)


def _is_change(atom: Operator) -> bool:
    """Return whether the rows of an atom come from diffs, in each branch if it is a union."""
    if isinstance(atom, UnionAll):
        return all(
            any(isinstance(leaf, DiffScan) for leaf in walk(child)) for child in atom.children
        )
    return isinstance(atom, DiffScan)


def _is_unique(atom: Operator, by: frozenset[Column]) -> bool:
    return any(key <= by for key in atom.keys)


def _found(atom: Operator, by: tuple[Column, ...]) -> list[Loop]:
    if isinstance(atom, DiffScan):
        return [Loop((atom,), (), ())]
    if isinstance(atom, Rows):
        return [Loop((), (Lookup(atom, by),), ())]
    if isinstance(atom, UnionAll):
        return list(_loops(atom, frozenset(by)))
    if len(atom.children) == 1:
        # It is evaluated whole, over rows that a diff below it may reach.
        return list(_loops(atom.children[0], frozenset()))
    # An operator through which nothing is looked up: all that is below it.
    below = [operator for operator in walk(atom) if not operator.children]
    return [
        Loop(
            tuple(item for item in below if isinstance(item, DiffScan)),
            tuple(Lookup(item, ()) for item in below if isinstance(item, Rows)),
            (),
        )
    ]


def _determined(equal: list[tuple[Column, frozenset[Column]]], known: set[Column]) -> set[Column]:
    """With the columns that equalities make known, wherever they are."""
    grew = True
    while grew:
        columns = {column for column, others in equal if others and others <= known}
        grew = not columns <= known
        known = known | columns
    return known


def known_by(plan: Operator, given: Collection[Column]) -> frozenset[Column]:
    """The columns of a plan that some columns of a diff below determine, also by equalities that take
    NULL for equal to NULL."""
    flat = flattened(plan, probing=True)
    known = _determined(list(_equalities(flat.conditions)), set(given))
    result = {c for c, scalar in flat.items.items() if scalar.references <= known}
    return plan.dependencies.closure(result)


def equal_to(column: Column, pairs: Collection[frozenset[Column]]) -> frozenset[Column]:
    """Return the columns that pairs of equal columns connect with a column, and the column."""
    result = frozenset({column})
    while grown := frozenset().union(*(pair for pair in pairs if pair & result)) - result:
        result |= grown
    return result


def _equalities(conditions: tuple[Scalar, ...]) -> Iterator[tuple[Column, frozenset[Column]]]:
    """Columns, and what is read by the expressions that they are equal to, or NULL with."""
    for condition in conditions:
        if (sides := condition.sides) is not None:
            for item, other in (sides, sides[::-1]):
                if (column := item.as_column) is not None:
                    yield column, other.references


def _is_equality(condition: Scalar) -> bool:
    tree = unwrapped(condition.tree)
    tree = unwrapped(tree.this) if isinstance(tree, exp.Or) else tree
    if not isinstance(tree, exp.EQ):
        return False
    return all(isinstance(unwrapped(side), exp.Column) for side in (tree.this, tree.expression))


def probes(found: Iterable[Loop]) -> Iterator[Lookup]:
    """What queries look up by known columns for the rows of a diff."""
    for loop in found:
        for lookup in loop.lookups if loop.diffs else ():
            if lookup.by:
                yield lookup
