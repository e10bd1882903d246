"""Aggregates that are maintained by addition: the stored parts, their deltas, and the resulting value.

The rules of papers/idivm.txt: table 9 (sum), table 11 (count) and table 12 (avg). The paper leaves out
two cases. A count of the values that are not NULL tells when a sum is NULL. Counts by scale give the
scale of a numeric sum, which is the largest scale among its rows. A float is added up as the decimal
number that it is written as, which is exact, so nothing drifts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from orchestrator.algebra.analysis.decimal_scale import INTEGERS, digit_of_scale
from orchestrator.algebra.column_type import ColumnType
from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.group import Aggregate
from orchestrator.algebra.predicates import never_null
from orchestrator.algebra.scalar import Scalar, filled
from orchestrator.engine.composer import Composer

_BOOLEAN = {"bool_and": ("NOT a", "= 0"), "every": ("NOT a", "= 0"), "bool_or": ("a", "> 0")}
"""For each function, the condition on counted rows, and the test on their number."""

_VARIANCE = {
    **dict.fromkeys(("variance", "var_samp"), (1, "(n - 1)::numeric")),
    "var_pop": (0, "n::numeric"),
}
"""The number of rows up to which the variance is NULL, and the divisor of n times the squared deviations."""

_DEVIATION = {"stddev": "variance", "stddev_samp": "var_samp", "stddev_pop": "var_pop"}
"""Square roots of variances."""

_FLOATS = frozenset({"real", "double precision"})

_SPREADS = _VARIANCE.keys() | _DEVIATION.keys()

_ADDED = frozenset({"sum", "avg"}) | _SPREADS

COUNTED = frozenset(
    {
        *("smallint", "integer", "bigint", "numeric", "real", "double precision", "boolean"),
        *("date", "time without time zone", "uuid", "oid", "text", "character varying"),
        *("timestamp without time zone", "timestamp with time zone"),
    }
)
"""Types whose distinct values are stored with counts; texts are stored as digests, which fit in an index."""

TEXTS = frozenset({"text", "character varying"})


@dataclass(frozen=True)
class Part:
    """A number stored for each group; a change adds to it."""

    name: str
    """The name of the part in the text of the value."""
    over: str
    """The aggregate call over all rows, in which `a` is the argument."""
    delta: str
    """The aggregate call over a change, in which `s` is the sign."""
    column: Column


@dataclass(frozen=True)
class AddedAggregate:
    """An aggregate, the parts stored for it, and the expression for its value."""

    aggregate: Aggregate
    argument: Scalar
    parts: tuple[Part, ...]
    value: str
    """The value as an expression over the names of the parts."""
    distinct: bool = False
    """Whether equal arguments count only once."""

    def calls(self, but: Column) -> list[Aggregate]:
        """Return the calls that compute the parts over all rows; `but` is stored already."""
        return [
            Aggregate(
                p.column, filled(_distinct(p.over) if self.distinct else p.over, a=self.argument)
            )
            for p in self.parts
            if p.column != but
        ]

    def deltas(self, sign: Column, but: Column, argument: Scalar | None = None) -> list[Aggregate]:
        """Return what a change adds to the parts; its rows may hold the `argument` in a column."""
        return [
            Aggregate(p.column, filled(p.delta, a=argument or self.argument, s=sign))
            for p in self.parts
            if p.column != but
        ]

    def value_of(self, parts: dict[Column, Scalar]) -> Scalar:
        """Return the value of the aggregate, given the values of its parts."""
        return filled(self.value, **{part.name: parts[part.column] for part in self.parts})


def is_added(aggregate: Aggregate, composer: Composer) -> bool:
    """Return whether an aggregate is a sum over its rows, or over its distinct arguments."""
    function, arguments = aggregate.function, aggregate.arguments
    if aggregate.ordered or aggregate.call.subqueries or len(arguments) > 1:
        return False
    type_ = argument_type(aggregate, composer)
    if aggregate.distinct and function not in _BOOLEAN:
        return _adds_values(function, type_)
    if function == "count" or function in _BOOLEAN:
        return True
    if type_ is None or function not in _ADDED:
        return False
    if type_.name in _FLOATS:
        # PostgreSQL adds single-precision floats in single precision.
        return function != "sum" or type_.name != "real"
    return type_.name in INTEGERS or type_.name.partition("(")[0] == "numeric"


def _adds_values(function: str, type_: ColumnType | None) -> bool:
    if type_ is None or not type_.comparable or type_.name not in COUNTED:
        return False
    if function == "count":
        return type_.name not in TEXTS or type_.plain
    # If equal values show different scales, it is undefined which of them DISTINCT keeps.
    return function in ("sum", "avg") and (type_.name in INTEGERS or type_.scale is not None)


def _distinct(over: str) -> str:
    """Return an aggregate call that counts equal arguments once.

    >>> _distinct("coalesce(sum(a) FILTER (WHERE a <> 'NaN'::numeric), 0)")
    "coalesce(sum(DISTINCT a) FILTER (WHERE a <> 'NaN'::numeric), 0)"
    >>> _distinct("count(*) FILTER (WHERE a > 0)")
    'count(DISTINCT a) FILTER (WHERE a > 0)'
    """
    return (
        over.replace("(*)", "(a)")
        .replace("count(a)", "count(DISTINCT a)")
        .replace("sum(a)", "sum(DISTINCT a)")
    )


def added_aggregate(
    aggregate: Aggregate, rows: Column, not_null: Collection[Column], composer: Composer
) -> AddedAggregate:
    """Return how an aggregate is maintained by addition; the count of `rows` is stored anyway."""
    function, arguments = aggregate.function, aggregate.arguments
    distinct = aggregate.distinct and function not in _BOOLEAN

    def part(name: str, over: str, delta: str, type_: str = "numeric") -> Part:
        symbol = composer.symbols.fresh(f"idivm_{name}_{aggregate.column.symbol}")
        return Part(name, over, delta, Column(symbol, type_))

    argument = arguments[0] if arguments else Scalar.read("true")
    if aggregate.filter is not None:
        argument = filled("CASE WHEN c THEN a END", a=argument, c=aggregate.filter)
    if never_null(argument, not_null) and not distinct:
        count = Part("n", "count(*)", f"{_filtered_sum('s')}::bigint", rows)
    else:
        count = part(
            "n", "count(a)", f"{_filtered_sum('s', 'a IS DISTINCT FROM NULL')}::bigint", "bigint"
        )
    if function == "count":
        return AddedAggregate(aggregate, argument, (count,), "n", distinct)
    if function in _BOOLEAN:
        counted, test = _BOOLEAN[function]
        some = part(
            "some",
            f"count(*) FILTER (WHERE {counted})",
            f"{_filtered_sum('s', counted)}::bigint",
        )
        return AddedAggregate(
            aggregate, argument, (count, some), f"CASE WHEN n > 0 THEN some {test} END"
        )
    type_ = argument_type(aggregate, composer)
    assert type_ is not None
    if type_.name in _FLOATS:
        return _of_floats(aggregate, argument, count, part)
    if type_.name in INTEGERS:
        total = part("sum", "coalesce(sum(a), 0)", _difference("true"))
        if function in _SPREADS:
            square = _squares("a::numeric", "true", part)
            value = _spread(function, "false", "n::numeric * squares - sum::numeric * sum::numeric")
            return AddedAggregate(aggregate, argument, (count, total, square), value)
        value = "sum::numeric / n::numeric" if function == "avg" else "sum"
        value = f"CASE WHEN n > 0 THEN {value} END"
        return AddedAggregate(aggregate, argument, (count, total), value, distinct)
    if type_.scale is not None:
        # A sum of such numbers has the same scale. They are never infinite.
        number = "a <> 'NaN'::numeric"
        total = part("sum", _filtered_sum("a", number), _difference(number))
        nans = "a = 'NaN'::numeric"
        nan = part(
            "nan",
            f"count(*) FILTER (WHERE {nans})",
            f"{_filtered_sum('s', nans)}::bigint",
            "bigint",
        )
        if function in _SPREADS:
            square = _squares("a", number, part)
            value = _spread(function, "nan > 0", "n::numeric * squares - sum * sum")
            return AddedAggregate(aggregate, argument, (count, total, nan, square), value)
        exact = "sum / n::numeric" if function == "avg" else "sum"
        value = (
            f"CASE WHEN n = 0 THEN NULL::numeric WHEN nan = 0 THEN {exact} ELSE 'NaN'::numeric END"
        )
        return AddedAggregate(aggregate, argument, (count, total, nan), value, distinct)
    finite = "a < 'Infinity'::numeric AND a > '-Infinity'::numeric"
    total = part("sum", _filtered_sum("a", finite), _difference(finite))
    # The number of rows with each scale, as the digits of one number to the base 10^12.
    scale = digit_of_scale("a")
    scales = part("scales", _filtered_sum(scale), _filtered_sum(f"s * {scale}"))
    specials = _specials("numeric", part)
    largest_scale = "(length(trunc(scales)::text) - 1) / 12"
    if function in _SPREADS:
        square = _squares("a", finite, part)
        rest = f"round(n::numeric * squares - sum * sum, 2 * ({largest_scale}))"
        value = _spread(function, "specials > 0", rest)
        return AddedAggregate(aggregate, argument, (count, total, scales, specials, square), value)
    exact = f"round(sum, {largest_scale})"
    if function == "avg":
        exact = f"{exact} / n::numeric"
    value = (
        f"CASE WHEN n = 0 THEN NULL::numeric WHEN specials = 0 THEN {exact}"
        " WHEN specials >= 1e24::numeric"
        " OR specials > 1e12::numeric AND mod(specials, 1e12::numeric) > 0 THEN 'NaN'::numeric"
        " WHEN specials >= 1e12::numeric THEN 'Infinity'::numeric ELSE '-Infinity'::numeric END"
    )
    return AddedAggregate(aggregate, argument, (count, total, scales, specials), value)


def _squares(number: str, where: str, part: Callable[[str, str, str], Part]) -> Part:
    """Return the sum of the squares of the rows that meet a condition."""
    square = f"{number} * {number}"
    return part("squares", _filtered_sum(square, where), _filtered_sum(f"s * {square}", where))


def _spread(function: str, special: str, rest: str) -> str:
    """Return a variance or its root as a numeric, given n times the sum of squared deviations.

    PostgreSQL divides and rounds in the same way. It returns NaN if a `special` number is among the rows.
    """
    least, divisor = _VARIANCE[_DEVIATION.get(function, function)]
    exact = f"({rest}) / (n::numeric * {divisor})"
    if function in _DEVIATION:
        exact = f"idivm.square_root({exact})"
    return (
        f"CASE WHEN n <= {least} THEN NULL::numeric WHEN {special} THEN 'NaN'::numeric"
        f" WHEN {rest} <= 0 THEN 0::numeric ELSE {exact} END"
    )


def _specials(type_: str, part: Callable[[str, str, str], Part]) -> Part:
    """Return the numbers of NaN, Infinity and -Infinity, as digits to the base 10^12. NaN is the greatest number."""
    special = (
        f"CASE a WHEN 'NaN'::{type_} THEN 1e24::numeric"
        f" WHEN 'Infinity'::{type_} THEN 1e12::numeric ELSE 1::numeric END"
    )
    special_rows = f"a >= 'Infinity'::{type_} OR a <= '-Infinity'::{type_}"
    return part(
        "specials",
        _filtered_sum(special, special_rows),
        _filtered_sum(f"s * {special}", special_rows),
    )


def _of_floats(
    aggregate: Aggregate, argument: Scalar, count: Part, part: Callable[[str, str, str], Part]
) -> AddedAggregate:
    """Return how sums, averages and variances of floats are maintained: as exact decimal sums."""
    function = aggregate.function
    number = "(a::double precision)::text::numeric"
    finite = "a < 'Infinity'::double precision AND a > '-Infinity'::double precision"
    total = part("sum", _filtered_sum(number, finite), _filtered_sum(f"s * {number}", finite))
    specials = _specials("double precision", part)
    parts = (count, total, specials)
    if function in ("sum", "avg"):
        exact = "sum::double precision" + (" / n" if function == "avg" else "")
        value = (
            f"CASE WHEN n = 0 THEN NULL::double precision WHEN specials = 0 THEN {exact}"
            f" ELSE ({_SPECIAL})::double precision END"
        )
        return AddedAggregate(aggregate, argument, parts, value)
    square = _squares(number, finite, part)
    least, divisor = _VARIANCE[_DEVIATION.get(function, function)]
    rest = "n::numeric * squares - sum * sum"
    # No float has more digits after the decimal point.
    exact = f"round(({rest}) / (n::numeric * {divisor}), 323)::double precision"
    if function in _DEVIATION:
        exact = f"sqrt({exact})"
    value = (
        f"CASE WHEN n <= {least} THEN NULL::double precision"
        " WHEN specials > 0 THEN 'NaN'::double precision"
        f" WHEN {rest} <= 0 THEN 0::double precision ELSE {exact} END"
    )
    return AddedAggregate(aggregate, argument, (*parts, square), value)


_SPECIAL = (
    "CASE WHEN specials >= 1e24::numeric"
    " OR specials > 1e12::numeric AND mod(specials, 1e12::numeric) > 0 THEN 'NaN'"
    " WHEN specials >= 1e12::numeric THEN 'Infinity' ELSE '-Infinity' END"
)
"""The sum of numbers that are not all finite, given their counts."""


def argument_type(aggregate: Aggregate, composer: Composer) -> ColumnType | None:
    """Return the type of an aggregate's first argument, or None if it is unknown."""
    column = aggregate.arguments[0].as_column if aggregate.arguments else None
    if column is not None and column.symbol in composer.types:
        return composer.types[column.symbol]
    return composer.types.get(f"{aggregate.column.symbol}()")


def _filtered_sum(summand: str, where: str = "true") -> str:
    return f"coalesce(sum({summand}) FILTER (WHERE {where}), 0)"


def _difference(where: str) -> str:
    return (
        f"{_filtered_sum('a', f's > 0 AND {where}')} - {_filtered_sum('a', f's < 0 AND {where}')}"
    )
