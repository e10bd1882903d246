"""Counts and sums behind the last changed row of a window: a change moves all of them by the same amount.

So a span ends with the last changed row, and one update adds the amount to the rows behind it. An insert
of v at place p into a partition with the running sums s₁, s₂, ... gives

    s′ᵢ = sᵢ  before p,      s′ᵢ = sᵢ + v  behind p.

A sum of no values is NULL. If a change takes values away, and no row before the span has a value, the
span ends with the partition, and likewise if a change adds or takes NaN. The scale of a numeric sum must
follow from declared types, because the sum of fewer rows might have a smaller scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.algebra.analysis.decimal_scale import INTEGERS
from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Aggregate
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.scalar import Scalar, disjunction, filled
from orchestrator.deltascript.leaves import DiffScan
from orchestrator.engine.composer import Composer
from orchestrator.engine.states import Upkeep
from orchestrator.strategies.idiff.running import Running

_ROWS = ("row_number", "rank", "count")
_ONE = Scalar.read("1")


@dataclass(frozen=True)
class Shift:
    """By how much the values of a function move behind the last changed row."""

    function: Column
    added: Scalar
    """What a row adds to the function of the rows behind it, or NULL."""
    amount: Column
    values: Column | None
    """How many more rows have a value, if the function is NULL without any."""
    may_be_nan: bool

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that describe the shift in a diff."""
        return (self.amount,) if self.values is None else (self.amount, self.values)

    def aggregates(self, net: Column) -> Iterator[Aggregate]:
        """Yield the aggregates that compute the columns from rows with net multiplicities."""
        if self.added == _ONE:
            yield Aggregate(self.amount, filled("sum(x)", x=net))
        else:
            added = filled("coalesce(sum(x * (y)), 0)", x=net, y=self.added)
            yield Aggregate(self.amount, added)
        if self.values is not None:
            count = filled(
                "coalesce(sum(x) FILTER (WHERE (y) IS NOT NULL), 0)", x=net, y=self.added
            )
            yield Aggregate(self.values, count)


def shifts_of(running: Running, composer: Composer) -> tuple[Shift, ...]:
    """Return the shift of each function, or nothing if a function has none."""
    functions = running.stored.functions
    if running.back or running.ahead or running.nullable:
        return ()
    found = [_shift(function, running, composer) for function in functions]
    known = tuple(shift for shift in found if shift is not None)
    return known if len(known) == len(functions) else ()


def _shift(function: Aggregate, running: Running, composer: Composer) -> Shift | None:
    column, amount = function.column, composer.fresh(function.column, "shift_")
    condition = function.filter
    if function.function in _ROWS:
        counted = _ONE
        tests = [filled("(x) IS NOT NULL", x=argument) for argument in function.arguments]
        for test in (*tests, condition) if condition is not None else tests:
            counted = filled("CASE WHEN c THEN x ELSE 0 END", c=test, x=counted)
        return Shift(column, counted, amount, None, False)
    if function.function != "sum":
        return None
    [argument] = function.arguments
    source = argument.as_column
    known = composer.types.get(source.symbol) if source is not None else None
    if known is None or known.domain or (known.name not in INTEGERS and known.scale is None):
        return None
    added, values = argument, composer.fresh(column, "values_")
    if condition is not None:
        added = filled("CASE WHEN c THEN x END", c=condition, x=argument)
    elif source in running.operator.input.not_null:
        return Shift(column, added, amount, None, known.name not in INTEGERS)
    return Shift(column, added, amount, values, known.name not in INTEGERS)


def needs_end(shifts: Iterable[Shift], before: Mapping[Column, Column]) -> Scalar | None:
    """Return the condition that a span must reach the end of its partition, if it may have to.

    `before` has the columns with the values of the row before the span.
    """
    conditions = [filled("x = 'NaN'", x=shift.amount) for shift in shifts if shift.may_be_nan]
    conditions += [
        filled("x < 0 AND y IS NULL", x=shift.values, y=before[shift.function])
        for shift in shifts
        if shift.values is not None
    ]
    return disjunction(conditions) if conditions else None


def shift_rows_behind(
    upkeep: Upkeep,
    running: Running,
    spans: DiffScan,
    partition: Mapping[Column, Column],
    last: Column,
    shifts: Sequence[Shift],
) -> None:
    """Add the step that moves the values of the rows behind each span."""
    state, key = upkeep.state, running.key
    columns = [column for shift in shifts for column in shift.columns]
    differ = disjunction([filled("x <> 0", x=column) for column in columns])
    items = [Item(old, Scalar.column(new)) for old, new in partition.items()]
    items += map(Item.kept, (last, *columns))
    behind: Operator = Projection(Selection(spans, differ), tuple(items))
    sets = []
    for shift in shifts:
        terms = {"s": upkeep.stored(shift.function), "a": shift.amount}
        value = filled("s + a", **terms)
        if shift.values is not None:
            value = filled(
                "CASE WHEN n > 0 THEN coalesce(s, 0) + a ELSE s + a END", **terms, n=shift.values
            )
        sets.append((shift.function, value))
    side = "<" if key.descending else ">"
    where = filled(f"x {side} y", x=upkeep.stored(key.column), y=last)
    upkeep.update(behind, running.operator.partition, sets, where, bounded=key.column)
    upkeep.composer.rewritten.add(state.role)
