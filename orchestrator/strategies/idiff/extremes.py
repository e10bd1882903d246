"""`min` and `max`, which follow single changes: a change is compared with the stored value.

Let S be the stored minimum of a group, I the least value that comes and D the least that goes. If D is
beyond S or beyond I, the new minimum is the lesser of S and I: no row with that value goes. Otherwise
the minimum may have gone, and the group is read again.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.algebra.column_type import ColumnType
from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.group import Aggregate
from orchestrator.algebra.scalar import Scalar, filled
from orchestrator.engine.composer import Composer

_BETTER = {"min": ("least", "<"), "max": ("greatest", ">")}
"""What chooses between two values, and which value is chosen over another."""


@dataclass(frozen=True)
class Extreme:
    """A minimum or maximum, and what a change says of it."""

    column: Column
    function: str
    argument: Scalar
    came: Column
    """In a change of groups: the extreme of the values that come."""
    gone: Column
    """The extreme of the values that go."""

    def deltas(self, sign: Column) -> list[Aggregate]:
        """Return what the change of a group says."""
        return [
            Aggregate(
                column,
                filled(f"{self.function}(a) FILTER (WHERE s {side} 0)", a=self.argument, s=sign),
            )
            for column, side in ((self.came, ">"), (self.gone, "<"))
        ]

    def worth(self, stored: Scalar) -> Scalar:
        """Return the value after the change, unless it is in doubt."""
        choice, _ = _BETTER[self.function]
        return filled(f"{choice}(x, y)", x=stored, y=self.came)

    def moves(self, stored: Scalar) -> Scalar:
        """Return whether the change brings a better value than the stored one."""
        _, better = _BETTER[self.function]
        text = f"y IS NOT NULL AND (x IS NULL OR y {better} x)"
        return filled(text, x=stored, y=self.came)

    def doubt(self, stored: Scalar) -> Scalar:
        """Return whether the extreme may have gone; never NULL."""
        choice, better = _BETTER[self.function]
        text = f"coalesce(g {better}= {choice}(x, y), g IS NOT NULL)"
        return filled(text, g=self.gone, x=stored, y=self.came)


def extreme_of(
    aggregate: Aggregate, type_: ColumnType | None, composer: Composer
) -> Extreme | None:
    """Return how an aggregate is compared with its stored value, if it is one that can be."""
    function, arguments = aggregate.function, aggregate.arguments
    if function not in _BETTER or aggregate.ordered or aggregate.call.subqueries:
        return None
    if type_ is None or not type_.comparable or type_.domain:
        return None
    [argument] = arguments
    if aggregate.filter is not None:
        argument = filled("CASE WHEN c THEN a END", a=argument, c=aggregate.filter)
    came, gone = (
        Column(composer.symbols.fresh(f"{word}_{aggregate.column.symbol}"))
        for word in ("came", "gone")
    )
    return Extreme(aggregate.column, function, argument, came, gone)
