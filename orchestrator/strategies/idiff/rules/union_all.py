"""Pass diffs through a bag union R ∪ S, with the branch number as a further ID (papers/idivm.txt, table 5)."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.ids import ids_of
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import Scalar
from orchestrator.engine.composer import Composer, Part
from orchestrator.engine.diffs import Bag, Delete, Diff, Insert, Update
from orchestrator.engine.terms import renamed
from orchestrator.strategies.idiff.rules.base import change, propagate


@propagate.register
def _(operator: UnionAll, position: int, diff: Diff, composer: Composer) -> tuple[Diff, ...]:
    branch = operator.branches[position]
    pairs = list(branch.renamed(operator.outputs))
    if isinstance(diff, Insert):
        return (Insert(renamed(diff.plan, pairs)),)
    ids = [(column, _output_of(branch, operator, column)) for column in diff.ids]
    branch_number = [] if operator.tag is None else [_branch_number(operator.tag, position)]
    named = tuple(new for _, new in ids) + tuple(item.column for item in branch_number)
    items = [Item(new, Scalar.column(old)) for old, new in ids] + branch_number
    if isinstance(diff, Delete):
        return (Delete(Projection(diff.plan, tuple(items)), named),)
    before = {column: column for column in named}
    touched = set()
    for old, new in pairs:
        if new in named or not diff.known_after([old]):
            continue
        items.append(Item(new, Scalar.column(old)))
        if diff.known_before([old]):
            before[new] = composer.fresh(new)
            items.append(Item(before[new], Scalar.column(diff.before[old])))
        if old in diff.touched:
            touched.add(new)
    if not touched:
        return ()
    plan = Projection(diff.plan, tuple(items))
    return (Update(plan, named, before, frozenset(touched), diff.present),)


@change.register
def _(operator: UnionAll, inputs: tuple[Bag | None, ...], composer: Composer) -> Bag | None:
    parts: list[Part] = []
    for branch, below in zip(operator.branches, inputs, strict=True):
        if below is not None:
            pairs = [*branch.renamed(operator.outputs), (below.sign, below.sign)]
            parts.append((below.sign, renamed(below.plan, pairs)))
    return composer.union(operator.outputs, parts)


def _output_of(branch: Branch, operator: UnionAll, column: Column) -> Column:
    """Return the output that holds an ID of a branch, or a column that equals it; prefer IDs of the union.

    Columns that are equal in one branch may differ in another, so no operator above knows this.
    """
    equal = branch.input.dependencies.same(column) | {column}
    candidates = [(old, new) for old, new in branch.renamed(operator.outputs) if old in equal]
    ids = ids_of(operator) if len(candidates) > 1 else ()
    return min(candidates, key=lambda pair: (pair[1] not in ids, pair[0] != column))[1]


def _branch_number(tag: Column, position: int) -> Item:
    return Item(replace(tag), Scalar.read(str(position)))
