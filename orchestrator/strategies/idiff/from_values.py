"""The first rows of groups with DISTINCT aggregates, computed from the stored values of their arguments.

PostgreSQL sorts all rows for `count(DISTINCT x)` and evaluates it in one process. The state that counts the
rows of each value of a group has done this work already, so the query of the groups reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.algebra.columns import Column
from orchestrator.algebra.copies import copied
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.scalar import Scalar, conjunction, filled
from orchestrator.deltascript.leaves import StateScan
from orchestrator.engine.composer import Composer
from orchestrator.strategies.idiff.added import COUNTED, AddedAggregate


def from_values(
    whole: Grouping,
    distinct: Sequence[AddedAggregate],
    values: Mapping[Scalar, tuple[StateScan, Column]],
    composer: Composer,
) -> Operator:
    """Return groups whose aggregates with DISTINCT are computed over stored values.

    `values` gives the state and its column with the values for each argument. If groups cannot be compared
    by a hash, the function returns them as they are.
    """
    by = whole.by
    if not distinct or not all(_is_hashed(column, whole, composer) for column in by):
        return whole
    computed = {part.column for item in distinct for part in item.parts}
    computed |= {item.aggregate.column for item in distinct}
    plan: Operator = Grouping(
        whole.input, by, tuple(a for a in whole.aggregates if a.column not in computed)
    )
    numbers: dict[Column, Scalar] = {}
    for argument in dict.fromkeys(item.argument for item in distinct):
        state, value = values[argument]
        calls = [
            Aggregate(part.column, filled(part.over, a=value))
            for item in distinct
            if item.argument == argument
            for part in item.parts
        ]
        grouped = Grouping(state, by, tuple(dict.fromkeys(calls)))
        part, became = copied(grouped, composer.symbols)
        condition = conjunction(_equal(c, became[c], whole) for c in by)
        plan = LeftJoin(plan, part, condition)
        # A group without a value has no row there.
        numbers |= {call.column: filled("coalesce(x, 0)", x=became[call.column]) for call in calls}
    items = {column: Item.kept(column) for column in whole.columns}
    items |= {column: Item(column, number) for column, number in numbers.items()}
    for item in distinct:
        column = item.aggregate.column
        items[column] = Item(column, item.value_of(numbers))
    return Projection(plan, tuple(items[column] for column in whole.columns))


def _is_hashed(column: Column, groups: Grouping, composer: Composer) -> bool:
    """Return whether PostgreSQL can hash the comparison of a column of groups, which may be NULL."""
    known = composer.types.get(column.symbol)
    return column in groups.not_null or (known is not None and known.name in COUNTED)


def _equal(column: Column, other: Column, groups: Grouping) -> Scalar:
    """Return the condition that a group is the same; NULL equals NULL within an array."""
    text = "x = y" if column in groups.not_null else "ARRAY[x] = ARRAY[y]"
    return filled(text, x=column, y=other)
