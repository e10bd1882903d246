"""Conditions between tables that equal columns make conditions on one table."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.algebra.columns import Column
from orchestrator.algebra.recognition.blocks import Block
from orchestrator.algebra.scalar import Scalar


def make_local(block: Block) -> None:
    """Rewrite each condition on several tables that a single table can check.

    >>> a, b, c, d = (Column(name, "integer", "integer_ops", exact=True) for name in "abcd")
    >>> from orchestrator.algebra.operators.scan import Scan, ScanColumn, Table
    >>> edges = [
    ...     Scan(Table(1, "", "e"), alias, (ScanColumn(x, 1, "x"), ScanColumn(y, 2, "y")))
    ...     for alias, x, y in (("p", a, b), ("q", c, d))
    ... ]
    >>> block = Block(edges, [Scalar.read("b = c", [b, c]), Scalar.read("a < c", [a, c])])
    >>> make_local(block)
    >>> block.conditions
    [Scalar(b = c), Scalar(a < b)]
    """
    equal = block.equal
    block.conditions = [_local(condition, block, equal) for condition in block.conditions]


def _local(condition: Scalar, block: Block, equal: list[set[Column]]) -> Scalar:
    if condition.subqueries or len(block.owners(condition)) < 2:
        return condition
    sides = condition.sides
    if sides is not None and all(side.as_column for side in sides):
        return condition
    for leaf in block.leaves:
        own = {column: _twin(column, leaf.columns, equal) for column in condition.references}
        if None not in own.values():
            return condition.substitute(
                {
                    c: Scalar.column(twin)
                    for c, twin in own.items()
                    if twin is not None and twin != c
                }
            )
    return condition


def _twin(column: Column, among: Iterable[Column], equal: list[set[Column]]) -> Column | None:
    """Return the column of a leaf that always looks the same as a column."""
    names = tuple(among)
    if column in names:
        return column
    members = next((members for members in equal if column in members), set())
    return next(
        (c for c in names if c in members and c.exact and column.exact and c.type == column.type),
        None,
    )
