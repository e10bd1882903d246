"""Maintain groups γ(R) and δ(R): add to the stored aggregates where this is exact, else recompute groups.

The rules of papers/idivm.txt: table 9 (sum), table 11 (count) and table 12 (avg) add, table 7
recomputes the affected groups. The paper leaves out three cases. A count of the rows tells when a group
appears or disappears. A count of the values that are not NULL tells when a sum is NULL. Counts by
scale give the scale of a numeric sum, which is the largest scale among its rows. A group has exactly
one change row, and its values are added to the stored ones. An aggregate that cannot be added to is
recomputed, only for the groups that changed.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.algebra.analysis.decimal_scale import INTEGERS
from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.predicates import never_null
from orchestrator.algebra.scalar import Scalar, disjunction, filled
from orchestrator.deltascript.leaves import StateScan
from orchestrator.engine.column_types import ColumnType
from orchestrator.engine.composer import Composer
from orchestrator.engine.diffs import Bag
from orchestrator.engine.distinguishable import look_alike
from orchestrator.engine.recompute_parts import again
from orchestrator.engine.representatives import Looks, compute_again, looks_of
from orchestrator.engine.states import Upkeep, store
from orchestrator.strategies.idiff.rules.base import bag
from orchestrator.strategies.idiff.rules.stored import maintain, not_added

_BOOLEAN = {"bool_and": ("NOT a", "= 0"), "every": ("NOT a", "= 0"), "bool_or": ("a", "> 0")}
"""Which rows count, and what their number must be."""

_VARIANCE = {
    **dict.fromkeys(("variance", "var_samp"), (1, "(n - 1)::numeric")),
    "var_pop": (0, "n::numeric"),
}
"""Up to how many rows there is none, and what n times the squared deviation is divided by."""

_ADDED = frozenset({"count", "sum", "avg"}) | _BOOLEAN.keys() | _VARIANCE.keys()


@dataclass(frozen=True)
class Part:
    """A number that is kept for each group, and grows by what the rows of the change add to it."""

    name: str
    """What it is called in the text of the value."""
    over: str
    """What it is of all rows, as an aggregate call in which `a` is the argument."""
    delta: str
    """What a change adds, as an aggregate call in which `s` is the sign."""
    column: Column


@dataclass(frozen=True)
class Kept:
    """An aggregate, what is kept for it, and how its value follows."""

    aggregate: Aggregate
    argument: Scalar
    parts: tuple[Part, ...]
    value: str
    """The value in terms of the parts."""

    def calls(self, but: Column) -> list[Aggregate]:
        """The parts, computed of all rows; `but` is there already."""
        return [
            Aggregate(p.column, filled(p.over, a=self.argument))
            for p in self.parts
            if p.column != but
        ]

    def deltas(self, sign: Column, but: Column) -> list[Aggregate]:
        """What a change adds to them."""
        return [
            Aggregate(p.column, filled(p.delta, a=self.argument, s=sign))
            for p in self.parts
            if p.column != but
        ]

    def worth(self, parts: dict[Column, Scalar]) -> Scalar:
        """The value, given the parts."""
        return filled(self.value, **{part.name: parts[part.column] for part in self.parts})


@maintain.register
def _(operator: Distinct, composer: Composer, role: str) -> StateScan:
    return maintain(Grouping(operator.input, operator.columns), composer, role)


@maintain.register
def _(operator: Grouping, composer: Composer, role: str) -> StateScan:
    composer.comparable(operator.by)
    changed = bag(operator.input, composer)
    rows = Aggregate(
        Column(composer.symbols.fresh("idivm_rows"), "bigint"), Scalar.read("count(*)")
    )
    not_null = operator.input.not_null
    kept = [_kept(one, rows.column, not_null, composer) for one in operator.aggregates]
    found = [one for one in kept if one is not None]
    coarse = look_alike(operator.by, composer.types)
    if len(found) < len(kept):
        state = store(role, operator, operator.by, composer)
        if changed is not None:
            again(Upkeep(state, composer), operator, changed, operator.by)
        return state
    calls = [call for one in found for call in one.calls(rows.column)]
    looks = looks_of(coarse, composer) if coarse else None
    if looks is not None:
        calls.append(looks.call)
    whole = Grouping(operator.input, operator.by, (*operator.aggregates, rows, *calls))
    state = store(role, whole, operator.by, composer)
    if changed is not None:
        _add(Upkeep(state, composer), whole, changed, rows.column, found, looks)
    return state


def _add(
    upkeep: Upkeep,
    whole: Grouping,
    changed: Bag,
    rows: Column,
    kept: list[Kept],
    looks: Looks | None,
) -> None:
    """Add the change of each group to what is stored of it."""
    by = whole.by
    grown = Aggregate(rows, filled("coalesce(sum(s), 0)::bigint", s=changed.sign))
    calls = [call for one in kept for call in one.deltas(changed.sign, rows)]
    ways = [("fewer", filled("x < 0", x=rows)), ("more", filled("x > 0", x=rows))] if by else []
    if looks is not None:
        calls += looks.deltas(changed.sign)
        # The delta of a group from which rows go may show one that is not there.
        ways[1] = ("more", filled("x > 0 AND r = 0", x=rows, r=looks.removed))
        ways.append(("doubtful", filled("r > 0", r=looks.removed)))
    grouped = Grouping(changed.plan, by, (grown, *calls))
    delta, *apart = upkeep.composer.assign_apart(
        f"{upkeep.state.role}_change", grouped, grouped.columns, ways
    )
    lost = looks.lost(upkeep, apart[2], rows) if looks is not None else None
    numbers = [rows, *(part.column for one in kept for part in one.parts)]
    numbers = list(dict.fromkeys([*numbers, *([looks.call.column] if looks is not None else [])]))
    added = {c: filled("x + y", x=upkeep.stored(c), y=c) for c in numbers}
    if lost is not None:
        upkeep.delete(lost, by)
    if by:
        upkeep.delete(apart[0], by, filled("x = 0", x=added[rows]))
    sets = [*added.items(), *((one.aggregate.column, one.worth(added)) for one in kept)]
    moved = disjunction(filled("x <> 0", x=column) for column in numbers)
    upkeep.update(delta, by, sets, moved)
    if lost is not None:
        compute_again(upkeep, whole, lost)
    if by:
        alone = {column: Scalar.column(column) for column in numbers}
        values = [Item(one.aggregate.column, one.worth(alone)) for one in kept]
        upkeep.insert(Projection(apart[1], (*map(Item.kept, (*by, *numbers)), *values)))


@not_added.register
def _(operator: Grouping, composer: Composer) -> frozenset[Column] | None:
    added = all(_is_added(one, composer) for one in operator.aggregates)
    return frozenset(operator.by) if added else None


def _is_added(aggregate: Aggregate, composer: Composer) -> bool:
    """Whether an aggregate is the sum of what its rows add to it."""
    function, arguments = aggregate.function, aggregate.arguments
    if aggregate.distinct or aggregate.ordered or aggregate.call.subqueries:
        return False
    if len(arguments) > 1 or function not in _ADDED:
        return False
    if function == "count" or function in _BOOLEAN:
        return True
    type_ = _type(arguments[0], aggregate, composer)
    if type_ is None or type_.name in INTEGERS:
        return type_ is not None
    return function not in _VARIANCE and type_.name.partition("(")[0] == "numeric"


def _kept(
    aggregate: Aggregate, rows: Column, not_null: frozenset[Column], composer: Composer
) -> Kept | None:
    """How an aggregate is kept by arithmetic, if it can be; the count of `rows` is kept anyway."""
    if not _is_added(aggregate, composer):
        return None
    function, arguments = aggregate.function, aggregate.arguments

    def part(name: str, over: str, delta: str, type_: str = "numeric") -> Part:
        symbol = composer.symbols.fresh(f"idivm_{name}_{aggregate.column.symbol}")
        return Part(name, over, delta, Column(symbol, type_))

    argument = arguments[0] if arguments else Scalar.read("true")
    if aggregate.filter is not None:
        argument = filled("CASE WHEN c THEN a END", a=argument, c=aggregate.filter)
    if never_null(argument, not_null):
        count = Part("n", "count(*)", f"{_grown('s')}::bigint", rows)
    else:
        count = part("n", "count(a)", f"{_grown('s', 'a IS DISTINCT FROM NULL')}::bigint", "bigint")
    if function == "count":
        return Kept(aggregate, argument, (count,), "n")
    if function in _BOOLEAN:
        what, test = _BOOLEAN[function]
        some = part("some", f"count(*) FILTER (WHERE {what})", f"{_grown('s', what)}::bigint")
        return Kept(aggregate, argument, (count, some), f"CASE WHEN n > 0 THEN some {test} END")
    type_ = _type(arguments[0], aggregate, composer)
    assert type_ is not None
    if type_.name in INTEGERS:
        total = part("sum", "coalesce(sum(a), 0)", _difference("true"))
        if function in _VARIANCE:
            squares = "a::numeric * a::numeric"
            square = part("squares", _grown(squares), _grown(f"s * {squares}"))
            rest = "n::numeric * squares - sum::numeric * sum::numeric"
            least, divisor = _VARIANCE[function]
            value = (
                f"CASE WHEN n <= {least} THEN NULL::numeric WHEN {rest} <= 0 THEN 0::numeric"
                f" ELSE ({rest}) / (n::numeric * {divisor}) END"
            )
            return Kept(aggregate, argument, (count, total, square), value)
        value = "sum::numeric / n::numeric" if function == "avg" else "sum"
        return Kept(aggregate, argument, (count, total), f"CASE WHEN n > 0 THEN {value} END")
    if type_.scale is not None:
        # A sum of such numbers shows as many places. They are never infinite.
        number = "a <> 'NaN'::numeric"
        total = part("sum", _grown("a", number), _difference(number))
        nans = "a = 'NaN'::numeric"
        nan = part(
            "nan", f"count(*) FILTER (WHERE {nans})", f"{_grown('s', nans)}::bigint", "bigint"
        )
        exact = "sum / n::numeric" if function == "avg" else "sum"
        value = (
            f"CASE WHEN n = 0 THEN NULL::numeric WHEN nan = 0 THEN {exact} ELSE 'NaN'::numeric END"
        )
        return Kept(aggregate, argument, (count, total, nan), value)
    finite = "a < 'Infinity'::numeric AND a > '-Infinity'::numeric"
    total = part("sum", _grown("a", finite), _difference(finite))
    # How many rows have which scale: a number to the base 10^12, whose digits these counts are.
    scale = "('1e' || (12 * scale(a)))::numeric"
    scales = part("scales", _grown(scale), _grown(f"s * {scale}"))
    # How many are NaN, Infinity, -Infinity, in the same way.
    special = (
        "CASE a WHEN 'NaN'::numeric THEN 1e24::numeric WHEN 'Infinity'::numeric THEN 1e12::numeric"
        " WHEN '-Infinity'::numeric THEN 1::numeric END"
    )
    specials = part("specials", _grown(special), _grown(f"s * {special}"))
    exact = "round(sum, (length(trunc(scales)::text) - 1) / 12)"
    if function == "avg":
        exact = f"{exact} / n::numeric"
    value = (
        f"CASE WHEN n = 0 THEN NULL::numeric WHEN specials = 0 THEN {exact}"
        " WHEN specials >= 1e24::numeric"
        " OR specials > 1e12::numeric AND mod(specials, 1e12::numeric) > 0 THEN 'NaN'::numeric"
        " WHEN specials >= 1e12::numeric THEN 'Infinity'::numeric ELSE '-Infinity'::numeric END"
    )
    return Kept(aggregate, argument, (count, total, scales, specials), value)


def _type(argument: Scalar, aggregate: Aggregate, composer: Composer) -> ColumnType | None:
    column = argument.as_column
    if column is not None and column.symbol in composer.types:
        return composer.types[column.symbol]
    return composer.types.get(f"{aggregate.column.symbol}()")


def _grown(what: str, where: str = "true") -> str:
    return f"coalesce(sum({what}) FILTER (WHERE {where}), 0)"


def _difference(where: str) -> str:
    return f"{_grown('a', f's > 0 AND {where}')} - {_grown('a', f's < 0 AND {where}')}"
