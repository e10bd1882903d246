"""Small plans and conditions that rules use."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.scalar import Scalar, conjunction, filled


def projected(plan: Operator, columns: Iterable[Column]) -> Operator:
    """Return a plan reduced to some columns."""
    wanted = tuple(dict.fromkeys(columns))
    if plan.columns == wanted:
        return plan
    return Projection(plan, tuple(map(Item.kept, wanted)))


def renamed(plan: Operator, pairs: Iterable[tuple[Column, Column]]) -> Operator:
    """Return a plan with renamed columns, given pairs of old and new columns."""
    return Projection(plan, tuple(Item(new, Scalar.column(old)) for old, new in pairs))


def same(pairs: Iterable[tuple[Column, Column]], not_null: frozenset[Column]) -> Scalar:
    """Return the condition that pairs of columns are equal, where NULL equals NULL.

    The second column of each pair is stored. The condition is written so that an index on it can be
    used, which IS NOT DISTINCT FROM would prevent.

    >>> old, price = Column("old"), Column("price")
    >>> same([(old, price)], frozenset({price}))
    Scalar(price = old)
    >>> same([(old, price)], frozenset())
    Scalar(((price = old) OR ((price IS NULL) AND (old IS NULL))))
    """
    nullable = "((stored = diff) OR ((stored IS NULL) AND (diff IS NULL)))"
    return conjunction(
        filled("stored = diff" if stored in not_null else nullable, stored=stored, diff=diff)
        for diff, stored in pairs
    )
