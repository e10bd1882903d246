"""Maintain groups γ(R) and δ(R): add to the stored aggregates where this is exact, else recompute groups.

The rules of papers/idivm.txt: tables 9, 11 and 12 add (`added.py`), table 7 recomputes the affected
groups. The count of rows tells when a group appears or disappears. A group has exactly one change row,
whose values are added to the stored values. `min` and `max` are compared with the stored value
(`extremes.py`); a group that may have lost its extreme is read again. Aggregates with DISTINCT are added
over stored values: a state counts the rows of each value of a group, and the values that appear and
disappear change the aggregate. Percentiles and modes are found among these values (`ordered.py`). Other
aggregates make changed groups recompute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from orchestrator.algebra.column_type import ColumnType
from orchestrator.algebra.columns import Column
from orchestrator.algebra.copies import copied
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import Scalar, disjunction, filled
from orchestrator.algebra.traversal import walk
from orchestrator.deltascript.leaves import DiffScan, StateScan
from orchestrator.engine.composer import Composer
from orchestrator.engine.diffs import Bag
from orchestrator.engine.distinguishable import look_alike
from orchestrator.engine.leaves import members_of
from orchestrator.engine.recompute_parts import PARTS, recompute_parts
from orchestrator.engine.representatives import Looks, looks_of, lost_groups, recompute_groups
from orchestrator.engine.states import INDEXED_AT_MOST, Upkeep, store
from orchestrator.engine.terms import projected, same
from orchestrator.strategies.idiff.added import (
    TEXTS,
    AddedAggregate,
    added_aggregate,
    argument_type,
    is_added,
)
from orchestrator.strategies.idiff.extremes import Extreme, extreme_of
from orchestrator.strategies.idiff.from_values import from_values
from orchestrator.strategies.idiff.ordered import OrderedAggregate, ordered_aggregate, results
from orchestrator.strategies.idiff.rules.base import bag
from orchestrator.strategies.idiff.rules.stored import maintain, not_added


@maintain.register
def _(operator: Distinct, composer: Composer, role: str) -> StateScan:
    return maintain(Grouping(operator.input, operator.columns), composer, role)


@maintain.register
def _(operator: Grouping, composer: Composer, role: str) -> StateScan:
    return _store_groups(operator, bag(operator.input, composer), composer, role)


@not_added.register
def _(operator: Grouping, composer: Composer) -> frozenset[Column] | None:
    added = all(
        is_added(aggregate, composer) and not aggregate.distinct
        for aggregate in operator.aggregates
    )
    return frozenset(operator.by) if added else None


@dataclass(frozen=True)
class Values:
    """The stored values of an argument in each group, with their counts."""

    column: Column
    rows: Column
    state: StateScan
    members: Bag | None
    """The values that appear in a group or disappear from it."""


@dataclass(frozen=True)
class Groups:
    """Groups, and how each of their aggregates is maintained."""

    whole: Grouping
    """The grouping with all stored aggregates."""
    rows: Column
    added: tuple[AddedAggregate, ...]
    extremes: tuple[Extreme, ...]
    ordered: tuple[OrderedAggregate, ...]
    looks: Looks | None
    grows: bool = False
    """Whether groups only gain rows."""

    @property
    def by(self) -> tuple[Column, ...]:
        """The grouping columns."""
        return self.whole.by

    @property
    def numbers(self) -> list[Column]:
        """The stored columns that a change adds to."""
        parts = [part.column for item in self.added for part in item.parts]
        looks = [self.looks.call.column] if self.looks is not None else []
        return list(dict.fromkeys([self.rows, *parts, *looks]))

    @property
    def may_lose(self) -> bool:
        """Whether a deletion may leave a group with a value that none of its rows has."""
        return not self.grows and (self.looks is not None or bool(self.extremes))


def _store_groups(
    operator: Grouping, changed: Bag | None, composer: Composer, role: str, *, alike: bool = False
) -> StateScan:
    """Store groups, and add the steps that apply a change of their rows.

    With `alike`, any of several equal keys may be stored, because nothing shows the keys.
    """
    composer.comparable(operator.by)
    if not all(_is_maintained(aggregate, operator, composer) for aggregate in operator.aggregates):
        state = store(role, operator, operator.by, composer)
        if changed is not None:
            recompute_parts(Upkeep(state, composer), operator, changed, operator.by)
        return state
    rows = Aggregate(
        Column(composer.symbols.fresh("idivm_rows"), "bigint"), Scalar.read("count(*)")
    )
    added, extremes, ordered = [], [], []
    for aggregate in operator.aggregates:
        if (
            extreme := extreme_of(aggregate, argument_type(aggregate, composer), composer)
        ) is not None:
            extremes.append(extreme)
        elif (in_order := ordered_aggregate(aggregate, composer)) is not None:
            ordered.append(in_order)
        else:
            added.append(added_aggregate(aggregate, rows.column, operator.input.not_null, composer))
    coarse = () if alike else look_alike(operator.by, composer.types)
    looks = looks_of(coarse, composer) if coarse else None
    calls = [call for item in added for call in item.calls(rows.column)]
    calls += [looks.call] if looks is not None else []
    counted = {
        item.argument: argument_type(item.aggregate, composer) for item in added if item.distinct
    }
    counted |= {item.argument: ColumnType(item.type, comparable=True) for item in ordered}
    if changed is not None and counted:
        changed = _read_once(changed, operator, composer)
    values = {
        argument: _store_values(argument, type_, operator, changed, composer)
        for argument, type_ in counted.items()
    }
    whole = Grouping(operator.input, operator.by, (*operator.aggregates, rows, *calls))
    first = from_values(
        whole,
        [item for item in added if item.distinct],
        {argument: (counted.state, counted.column) for argument, counted in values.items()},
        composer,
    )
    state = store(role, whole, operator.by, composer, first=first)
    groups = Groups(
        *(whole, rows.column, tuple(added), tuple(extremes), tuple(ordered), looks),
        grows=_only_grows(operator.input, composer),
    )
    composer.groups[role] = groups
    if changed is not None:
        _add(Upkeep(state, composer), groups, changed, values)
    return state


def _only_grows(rows: Operator, composer: Composer) -> bool:
    """Return whether no change of tables takes a row from a result."""
    return all(
        isinstance(operator, Selection | Projection | Join | UnionAll)
        or (
            isinstance(operator, Scan)
            and operator.table.oid in {*composer.growing, *composer.static}
        )
        for operator in walk(rows)
    )


def _is_maintained(aggregate: Aggregate, groups: Grouping, composer: Composer) -> bool:
    """Return whether an aggregate can be maintained without recomputing its group."""
    if extreme_of(aggregate, argument_type(aggregate, composer), composer) is not None:
        return True
    ordered = ordered_aggregate(aggregate, composer)
    if (aggregate.distinct or ordered) and len(groups.by) >= INDEXED_AT_MOST:
        return False
    if ordered is not None:
        return composer.repeats(groups.input, {*groups.by, *ordered.argument.references})
    return is_added(aggregate, composer)


def _read_once(changed: Bag, groups: Grouping, composer: Composer) -> Bag:
    """Return a change for several readers; it is computed once if it needs lookups."""
    if all(isinstance(leaf, DiffScan) for leaf in walk(changed.plan) if not leaf.children):
        return changed
    read = groups.references | {changed.sign}
    plan = projected(changed.plan, (c for c in changed.plan.columns if c in read))
    return composer.held("change", Bag(plan, changed.sign))


def _store_values(
    argument: Scalar,
    type_: ColumnType | None,
    groups: Grouping,
    changed: Bag | None,
    composer: Composer,
) -> Values:
    """Store the values of an argument in each group, and how many rows have each."""
    assert type_ is not None
    value = composer.column("distinct_value")
    composer.types[value.symbol] = replace(type_, domain=False)
    scalar = argument
    if type_.name in TEXTS:
        text = "substr(sha256(convert_to(x::text, getdatabaseencoding()::text)), 1, 16)"
        scalar = filled(text, x=scalar)
        composer.types[value.symbol] = ColumnType("bytea", comparable=True)

    def valued(plan: Operator, *extra: Column) -> Operator:
        items = (*map(Item.kept, (*groups.by, *extra)), Item(value, scalar))
        return Projection(Selection(plan, filled("x IS NOT NULL", x=argument)), items)

    rows = Grouping(valued(groups.input), (*groups.by, value))
    change = changed and Bag(valued(changed.plan, changed.sign), changed.sign)
    state = _store_groups(rows, change, composer, composer.name("values"), alike=True)
    count = composer.groups[state.role].rows
    return Values(value, count, state, members_of(state, composer))


def _add(
    upkeep: Upkeep,
    groups: Groups,
    changed: Bag,
    values: Mapping[Scalar, Values],
) -> None:
    """Apply the change of each group to its stored values."""
    by, rows, composer, extremes = groups.by, groups.rows, upkeep.composer, groups.extremes
    removed = Column(composer.symbols.fresh("removed"), "bigint")
    # If a group loses rows, its change may hold a value that no row has, so the group is not new.
    more = "x > 0 AND r = 0" if groups.may_lose else "x > 0"
    parts = {"fewer": "x < 0", "more": more} if by and not groups.grows else {}
    parts |= {"doubtful": "r > 0"} if groups.may_lose else {}
    conditions = [(name, _fill_in(text, x=rows, r=removed)) for name, text in parts.items()]
    grouped: Operator = _change_of_groups(groups, changed, values, removed, composer)
    new_columns = {
        item.aggregate.column: composer.fresh(item.aggregate.column) for item in groups.ordered
    }
    if groups.ordered:
        grouped = _with_ordered(grouped, groups, changed, values, new_columns, composer)
    delta, *subsets = composer.assign_apart(
        f"{upkeep.state.role}_change", grouped, grouped.columns, conditions
    )
    lost = _groups_to_recompute(upkeep, groups, subsets[-1]) if groups.may_lose else None
    stored = {
        c: Scalar.column(upkeep.stored(c))
        for c in (*groups.numbers, *(e.column for e in extremes), *new_columns)
    }
    added = {c: filled("x + y", x=stored[c], y=c) for c in groups.numbers}
    if lost is not None and groups.looks is not None:
        upkeep.delete(lost, by)
    if by and not groups.grows:
        upkeep.delete(subsets[0], by, filled("x = 0", x=added[rows]))
    sets = [
        *added.items(),
        *((item.aggregate.column, item.value_of(added)) for item in groups.added),
    ]
    sets += [(item.column, item.value_after(stored[item.column])) for item in extremes]
    sets += [(column, Scalar.column(new)) for column, new in new_columns.items()]
    moved = [filled("x <> 0", x=column) for column in groups.numbers]
    moved += [
        filled("x IS DISTINCT FROM y", x=stored[column], y=new)
        for column, new in new_columns.items()
    ]
    where = disjunction([*moved, *(item.improves(stored[item.column]) for item in extremes)])
    if extremes:
        doubt = disjunction(item.doubt(stored[item.column]) for item in extremes)
        where = filled("x AND NOT y", x=where, y=doubt)
    upkeep.update(delta, by, sets, where)
    if lost is not None:
        recompute_groups(upkeep, groups.whole, lost, replaces=groups.looks is None)
    if by:
        alone = {column: Scalar.column(column) for column in groups.numbers}
        items = [Item(item.aggregate.column, item.value_of(alone)) for item in groups.added]
        items += [Item(item.column, Scalar.column(item.inserted)) for item in extremes]
        items += [Item(column, Scalar.column(new)) for column, new in new_columns.items()]
        more_rows = delta if groups.grows else subsets[1]
        upkeep.insert(Projection(more_rows, (*map(Item.kept, (*by, *groups.numbers)), *items)))


def _with_ordered(
    grouped: Operator,
    groups: Groups,
    changed: Bag,
    values: Mapping[Scalar, Values],
    new_columns: Mapping[Column, Column],
    composer: Composer,
) -> Operator:
    """Return the changes of groups with the new percentiles and modes, in `new_columns`."""
    by, own = groups.by, grouped.columns
    affected = composer.assign(PARTS, Distinct(projected(changed.plan, by)), by) if by else None
    for argument in dict.fromkeys(item.argument for item in groups.ordered):
        counted = values[argument]
        items = [item for item in groups.ordered if item.argument == argument]
        rows: Operator = counted.state
        if affected is not None:
            composer.probe(counted.state, by)
            rows = projected(composer.identify(affected, rows, by), rows.columns)
        result = results(items, rows, by, counted.column, counted.rows, composer)
        names = {column: composer.fresh(column) for column in by}
        names |= {item.aggregate.column: new_columns[item.aggregate.column] for item in items}
        result, _ = copied(result, composer.symbols, names)
        condition = same(((column, names[column]) for column in by), grouped.not_null)
        grouped = LeftJoin(grouped, result, condition)
    return projected(grouped, (*own, *new_columns.values()))


def _groups_to_recompute(upkeep: Upkeep, groups: Groups, delta: DiffScan) -> DiffScan:
    """Return the groups that may show a value that none of their rows has any more."""

    def doubt(stored: Mapping[Column, Column]) -> Scalar:
        doubts = [item.doubt(Scalar.column(stored[item.column])) for item in groups.extremes]
        doubts += [groups.looks.doubt(stored, groups.rows)] if groups.looks is not None else []
        return disjunction(doubts)

    read = [groups.rows, *(item.column for item in groups.extremes)]
    read += [groups.looks.call.column] if groups.looks is not None else []
    return lost_groups(upkeep, groups.whole, delta, groups.rows, read, doubt)


def _change_of_groups(
    groups: Groups,
    changed: Bag,
    values: Mapping[Scalar, Values],
    removed: Column,
    composer: Composer,
) -> Grouping:
    """Return what a change adds to each group."""
    by, rows = groups.by, groups.rows
    calls = [Aggregate(rows, filled("coalesce(sum(s), 0)::bigint", s=changed.sign))]
    numbers = [item for item in groups.added if not item.distinct]
    calls += [call for item in numbers for call in item.deltas(changed.sign, rows)]
    if groups.looks is not None:
        calls.append(groups.looks.delta(changed.sign))
    if groups.may_lose:
        calls.append(Aggregate(removed, filled("count(*) FILTER (WHERE s < 0)", s=changed.sign)))
    extremes = [(item, call) for item in groups.extremes for call in item.deltas(changed.sign)]
    own = Grouping(changed.plan, by, (*calls, *(call for _, call in extremes)))
    if not values:
        return own
    parts = [own]
    for argument, counted in values.items():
        values_change = counted.members
        distinct = [item for item in groups.added if item.distinct and item.argument == argument]
        if values_change is not None and distinct:
            sums = [
                c
                for item in distinct
                for c in item.deltas(values_change.sign, rows, Scalar.column(counted.column))
            ]
            parts.append(Grouping(values_change.plan, by, tuple(dict.fromkeys(sums))))
    columns = list(dict.fromkeys(item.column for part in parts for item in part.aggregates))
    extreme_functions = {call.column: item.function for item, call in extremes}
    given = {column: composer.fresh(column, "") for column in columns}
    branches = []
    for part in parts:
        renamed = {column: composer.fresh(column, "") for column in columns}
        items = [
            Item(renamed[column], _part_value(column, part, column in extreme_functions))
            for column in columns
        ]
        plan = Projection(part, (*map(Item.kept, by), *items))
        branches.append(Branch(plan, (*by, *renamed.values())))
    union = UnionAll(tuple(branches), (*by, *given.values()))
    return Grouping(
        union,
        by,
        tuple(Aggregate(c, _sum(given[c], extreme_functions.get(c), c.type)) for c in columns),
    )


def _part_value(column: Column, part: Grouping, is_extreme: bool) -> Scalar:
    """Return the value that a part of the change has for a column; only the first part has extremes."""
    if column in part.columns:
        return Scalar.column(column)
    return Scalar.read("NULL" if is_extreme else f"0::{column.type or 'numeric'}")


def _sum(column: Column, extreme: str | None, type_: str | None) -> Scalar:
    """Return the sum, or the extreme, of a column over the parts of a change."""
    if extreme is not None:
        return filled(f"{extreme}(x)", x=column)
    return filled(f"coalesce(sum(x), 0)::{type_ or 'numeric'}", x=column)


def _fill_in(text: str, **terms: Column) -> Scalar:
    """Fill in the terms that occur in a text."""
    read = {name: term for name, term in terms.items() if f"{name} " in text}
    return filled(text, **read)
