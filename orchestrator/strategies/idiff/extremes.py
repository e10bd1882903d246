"""Maintain `min` and `max`: compare a change with the stored value.

Let S be the stored minimum of a group, I the least inserted value and D the least deleted value. If D is
greater than S or I, the new minimum is the lesser of S and I, because no row with that value was deleted.
Otherwise the minimum may be gone, and the group is read again.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.algebra.column_type import ColumnType
from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.group import Aggregate
from orchestrator.algebra.scalar import Scalar, filled
from orchestrator.engine.composer import Composer

_BETTER = {"min": ("least", "<"), "max": ("greatest", ">")}
"""The function that picks the better of two values, and the operator by which one is better."""


@dataclass(frozen=True)
class Extreme:
    """A minimum or maximum, and the columns of a change that may affect it."""

    column: Column
    function: str
    argument: Scalar
    inserted: Column
    """In a change of groups: the extreme of the inserted values."""
    deleted: Column
    """The extreme of the deleted values."""

    def deltas(self, sign: Column) -> list[Aggregate]:
        """Return the aggregates over a change that fill these columns."""
        return [
            Aggregate(
                column,
                filled(f"{self.function}(a) FILTER (WHERE s {side} 0)", a=self.argument, s=sign),
            )
            for column, side in ((self.inserted, ">"), (self.deleted, "<"))
        ]

    def value_after(self, stored: Scalar) -> Scalar:
        """Return the value after the change, unless `doubt` holds."""
        choice, _ = _BETTER[self.function]
        return filled(f"{choice}(x, y)", x=stored, y=self.inserted)

    def improves(self, stored: Scalar) -> Scalar:
        """Return whether the change brings a better value than the stored one."""
        _, better = _BETTER[self.function]
        text = f"y IS NOT NULL AND (x IS NULL OR y {better} x)"
        return filled(text, x=stored, y=self.inserted)

    def doubt(self, stored: Scalar) -> Scalar:
        """Return whether the stored extreme may be gone; never NULL."""
        choice, better = _BETTER[self.function]
        text = f"coalesce(g {better}= {choice}(x, y), g IS NOT NULL)"
        return filled(text, g=self.deleted, x=stored, y=self.inserted)


def extreme_of(
    aggregate: Aggregate, type_: ColumnType | None, composer: Composer
) -> Extreme | None:
    """Return how to maintain an aggregate by comparison, or None if it is no comparable extreme."""
    function, arguments = aggregate.function, aggregate.arguments
    if function not in _BETTER or aggregate.ordered or aggregate.call.subqueries:
        return None
    if type_ is None or not type_.comparable or type_.domain:
        return None
    [argument] = arguments
    if aggregate.filter is not None:
        argument = filled("CASE WHEN c THEN a END", a=argument, c=aggregate.filter)
    inserted, deleted = (
        Column(composer.symbols.fresh(f"{word}_{aggregate.column.symbol}"))
        for word in ("came", "gone")
    )
    return Extreme(aggregate.column, function, argument, inserted, deleted)
