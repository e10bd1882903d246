"""R ⋈→ S(R): evaluate a plan S for each row of R, beyond papers/idivm.txt.

The operator is linear in R: an inserted row is evaluated, and a deleted row takes its results along. A
change of a part T of S affects the rows of R to which a changed row of T matters, before or after the
change. Joins of R with the change find the IDs of these rows, as for rows with partners, and the rows
are evaluated again.

If the result has one row for each row of R, these rows stay, and the columns of S are updated.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.ids import ids_of
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.evaluation import Evaluation, Expansion
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.passes.complete_orders import refuse_open
from orchestrator.engine.composer import Composer
from orchestrator.engine.diffs import Bag, Delete, Diff, Insert, Update
from orchestrator.engine.terms import projected
from orchestrator.strategies.idiff.rules.base import (
    bag,
    change,
    conditions,
    propagate,
    rows_after,
    widened,
)


@propagate.register
def _(operator: Evaluation, position: int, diff: Diff, composer: Composer) -> tuple[Diff, ...]:
    if operator.left_open is not None:
        refuse_open(operator.left_open)
    if position > 0:
        return _affected(operator, position, composer)
    if isinstance(diff, Delete):
        return (diff,)
    if isinstance(diff, Insert):
        return (Insert(replace(operator, input=diff.plan)),)
    if not operator.mentions & diff.touched:
        return (diff.passed_on(),)
    if operator.single:
        wide = widened(operator.input, diff, composer)
        evaluated = replace(operator, input=wide.plan)
        plan = composer.assign("evaluated", evaluated, evaluated.columns)
        return (replace(wide, plan=plan, touched=wide.touched | set(operator.plan.columns)),)
    rows = rows_after(operator.input, diff, composer)
    return (Delete(diff.plan, diff.ids), Insert(replace(operator, input=rows)))


@change.register
def _(operator: Expansion, inputs: tuple[Bag | None, ...], composer: Composer) -> Bag | None:
    [below] = inputs
    assert below is not None
    return replace(below, plan=replace(operator, input=below.plan))


def _affected(operator: Evaluation, position: int, composer: Composer) -> tuple[Diff, ...]:
    """Return all diffs that the changes of one part cause; they are computed once for all changes."""
    if not composer.first((operator, position)):
        return ()
    part = operator.watched[position - 1]
    changed = bag(part.plan, composer)
    if changed is None:
        return ()
    changed = composer.held("parts", changed)
    rows = operator.input
    ids = ids_of(rows)
    matching = [projected(Join(rows, changed.plan, matter), ids) for matter in part.matters]
    affected = composer.assign("affected", Distinct(_union(matching, ids)), ids)
    affected_rows = projected(composer.identify(affected, rows, ids), rows.columns)
    if not operator.single:
        return (Delete(affected, ids), Insert(replace(operator, input=affected_rows)))
    fresh = composer.assign(
        "evaluated", replace(operator, input=affected_rows), (*rows.columns, *operator.plan.columns)
    )
    before = {column: column for column in ids}
    return (Update(fresh, ids, before, frozenset(operator.plan.columns), present=True),)


def _union(plans: list[Operator], columns: tuple[Column, ...]) -> Operator:
    if len(plans) == 1:
        return plans[0]
    return UnionAll(tuple(Branch(plan, columns) for plan in plans), columns)


@conditions.register
def _(operator: Evaluation) -> tuple[frozenset[Column], ...]:
    return (operator.mentions,)
