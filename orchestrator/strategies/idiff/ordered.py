"""Maintain percentiles and modes: search among the stored values of a group and their counts.

The counts added up in the order of the values tell which value stands at a position, so a changed
group needs one look at its distinct values, and not at its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from orchestrator.algebra.analysis.decimal_scale import INTEGERS
from orchestrator.algebra.columns import Column
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.operators.base import Operator, SortKey
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.window import Window
from orchestrator.algebra.scalar import Scalar, filled
from orchestrator.engine.composer import Composer

_CONTINUOUS = {*INTEGERS, "real", "double precision"}
"""Types that percentile_cont takes as floats."""

_EXACT = {
    *INTEGERS,
    *("date", "time without time zone", "oid"),
    *("timestamp without time zone", "timestamp with time zone"),
}
"""Types of which equal values look the same, and which have min and max."""

_TYPES = {"percentile_cont": _CONTINUOUS, "percentile_disc": _EXACT, "mode": _EXACT}


@dataclass(frozen=True)
class OrderedAggregate:
    """An aggregate that shows a value by its place among the values of a group, or by its frequency."""

    aggregate: Aggregate
    argument: Scalar
    """The ordered values; the aggregate ignores NULL."""
    type: str
    """The type of the values."""
    fraction: str
    descending: bool

    def calls(self, value: Column, seen: _Seen, composer: Composer) -> list[Aggregate]:
        """Return the aggregates over counted values that `result` needs."""
        function = self.aggregate.function
        end, upto = "min", Scalar.column(seen.upto)
        if self.descending:
            # The rows up to a value from the other end.
            end, upto = "max", filled("t - u + n", t=seen.total, u=seen.upto, n=seen.rows)
        texts: dict[str, dict[str, Column | Scalar]] = {}
        if function == "mode":
            texts = {f"{end}(v) FILTER (WHERE n = m)": {"n": seen.rows, "m": seen.most}}
        elif function == "percentile_disc":
            place = f"greatest(ceil({self.fraction} * t::double precision), 1::double precision)"
            texts = {f"{end}(v) FILTER (WHERE u >= {place})": {"u": upto, "t": seen.total}}
        else:
            place = f"{self.fraction} * (t - 1)::double precision"
            for side in ("floor", "ceil"):
                text = f"{end}(v) FILTER (WHERE u > {side}({place}))"
                texts[text] = {"u": upto, "t": seen.total}
            texts[f"min({place} - floor({place}))"] = {"t": seen.total}
        return [
            Aggregate(
                composer.column(f"found_{self.aggregate.column.symbol}"),
                filled(text, **terms, **({"v": value} if "(v)" in text else {})),
            )
            for text, terms in texts.items()
        ]

    def result(self, calls: Sequence[Aggregate]) -> Scalar:
        """Return the value of the aggregate, given the results of `calls`."""
        columns = [call.column for call in calls]
        if len(columns) == 1:
            return Scalar.column(columns[0])
        low, high, part = columns
        return filled("idivm.percentile_between(l, h, p)", l=low, h=high, p=part)


@dataclass(frozen=True)
class _Seen:
    """For each value: its rows, those up to it in the order, those of the group, and the most of any value."""

    rows: Column
    upto: Column
    total: Column
    most: Column


def ordered_aggregate(aggregate: Aggregate, composer: Composer) -> OrderedAggregate | None:
    """Return how to find the result among counted values, or None if that is not possible."""
    types = _TYPES.get(aggregate.function)
    if types is None or aggregate.call.subqueries or len(aggregate.within) != 1:
        return None
    [(argument, descending)] = aggregate.within
    column = argument.as_column
    type_ = composer.types.get(column.symbol if column else f"{aggregate.column.symbol}()")
    if type_ is None or type_.domain or type_.name not in types:
        return None
    fraction = ""
    if aggregate.function != "mode":
        fraction = _constant(aggregate.arguments[0].tree)
        if not fraction:
            return None
    name = type_.name
    if aggregate.function == "percentile_cont":
        argument, name = filled("a::double precision", a=argument), "double precision"
    if aggregate.filter is not None:
        argument = filled("CASE WHEN c THEN a END", a=argument, c=aggregate.filter)
    return OrderedAggregate(aggregate, argument, name, fraction, descending)


def _constant(tree: Tree) -> str:
    """Return a constant fraction between 0 and 1 as SQL, or nothing for anything else."""
    while isinstance(tree, exp.Paren | exp.Cast):
        tree = tree.this
    if not isinstance(tree, exp.Literal) or not 0 <= float(tree.name) <= 1:
        return ""
    return f"{tree.name}::double precision"


def results(
    items: Sequence[OrderedAggregate],
    values: Operator,
    by: tuple[Column, ...],
    value: Column,
    rows: Column,
    composer: Composer,
) -> Operator:
    """Return groups with the results of aggregates, given the values of the groups and their counts."""
    seen = _Seen(rows, *(composer.column(name) for name in ("upto", "total", "most")))
    upto = Aggregate(seen.upto, filled("sum(n)", n=rows))
    whole = (
        Aggregate(seen.total, filled("sum(n)", n=rows)),
        Aggregate(seen.most, filled("max(n)", n=rows)),
    )
    placed = Window(Window(values, (upto,), by, (SortKey(value),)), whole, by)
    calls = {item: item.calls(value, seen, composer) for item in items}
    grouped = Grouping(placed, by, tuple(call for each in calls.values() for call in each))
    results = (Item(item.aggregate.column, item.result(calls[item])) for item in items)
    return Projection(grouped, (*map(Item.kept, by), *results))
