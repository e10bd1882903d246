"""Maintain groups γ(R) and δ(R): add to the stored aggregates where this is exact, else recompute groups.

The rules of papers/idivm.txt: tables 9, 11 and 12 add (`added.py`), table 7 recomputes the affected
groups. A count of the rows tells when a group appears or disappears. A group has exactly one change
row, and its values are added to the stored ones. `min` and `max` are compared with the stored value
(`extremes.py`); a group that may have lost its extreme is read again. Aggregates with DISTINCT are
added up over stored values: a state counts the rows of each value of a group, and the values that
appear and disappear change the aggregate. Groups with any other aggregate are recomputed if they
changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from orchestrator.algebra.column_type import ColumnType
from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.project import Item, Projection
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
from orchestrator.engine.recompute_parts import again
from orchestrator.engine.representatives import Looks, compute_again, looks_of, lost_groups
from orchestrator.engine.states import INDEXED_AT_MOST, Upkeep, store
from orchestrator.engine.terms import shown
from orchestrator.strategies.idiff.added import TEXTS, Kept, argument_type, is_added, kept_of
from orchestrator.strategies.idiff.extremes import Extreme, extreme_of
from orchestrator.strategies.idiff.rules.base import bag
from orchestrator.strategies.idiff.rules.stored import maintain, not_added


@maintain.register
def _(operator: Distinct, composer: Composer, role: str) -> StateScan:
    return maintain(Grouping(operator.input, operator.columns), composer, role)


@maintain.register
def _(operator: Grouping, composer: Composer, role: str) -> StateScan:
    return _maintained(operator, bag(operator.input, composer), composer, role)


@not_added.register
def _(operator: Grouping, composer: Composer) -> frozenset[Column] | None:
    added = all(is_added(item, composer) and not item.distinct for item in operator.aggregates)
    return frozenset(operator.by) if added else None


@dataclass(frozen=True)
class _Groups:
    """Groups, and how each of their aggregates follows a change."""

    whole: Grouping
    """With what is stored beside the aggregates."""
    rows: Column
    kept: tuple[Kept, ...]
    extremes: tuple[Extreme, ...]
    looks: Looks | None

    @property
    def by(self) -> tuple[Column, ...]:
        """The grouping columns."""
        return self.whole.by

    @property
    def numbers(self) -> list[Column]:
        """The stored columns that a change adds to."""
        parts = [part.column for item in self.kept for part in item.parts]
        looks = [self.looks.call.column] if self.looks is not None else []
        return list(dict.fromkeys([self.rows, *parts, *looks]))

    @property
    def may_lose(self) -> bool:
        """Whether rows that go may make a group show what no row has any more."""
        return self.looks is not None or bool(self.extremes)


def _maintained(
    operator: Grouping, changed: Bag | None, composer: Composer, role: str, *, alike: bool = False
) -> StateScan:
    """Store groups, and add the steps that follow a change of their rows.

    With `alike`, nobody looks at the keys, so any of several equal ones may be stored.
    """
    composer.comparable(operator.by)
    if not all(_follows(item, operator, composer) for item in operator.aggregates):
        state = store(role, operator, operator.by, composer)
        if changed is not None:
            again(Upkeep(state, composer), operator, changed, operator.by)
        return state
    rows = Aggregate(
        Column(composer.symbols.fresh("idivm_rows"), "bigint"), Scalar.read("count(*)")
    )
    kept, extremes = [], []
    for item in operator.aggregates:
        if (extreme := extreme_of(item, argument_type(item, composer), composer)) is not None:
            extremes.append(extreme)
        else:
            kept.append(kept_of(item, rows.column, operator.input.not_null, composer))
    coarse = () if alike else look_alike(operator.by, composer.types)
    looks = looks_of(coarse, composer) if coarse else None
    calls = [call for item in kept for call in item.calls(rows.column)]
    calls += [looks.call] if looks is not None else []
    counted = {item.argument: item for item in kept if item.distinct}
    if changed is not None and counted:
        changed = _read_once(changed, operator, composer)
    values = [_values(item, operator, changed, composer) for item in counted.values()]
    whole = Grouping(operator.input, operator.by, (*operator.aggregates, rows, *calls))
    state = store(role, whole, operator.by, composer)
    if changed is not None:
        groups = _Groups(whole, rows.column, tuple(kept), tuple(extremes), looks)
        _add(Upkeep(state, composer), groups, changed, dict(zip(counted, values, strict=True)))
    return state


def _follows(aggregate: Aggregate, groups: Grouping, composer: Composer) -> bool:
    """Return whether an aggregate follows single changes."""
    if extreme_of(aggregate, argument_type(aggregate, composer), composer) is not None:
        return True
    if aggregate.distinct and len(groups.by) >= INDEXED_AT_MOST:
        return False
    return is_added(aggregate, composer)


def _read_once(changed: Bag, groups: Grouping, composer: Composer) -> Bag:
    """Return a change that several steps read; it is computed once if it takes lookups."""
    if all(isinstance(leaf, DiffScan) for leaf in walk(changed.plan) if not leaf.children):
        return changed
    read = groups.references | {changed.sign}
    plan = shown(changed.plan, (c for c in changed.plan.columns if c in read))
    return composer.held("change", Bag(plan, changed.sign))


def _values(
    kept: Kept, groups: Grouping, changed: Bag | None, composer: Composer
) -> tuple[Column, Bag | None]:
    """Store the values of an argument in each group; return them and the values that come or go."""
    type_ = argument_type(kept.aggregate, composer)
    assert type_ is not None
    value = composer.column("distinct_value")
    composer.types[value.symbol] = replace(type_, domain=False)
    scalar = kept.argument
    if type_.name in TEXTS:
        text = "substr(sha256(convert_to(x::text, getdatabaseencoding()::text)), 1, 16)"
        scalar = filled(text, x=scalar)
        composer.types[value.symbol] = ColumnType("bytea", comparable=True)

    def valued(plan: Operator, *further: Column) -> Operator:
        items = (*map(Item.kept, (*groups.by, *further)), Item(value, scalar))
        return Selection(Projection(plan, items), filled("x IS NOT NULL", x=value))

    rows = Grouping(valued(groups.input), (*groups.by, value))
    change = changed and Bag(valued(changed.plan, changed.sign), changed.sign)
    state = _maintained(rows, change, composer, composer.name("values"), alike=True)
    return value, members_of(state, composer)


def _add(
    upkeep: Upkeep,
    groups: _Groups,
    changed: Bag,
    values: Mapping[Scalar, tuple[Column, Bag | None]],
) -> None:
    """Add the change of each group to what is stored of it."""
    by, rows, composer, extremes = groups.by, groups.rows, upkeep.composer, groups.extremes
    removed = Column(composer.symbols.fresh("removed"), "bigint")
    # The change of a group from which rows go may show what no row has.
    more = "x > 0 AND r = 0" if groups.may_lose else "x > 0"
    parts = {"fewer": "x < 0", "more": more} if by else {}
    parts |= {"doubtful": "r > 0"} if groups.may_lose else {}
    conditions = [(name, _filled(text, x=rows, r=removed)) for name, text in parts.items()]
    grouped = _change(groups, changed, values, removed, composer)
    delta, *apart = composer.assign_apart(
        f"{upkeep.state.role}_change", grouped, grouped.columns, conditions
    )
    lost = _lost(upkeep, groups, apart[-1]) if groups.may_lose else None
    stored = {
        c: Scalar.column(upkeep.stored(c)) for c in (*groups.numbers, *(e.column for e in extremes))
    }
    added = {c: filled("x + y", x=stored[c], y=c) for c in groups.numbers}
    if lost is not None and groups.looks is not None:
        upkeep.delete(lost, by)
    if by:
        upkeep.delete(apart[0], by, filled("x = 0", x=added[rows]))
    sets = [*added.items(), *((item.aggregate.column, item.worth(added)) for item in groups.kept)]
    sets += [(item.column, item.worth(stored[item.column])) for item in extremes]
    moved = [filled("x <> 0", x=column) for column in groups.numbers]
    where = disjunction([*moved, *(item.moves(stored[item.column]) for item in extremes)])
    if extremes:
        doubt = disjunction(item.doubt(stored[item.column]) for item in extremes)
        where = filled("x AND NOT y", x=where, y=doubt)
    upkeep.update(delta, by, sets, where)
    if lost is not None:
        compute_again(upkeep, groups.whole, lost, replaces=groups.looks is None)
    if by:
        alone = {column: Scalar.column(column) for column in groups.numbers}
        items = [Item(item.aggregate.column, item.worth(alone)) for item in groups.kept]
        items += [Item(item.column, Scalar.column(item.came)) for item in extremes]
        upkeep.insert(Projection(apart[1], (*map(Item.kept, (*by, *groups.numbers)), *items)))


def _lost(upkeep: Upkeep, groups: _Groups, delta: DiffScan) -> DiffScan:
    """Return the groups that may show what no row of theirs has any more."""

    def doubt(stored: Mapping[Column, Column]) -> Scalar:
        doubts = [item.doubt(Scalar.column(stored[item.column])) for item in groups.extremes]
        doubts += [groups.looks.doubt(stored, groups.rows)] if groups.looks is not None else []
        return disjunction(doubts)

    read = [groups.rows, *(item.column for item in groups.extremes)]
    read += [groups.looks.call.column] if groups.looks is not None else []
    return lost_groups(upkeep, groups.whole, delta, groups.rows, read, doubt)


def _change(
    groups: _Groups,
    changed: Bag,
    values: Mapping[Scalar, tuple[Column, Bag | None]],
    removed: Column,
    composer: Composer,
) -> Grouping:
    """Return what a change adds to each group."""
    by, rows = groups.by, groups.rows
    calls = [Aggregate(rows, filled("coalesce(sum(s), 0)::bigint", s=changed.sign))]
    added = [item for item in groups.kept if not item.distinct]
    calls += [call for item in added for call in item.deltas(changed.sign, rows)]
    if groups.looks is not None:
        calls.append(groups.looks.delta(changed.sign))
    if groups.may_lose:
        calls.append(Aggregate(removed, filled("count(*) FILTER (WHERE s < 0)", s=changed.sign)))
    extremes = [(item, call) for item in groups.extremes for call in item.deltas(changed.sign)]
    own = Grouping(changed.plan, by, (*calls, *(call for _, call in extremes)))
    if not values:
        return own
    parts = [own]
    for argument, (value, moved) in values.items():
        if moved is not None:
            some = [item for item in groups.kept if item.distinct and item.argument == argument]
            sums = [c for item in some for c in item.deltas(moved.sign, rows, Scalar.column(value))]
            parts.append(Grouping(moved.plan, by, tuple(dict.fromkeys(sums))))
    columns = list(dict.fromkeys(item.column for part in parts for item in part.aggregates))
    bests = {call.column: item.function for item, call in extremes}
    given = {column: composer.fresh(column, "") for column in columns}
    branches = []
    for part in parts:
        own_columns = {column: composer.fresh(column, "") for column in columns}
        items = [
            Item(own_columns[column], _of_part(column, part, column in bests)) for column in columns
        ]
        plan = Projection(part, (*map(Item.kept, by), *items))
        branches.append(Branch(plan, (*by, *own_columns.values())))
    union = UnionAll(tuple(branches), (*by, *given.values()))
    return Grouping(
        union,
        by,
        tuple(Aggregate(c, _sum(given[c], bests.get(c), c.type)) for c in columns),
    )


def _of_part(column: Column, part: Grouping, is_extreme: bool) -> Scalar:
    """Return what a part of the change has of a column; the first part has the extremes."""
    if column in part.columns:
        return Scalar.column(column)
    return Scalar.read("NULL" if is_extreme else f"0::{column.type or 'numeric'}")


def _sum(column: Column, extreme: str | None, type_: str | None) -> Scalar:
    """Return the sum of what the parts of a change have of a column."""
    if extreme is not None:
        return filled(f"{extreme}(x)", x=column)
    return filled(f"coalesce(sum(x), 0)::{type_ or 'numeric'}", x=column)


def _filled(text: str, **terms: Column) -> Scalar:
    """Fill in the terms that a text has."""
    read = {name: term for name, term in terms.items() if f"{name} " in text}
    return filled(text, **read)
