"""R ⋉_φ S, R ▷_φ S and R ⟕_φ S (papers/idivm.txt, tables 12 and 13, and beyond).

Whether a row of R has a partner depends on that row and on S. Diffs of R are as those of a join.
Of S, updates of columns that φ does not read matter to no semijoin, and pass an outer join. Any
other change of S affects the rows of R that match a row of S before or after the change: they go,
and come again as they are afterwards. The rule is a blocking one, as it reads R.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.ids import ids_of
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.joining import Binary
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.semijoin import Semijoin
from orchestrator.algebra.scalar import FALSE
from orchestrator.strategies.idiff.composer import Composer
from orchestrator.strategies.idiff.diffs import Diff, Minus, Plus, Update
from orchestrator.strategies.idiff.rules.base import bag, conditions, propagate, rows_after
from orchestrator.strategies.idiff.terms import shown


@propagate.register(LeftJoin)
@propagate.register(Semijoin)
@propagate.register(Antisemijoin)
def _(operator: Binary, position: int, diff: Diff, composer: Composer) -> tuple[Diff, ...]:
    if isinstance(diff, Update) and not operator.condition.references & diff.touched:
        if position == 0:
            return (diff.passed_on(),)
        if not isinstance(operator, LeftJoin):
            return ()
        if operator.right.not_null & set(diff.ids):
            return (diff.passed_on(),)
        # A row whose IDs are all NULL cannot be told from padding.
    if position == 1:
        return _affected(operator, composer)
    if isinstance(diff, Minus):
        return (diff,)
    if isinstance(diff, Plus):
        return (Plus(replace(operator, left=diff.plan)),)
    rows = rows_after(operator.left, diff, composer)
    return (Minus(diff.plan, diff.ids), Plus(replace(operator, left=rows)))


def _affected(operator: Binary, composer: Composer) -> tuple[Diff, ...]:
    """All diffs that the changes of the right side make; found once for all of them."""
    if not composer.first(operator) or operator.condition == FALSE:
        return ()
    changed = bag(operator.right, composer)
    if changed is None:
        return ()
    changed = composer.held("partners", changed)
    ids = ids_of(operator.left)
    matching = shown(Join(operator.left, changed.plan, operator.condition), ids)
    affected = composer.assign("affected", Distinct(matching), ids)
    rows = shown(composer.identify(affected, operator.left, ids), operator.left.columns)
    return (Minus(affected, ids), Plus(replace(operator, left=rows)))


@conditions.register(LeftJoin)
@conditions.register(Semijoin)
@conditions.register(Antisemijoin)
def _(operator: Binary) -> tuple[frozenset[Column], ...]:
    return (operator.condition.references,)
