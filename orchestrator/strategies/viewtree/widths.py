"""Fractional edge covers: how large a join can be, as an exponent of the size of the data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache

from orchestrator.strategies.viewtree.hypergraph import Variables


def cover(variables: Variables, schemas: Iterable[Variables]) -> Fraction:
    """ρ*: return the least total weight of atoms that covers each of some variables with at least 1.

    >>> edges = [frozenset("AB"), frozenset("BC"), frozenset("AC")]
    >>> cover(frozenset("ABC"), edges), cover(frozenset("AB"), edges), cover(frozenset(), edges)
    (Fraction(3, 2), Fraction(1, 1), Fraction(0, 1))
    """
    parts = {schema & variables for schema in schemas} - {frozenset[str]()}
    largest = frozenset(part for part in parts if not any(part < other for other in parts))
    return _cover(variables, largest)


@lru_cache(maxsize=4096)
def _cover(variables: Variables, schemas: frozenset[Variables]) -> Fraction:
    if not variables:
        return Fraction(0)
    if variables in schemas:
        return Fraction(1)
    uncovered = variables - frozenset[str]().union(*schemas)
    if uncovered:
        raise ValueError(f"no atom has {', '.join(sorted(uncovered))}")
    # The dual is in standard form: the most weight on variables with at most 1 in each atom.
    order = sorted(variables)
    rows = [[Fraction(v in schema) for v in order] for schema in sorted(schemas, key=sorted)]
    return packing(rows)


def packing(rows: Sequence[Sequence[Fraction]]) -> Fraction:
    """Return the maximum of Σx such that each row times x is at most 1 and x is not negative.

    The simplex method on exact fractions, with Bland's rule, which does not cycle.
    """
    height, width = len(rows), len(rows[0])
    table = [
        [*row, *(Fraction(i == j) for j in range(height)), Fraction(1)]
        for i, row in enumerate(rows)
    ]
    goal = [Fraction(-1)] * width + [Fraction(0)] * (height + 1)
    basis = [width + i for i in range(height)]
    while True:
        entering = next((j for j, value in enumerate(goal[:-1]) if value < 0), None)
        if entering is None:
            return goal[-1]
        ratios = [
            (row[-1] / row[entering], basis[i], i)
            for i, row in enumerate(table)
            if row[entering] > 0
        ]
        leaving = min(ratios)[2]
        pivot = table[leaving][entering]
        table[leaving] = [value / pivot for value in table[leaving]]
        for row in (*(row for i, row in enumerate(table) if i != leaving), goal):
            factor = row[entering]
            if factor:
                row[:] = [a - factor * b for a, b in zip(row, table[leaving], strict=True)]
        basis[leaving] = entering
