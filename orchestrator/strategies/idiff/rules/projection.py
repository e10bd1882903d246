"""Propagate diffs through a projection π_D(R) (papers/idivm.txt, table 8).

Deletes pass under the names that the IDs have in the result. An update changes every column that
is computed from an updated column. If such an expression also reads columns that the diff lacks, these
are looked up by the IDs.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.scalar import Scalar
from orchestrator.engine.composer import Composer
from orchestrator.engine.diffs import Bag, Delete, Diff, Insert, Update
from orchestrator.engine.terms import renamed
from orchestrator.strategies.idiff.rules.base import change, propagate, widened


@propagate.register
def _(operator: Projection, position: int, diff: Diff, composer: Composer) -> tuple[Diff, ...]:
    if isinstance(diff, Insert):
        return (Insert(Projection(diff.plan, operator.items)),)
    ids = _visible(operator, diff.ids)
    if isinstance(diff, Delete):
        return (Delete(renamed(diff.plan, ids), tuple(new for _, new in ids)),)
    changed = [item for item in operator.items if item.scalar.references & diff.touched]
    if not changed:
        return ()
    if not all(diff.known_after(item.scalar.references) for item in changed):
        diff = widened(operator.input, diff, composer)
        ids = _visible(operator, diff.ids)
    return (_updated(operator, diff, ids, composer),)


def _updated(
    operator: Projection, diff: Update, ids: list[tuple[Column, Column]], composer: Composer
) -> Update:
    kept = {new for _, new in ids}
    items = [Item(new, Scalar.column(old)) for old, new in ids]
    before = {new: new for new in kept}
    touched = set()
    for item in operator.items:
        if item.column in kept or not diff.known_after(item.scalar.references):
            continue
        items.append(item)
        if diff.known_before(item.scalar.references) and not item.scalar.subqueries:
            old = composer.fresh(item.column)
            items.append(Item(old, item.scalar.substitute(diff.as_before)))
            before[item.column] = old
        if item.scalar.references & diff.touched:
            touched.add(item.column)
    plan = Projection(diff.plan, tuple(items))
    return Update(plan, tuple(new for _, new in ids), before, frozenset(touched), diff.present)


@change.register
def _(operator: Projection, inputs: tuple[Bag | None, ...], composer: Composer) -> Bag | None:
    [below] = inputs
    assert below is not None
    return replace(below, plan=Projection(below.plan, (*operator.items, Item.kept(below.sign))))


def _visible(operator: Projection, ids: tuple[Column, ...]) -> list[tuple[Column, Column]]:
    """Return the IDs of the input, and the columns of the result that hold them or equal columns."""
    visible = set(operator.columns)
    names = {item.scalar.as_column: item.column for item in operator.items if not item.is_unchanged}
    pairs = []
    for column in ids:
        if column in visible:
            pairs.append((column, column))
            continue
        equal = sorted(operator.input.dependencies.same(column), key=str)
        candidates = [same for same in equal if same in visible]
        candidates += [names[same] for same in equal if same in names]
        pairs.append((column, candidates[0]))
    return pairs
