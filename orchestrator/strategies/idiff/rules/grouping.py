"""γ(R) and δ(R): groups kept by arithmetic where an aggregate allows, else computed again.

The blocking rules of papers/idivm.txt (tables 7 and 8), with what they leave out: groups that come
and go, by a count of their rows; sums over NULLs alone, by a count of the others; and the scale of
a numeric sum, which is the largest among its rows. A group has exactly one row of change, whose
parts are added to what is stored. An aggregate that is not the sum of its rows' parts is computed
again for the groups that changed, and for these alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.algebra.columns import Column
from orchestrator.algebra.dialect import reference, write
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.scalar import Scalar
from orchestrator.deltascript.leaves import StateScan
from orchestrator.strategies.idiff.composer import Composer, same
from orchestrator.strategies.idiff.diffs import Bag, shown
from orchestrator.strategies.idiff.rules.base import bag
from orchestrator.strategies.idiff.rules.stored import maintain
from orchestrator.strategies.problem import ColumnType

INTEGERS = ("smallint", "integer", "bigint")


@dataclass(frozen=True)
class Part:
    """A number that is kept for each group, and grows by what the rows of the change add to it."""

    column: Column
    over: str
    """What it is of all rows, as an aggregate call in which `a` is the argument."""
    delta: str
    """What a change adds, as an aggregate call in which `s` is the sign."""


@dataclass(frozen=True)
class Kept:
    """An aggregate, what is kept for it, and how its value follows."""

    aggregate: Aggregate
    argument: Scalar
    parts: tuple[Part, ...]
    value: str
    """The value in terms of the parts' symbols; `$` stands for a part's place."""


@maintain.register
def _(operator: Distinct, composer: Composer, role: str) -> StateScan | None:
    return maintain(Grouping(operator.input, operator.columns), composer, role)


@maintain.register
def _(operator: Grouping, composer: Composer, role: str) -> StateScan | None:
    composer.comparable(operator.by)
    changed = bag(operator.input, composer)
    rows = Column(composer.symbols.fresh("idivm_rows"), "bigint")
    kept = [_kept(aggregate, composer) for aggregate in operator.aggregates]
    if all(kept):
        found = [one for one in kept if one is not None]
        parts = [part for one in found for part in one.parts]
        calls = [
            _call(composer, one, part.column, part.over) for one in found for part in one.parts
        ]
        counted = Aggregate(rows, Scalar.read("count(*)"))
        whole = Grouping(operator.input, operator.by, (*operator.aggregates, counted, *calls))
        state = composer.store(role, whole, operator.by)
        if changed is not None:
            _add(composer, operator, state, changed, rows, found, parts)
        return state
    state = composer.store(role, operator, operator.by)
    if changed is not None:
        _again(composer, operator, state, changed)
    return state


def _add(
    composer: Composer,
    operator: Grouping,
    state: StateScan,
    changed: Bag,
    rows: Column,
    kept: list[Kept],
    parts: list[Part],
) -> None:
    """Adds the change of each group to what is stored of it."""
    sign = changed.sign
    s = Column("s")
    grown = Scalar.read("coalesce(sum(s), 0)::bigint", [s]).substitute({s: Scalar.column(sign)})
    calls = [
        _call(composer, one, part.column, part.delta, sign) for one in kept for part in one.parts
    ]
    grouped = Grouping(changed.plan, operator.by, (Aggregate(rows, grown), *calls))
    delta = composer.assign(f"{state.role}_change", grouped, grouped.columns)

    def added(column: Column) -> str:
        return f"{state.text(column, 't')} + {_text(column, 'd')}"

    if operator.by:
        composer.delete(state, delta, operator.by, f"{added(rows)} = 0")
    sets = [(rows, added(rows))]
    for one in kept:
        sets += [(part.column, added(part.column)) for part in one.parts]
        sets.append((one.aggregate.column, _value(one, [added(p.column) for p in one.parts])))
    moved = [f"{_text(part.column, 'd')} <> 0" for part in parts]
    composer.update(
        state, delta, operator.by, sets, " OR ".join([f"{_text(rows, 'd')} <> 0", *moved])
    )
    if operator.by:
        items = [Item.kept(column) for column in (*operator.by, rows, *(p.column for p in parts))]
        for one in kept:
            columns = [part.column for part in one.parts]
            value = Scalar.read(_value(one, [_text(column) for column in columns]), columns)
            items.append(Item(one.aggregate.column, value))
        come = Selection(delta, Scalar.read(f"{_text(rows)} > 0", [rows]))
        composer.insert(state, Projection(come, tuple(items)))


def _again(composer: Composer, operator: Grouping, state: StateScan, changed: Bag) -> None:
    """Computes the changed groups again."""
    if not operator.by:
        fresh = composer.assign(f"{state.role}_after", operator, operator.columns)
        composer.update_all(state, fresh, ())
        return
    groups = composer.assign("groups", Distinct(shown(changed.plan, operator.by)), operator.by)
    rows = shown(composer.identify(groups, operator.input, operator.by), operator.input.columns)
    again = Grouping(rows, operator.by, operator.aggregates)
    fresh = composer.assign(f"{state.role}_after", again, operator.columns)
    renamed = {column: composer.fresh(column) for column in operator.by}
    other = Projection(fresh, tuple(Item(new, Scalar.column(old)) for old, new in renamed.items()))
    gone = Antisemijoin(
        groups, other, same([(new, old) for old, new in renamed.items()], operator.input.not_null)
    )
    composer.delete(state, gone, operator.by)
    if operator.aggregates:
        composer.update_all(state, fresh, operator.by)
    composer.insert(state, fresh)


def _kept(aggregate: Aggregate, composer: Composer) -> Kept | None:
    """How an aggregate is kept by arithmetic, if it can be."""
    if aggregate.distinct or aggregate.ordered or aggregate.call.subqueries:
        return None
    function, arguments = aggregate.function, aggregate.arguments
    symbol = aggregate.column.symbol

    def part(name: str, over: str, delta: str, type_: str) -> Part:
        made = Column(composer.symbols.fresh(f"idivm_{name}_{symbol}"), type_)
        return Part(made, over, delta)

    if function == "count" and len(arguments) <= 1:
        argument = arguments[0] if arguments else Scalar.read("true")
        argument = _filtered(argument, aggregate.filter)
        return Kept(
            aggregate,
            argument,
            (part("n", "count(a)", _counted("a IS NOT NULL"), "bigint"),),
            "{0}",
        )
    if function not in ("sum", "avg") or len(arguments) != 1:
        return None
    type_ = _type(arguments[0], aggregate, composer)
    if type_ is None or (
        type_.name not in (*INTEGERS, "numeric") and not type_.name.startswith("numeric(")
    ):
        return None
    argument = _filtered(arguments[0], aggregate.filter)
    count = part("n", "count(a)", _counted("a IS NOT NULL"), "bigint")
    if type_.name in INTEGERS:
        total = part("sum", "coalesce(sum(a), 0)", _difference("a"), "numeric")
        value = "CASE WHEN {0} > 0 THEN {1} END"
        if function == "avg":
            value = "CASE WHEN {0} > 0 THEN {1}::numeric / {0}::numeric END"
        return Kept(aggregate, argument, (count, total), value)
    finite = "a < 'Infinity'::numeric AND a > '-Infinity'::numeric"
    total = part(
        "sum", f"coalesce(sum(a) FILTER (WHERE {finite}), 0)", _difference("a", finite), "numeric"
    )
    # How many rows have which scale: a number to the base 10^12, whose digits these counts are.
    scales = part(
        "scales",
        "coalesce(sum(('1e' || (12 * scale(a)))::numeric), 0)",
        "coalesce(sum(s * ('1e' || (12 * scale(a)))::numeric), 0)",
        "numeric",
    )
    # How many are NaN, Infinity, -Infinity, in the same way.
    special = (
        "CASE a WHEN 'NaN'::numeric THEN 1e24::numeric WHEN 'Infinity'::numeric THEN 1e12::numeric"
        " WHEN '-Infinity'::numeric THEN 1::numeric END"
    )
    specials = part(
        "specials", f"coalesce(sum({special}), 0)", f"coalesce(sum(s * {special}), 0)", "numeric"
    )
    exact = "round({1}, (length(trunc({2})::text) - 1) / 12)"
    if function == "avg":
        exact = f"{exact} / {{0}}::numeric"
    value = (
        "CASE WHEN {0} = 0 THEN NULL::numeric"
        f" WHEN {{3}} = 0 THEN {exact}"
        " WHEN {3} >= 1e24::numeric OR {3} > 1e12::numeric AND mod({3}, 1e12::numeric) > 0 THEN 'NaN'::numeric"
        " WHEN {3} >= 1e12::numeric THEN 'Infinity'::numeric ELSE '-Infinity'::numeric END"
    )
    return Kept(aggregate, argument, (count, total, scales, specials), value)


def _type(argument: Scalar, aggregate: Aggregate, composer: Composer) -> ColumnType | None:
    column = argument.as_column
    if column is not None and column.symbol in composer.types:
        return composer.types[column.symbol]
    return composer.types.get(f"{aggregate.column.symbol}()")


def _counted(condition: str) -> str:
    return f"coalesce(sum(s) FILTER (WHERE {condition}), 0)::bigint"


def _difference(argument: str, also: str = "true") -> str:
    return (
        f"coalesce(sum({argument}) FILTER (WHERE s > 0 AND {also}), 0)"
        f" - coalesce(sum({argument}) FILTER (WHERE s < 0 AND {also}), 0)"
    )


def _filtered(argument: Scalar, condition: Scalar | None) -> Scalar:
    """An argument that is NULL where the aggregate's own filter does not hold."""
    if condition is None:
        return argument
    a, c = Column("a"), Column("c")
    return Scalar.read("CASE WHEN c THEN a END", [a, c]).substitute({a: argument, c: condition})


def _call(
    composer: Composer, one: Kept, column: Column, text: str, sign: Column | None = None
) -> Aggregate:
    a, s = Column("a"), Column("s")
    known = {a: one.argument}
    if sign is not None:
        known[s] = Scalar.column(sign)
    return Aggregate(column, Scalar.read(text, [a, s]).substitute(known))


def _value(one: Kept, parts: list[str]) -> str:
    return one.value.format(*(f"({part})" if " " in part else part for part in parts))


def _text(column: Column, table: str | None = None) -> str:
    return write(reference(column.symbol, table))
