"""Conditions that two images of a row differ, to the bit."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from psycopg.sql import SQL, Composable, Composed

from orchestrator.deltascript.plan import SourceColumn

Side = Callable[[SourceColumn], Composable]
"""A function from a column to its value in the image of one side."""


def differ(columns: Iterable[SourceColumn], old: Side, new: Side) -> list[Composed]:
    """Return conditions of which at least one is true if two images differ in some columns.

    Values that are equal by `=` may look different, and some types have no such operator. Such
    columns are compared as records. This comparison is expensive, so it comes last.

    >>> exact = SourceColumn(1, "day", False, "date", "exact")
    >>> shown = SourceColumn(2, "price", False, "numeric", "coarse")
    >>> text, cost = SourceColumn(3, "doc", False, "json"), SourceColumn(4, "cost", False, "numeric(9,2)", "coarse")
    >>> old, new = (lambda column, side=side: SQL(f"{side}.{column.name}") for side in "on")
    >>> for condition in differ([exact, text, shown, cost], old, new):
    ...     print(condition.as_string(None))
    o.day IS DISTINCT FROM n.day
    o.price IS DISTINCT FROM n.price
    scale(o.price) IS DISTINCT FROM scale(n.price)
    o.cost IS DISTINCT FROM n.cost
    record_image_ne(ROW(o.doc), ROW(n.doc))
    """
    result = []
    by_image = []
    for column in columns:
        is_numeric = column.plain_type.startswith("numeric") and not column.plain_type.endswith(
            "[]"
        )
        if column.equality == "exact" or (is_numeric and "(" in column.plain_type):
            result.append(_distinct(old(column), new(column)))
        elif is_numeric:
            # Besides its value, a numeric has a decimal scale, unless the type declares it.
            scales = (SQL("scale({})").format(side(column)) for side in (old, new))
            result += [_distinct(old(column), new(column)), _distinct(*scales)]
        else:
            by_image.append(column)
    if by_image:
        # To the bit; `<>` of rows would compare column by column with `=`. This is the operator `*<>`,
        # which a dump writes without the cast of its operands to `record`, and so cannot restore.
        rows = (SQL("ROW({})").format(SQL(", ").join(map(side, by_image))) for side in (old, new))
        result.append(SQL("record_image_ne({}, {})").format(*rows))
    return result


def _distinct(old: Composable, new: Composable) -> Composed:
    return SQL("{} IS DISTINCT FROM {}").format(old, new)
