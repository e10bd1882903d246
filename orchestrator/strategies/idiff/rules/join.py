"""Propagate diffs through a cross product R × S and a join R ⋈_φ S (papers/idivm.txt, tables 4 and 10).

Inserts join the new state of the other side; a pair of two inserted rows is computed twice and
inserted once. Deletes pass, and so do updates of columns that φ does not read: here IDs save the
join. An update of a column that an equality of φ reads deletes the row's old pairs and inserts its new
ones. An update of columns that only other comparisons read stays an update, and only the pairs for which
the value of φ changed are inserted or deleted. So it does if one side has at most one row, such as a
total that rows are compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from orchestrator.algebra.analysis.flat import flattened
from orchestrator.algebra.columns import Column
from orchestrator.algebra.ids import ids_of
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.scalar import TRUE, Scalar, conjunction, filled, unwrapped
from orchestrator.engine.access import Lookup, Rows
from orchestrator.engine.composer import Composer, Part
from orchestrator.engine.diffs import Bag, Delete, Diff, Insert, Update
from orchestrator.engine.leaves import changes_apart
from orchestrator.strategies.idiff.rules.base import (
    change,
    conditions,
    holds_rows,
    propagate,
    propagate_both,
    rows_after,
    widened,
)
from orchestrator.strategies.idiff.threshold_crossings import Crossing, crossings, filter_update


@propagate.register
def _(operator: Join, position: int, diff: Diff, composer: Composer) -> tuple[Diff, ...]:
    def joined(rows: Operator) -> Insert:
        sides = [rows if n == position else child for n, child in enumerate(operator.children)]
        return Insert(operator.with_children(tuple(sides)))

    if isinstance(diff, Delete):
        return (diff,)
    if isinstance(diff, Insert):
        return (joined(diff.plan),)
    if not operator.condition.references & diff.touched:
        return (diff.passed_on(),)
    if frozenset() in operator.children[position].keys:
        return _crossing_pairs(operator, position, diff, composer)
    if _keeps_pairs(operator, position, diff):
        return _turned_pairs(operator, position, diff, composer)
    rows = rows_after(operator.children[position], diff, composer)
    return (Delete(diff.plan, diff.ids), joined(rows))


@propagate_both.register
def _(operator: Join, inputs: Sequence[tuple[Diff, ...]], composer: Composer) -> tuple[Diff, ...]:
    """Return the diffs of the pairs of two updated rows.

    The other diffs of both sides compare the old values of one row with the new values of the other.
    """
    left, right = (
        [d for d in diffs if isinstance(d, Update) and _keeps_pairs(operator, position, d)]
        for position, diffs in enumerate(inputs)
    )
    pairs, rest = _parts(operator)
    result: list[Diff] = []
    for first in left:
        for second in right:
            wide = [
                update if holds_rows(side, update) else widened(side, update, composer)
                for side, update in zip(operator.children, (first, second), strict=True)
            ]
            both = Update(
                pairs.with_children((wide[0].plan, wide[1].plan)),
                ids_of(pairs),
                {**wide[0].before, **wide[1].before},
                first.touched | second.touched,
                present=True,
            )
            result += filter_update(pairs, rest, both, composer)[1:]
    return tuple(result)


def _parts(operator: Join) -> tuple[Join, Scalar]:
    """Return the join on the equalities between both sides, and the other conditions."""
    left, right = (frozenset(side.columns) for side in operator.children)
    equalities: list[Scalar] = []
    rest: list[Scalar] = []
    for conjunct in operator.condition.conjuncts:
        tree = unwrapped(conjunct.tree)
        is_equality = False
        if isinstance(tree, exp.EQ):
            first, second = (
                conjunct.part(part).references for part in (tree.this, tree.expression)
            )
            apart = (first <= left and second <= right) or (first <= right and second <= left)
            is_equality = bool(first) and bool(second) and apart
        (equalities if is_equality else rest).append(conjunct)
    return replace(operator, condition=conjunction(equalities)), conjunction(rest)


def _keeps_pairs(operator: Join, position: int, update: Update) -> bool:
    """Return whether an update changes pairs only by conditions that are no equalities of both sides.

    A change of a single row compares its old values with the new rows of the other side, so updated rows there
    have to give up their pairs.
    """
    if any(frozenset() in side.keys for side in operator.children):
        return False
    pairs, rest = _parts(operator)
    own = rest.references & frozenset(operator.children[position].columns)
    return (
        bool(rest.references & update.touched)
        and not pairs.condition.references & update.touched
        and not rest.subqueries
        and update.known_before(own)
        and update.known_after(own)
    )


def _turned_pairs(
    operator: Join, position: int, diff: Update, composer: Composer
) -> tuple[Diff, ...]:
    """Return the update, and the diffs of the pairs for which φ changes its value.

    A changed row of the other side has diffs of its own, so here its values after the change count.
    """
    side, other = operator.children[position], operator.children[1 - position]
    pairs, rest = _parts(operator)
    if holds_rows(side, diff):
        both = (other, diff.plan) if position else (diff.plan, other)
        wide = replace(diff, plan=pairs.with_children(both), ids=ids_of(pairs), present=True)
    else:
        wide = widened(pairs, diff, composer)
    before = {**wide.before, **{column: column for column in other.columns}}
    wide = replace(wide, before=before)
    earlier = rest.substitute(wide.as_before)
    turned = Selection(wide.plan, filled("((x) IS TRUE) <> ((y) IS TRUE)", x=earlier, y=rest))
    held = composer.assign("turned", turned, turned.columns)
    _, deleted, inserted = filter_update(pairs, rest, replace(wide, plan=held), composer)
    return (diff.passed_on(), deleted, inserted)


def _crossing_pairs(
    operator: Join, position: int, diff: Update, composer: Composer
) -> tuple[Diff, ...]:
    """Return the diffs of pairs for which φ changes its value, when the single row of one side changes.

    If rows of the other side change in columns that φ reads, they have diffs of their own, so here they
    count as unchanged. If the other side has a single row too, the pair is handled like a selection.
    """
    side, other = operator.children[position], operator.children[1 - position]
    pairs = replace(operator, condition=TRUE)
    if frozenset() in other.keys:
        wide = widened(pairs, diff, composer)
        return propagate(Selection(pairs, operator.condition), 0, wide, composer)
    if holds_rows(side, diff):
        # LIMIT 1 tells the planner that there is one row; it would expect more rows in a diff.
        single = Limit(diff.plan, count=Scalar.read("1"))
        both = (other, single) if position else (single, other)
        wide = replace(diff, plan=pairs.with_children(both), ids=ids_of(pairs), present=True)
    else:
        wide = widened(pairs, diff, composer)
    before = {**wide.before, **{column: column for column in other.columns}}
    wide = replace(wide, before=before)
    enters, leaves = crossings(
        operator.condition, side.columns, wide.as_before, composer.is_ordered
    )
    _need_indexes(other, enters, composer)
    updated, deleted, inserted = filter_update(
        pairs, operator.condition, wide, composer, enters, leaves
    )
    # Only few pairs cross, so the operators above look up these pairs alone. The planner would expect many of a
    # range whose bounds it does not know.
    deleted_ids = composer.assign("left", deleted.plan, deleted.ids)
    inserted_pairs = composer.assign("turned", inserted.plan, pairs.columns)
    return updated, Delete(deleted_ids, deleted.ids), Insert(inserted_pairs)


@change.register
def _(operator: Join, inputs: tuple[Bag | None, ...], composer: Composer) -> Bag | None:
    """Δ(R ⋈ S) = ΔR ⋈ S ⊎ R ⋈ ΔS ⊎ -(ΔR ⋈ ΔS), where R and S are the new states."""
    left, right = inputs
    for position, clock in enumerate(operator.children):
        if isinstance(clock, Scan) and clock.is_clock and inputs[position] is not None:
            return _moved_clock(operator, position, clock, inputs[1 - position], composer)
    parts: list[Part] = []
    if left is not None:
        left = composer.held("rows", left)
        parts.append((left.sign, Join(left.plan, operator.right, operator.condition)))
    if right is not None:
        right = composer.held("rows", right)
        parts.append((right.sign, Join(operator.left, right.plan, operator.condition)))
    if left is not None and right is not None:
        both = filled("- x * y", x=left.sign, y=right.sign)
        parts.append((both, Join(left.plan, right.plan, operator.condition)))
    return composer.held("joined", composer.union(operator.columns, parts))


def _need_indexes(rows: Operator, crossing: Crossing, composer: Composer) -> None:
    for atom in flattened(rows).atoms:
        if isinstance(atom, Rows):
            composer.lookups += (Lookup(atom, (c,)) for c in crossing.by if c in atom.columns)


def timed_change(operator: Join, changed: Bag | None, composer: Composer) -> Bag:
    """Return the change of the rows that satisfy conditions on the time: of a join with a clock on the right."""
    assert isinstance(operator.right, Scan)
    return _moved_clock(operator, 1, operator.right, changed, composer)


def _moved_clock(
    operator: Join, position: int, clock: Scan, changed: Bag | None, composer: Composer
) -> Bag:
    """Return the change of R ⋈_φ C, where the single row of the clock C is only ever updated.

    Nothing above reads columns of C, so pairs that stay do not change. With R and C the new states, and ↑ and ↓
    the pairs for which φ becomes true or false: ΔR ⋈ C ⊎ ↑(R) ⊎ -↓(R) ⊎ -↑(ΔR) ⊎ ↓(ΔR). The last two parts
    turn the new state of R into the old state.
    """
    rows = operator.children[1 - position]
    condition = operator.condition
    [update] = changes_apart(clock, composer).updates
    earlier = condition.substitute(update.as_before)
    enters, leaves = crossings(condition, clock.columns, update.as_before, composer.is_ordered)
    _need_indexes(rows, enters, composer)
    held, holds = filled("(x) IS TRUE", x=earlier), filled("(x) IS TRUE", x=condition)
    held_not, holds_not = (filled("(x) IS NOT TRUE", x=c) for c in (earlier, condition))

    def beside(some: Operator, single: Operator) -> Join:
        both = (some, single) if position else (single, some)
        return Join(*both)

    def entering(some: Operator) -> Operator:
        return enters.rows(beside(some, single), held_not, holds)

    def leaving(some: Operator) -> Operator:
        return leaves.rows(beside(some, single), held, holds_not)

    single = Limit(update.plan, count=Scalar.read("1"))
    parts: list[Part] = [(1, entering(rows)), (-1, leaving(rows))]
    if changed is not None:
        changed = composer.held("rows", changed)
        negated = filled("- x", x=changed.sign)
        joined = replace(beside(changed.plan, clock), condition=condition)
        parts += [
            (changed.sign, joined),
            (negated, entering(changed.plan)),
            (changed.sign, leaving(changed.plan)),
        ]
    return composer.held("joined", composer.union(operator.columns, parts))


@conditions.register
def _(operator: Join) -> tuple[frozenset[Column], ...]:
    pairs, rest = _parts(operator)
    return (pairs.condition.references, rest.references)
