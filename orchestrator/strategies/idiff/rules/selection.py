"""Propagate diffs through a selection σ_φ(R) (papers/idivm.txt, table 6).

Inserts are filtered by φ. Deletes pass unchanged, because a delete may name rows that the result
does not have. An update passes if φ does not read the columns that the update changes. Otherwise φ is
evaluated before and after the change and decides whether the row is updated, inserted or deleted. If
the diff holds only the new values, a row that satisfies φ is updated, and inserted if it is missing. If
the diff lacks columns that φ reads, its rows are deleted, and the rows that satisfy φ are inserted again.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.scalar import filled
from orchestrator.engine.composer import Composer
from orchestrator.engine.diffs import Bag, Delete, Diff, Insert
from orchestrator.strategies.idiff.rules.base import change, conditions, propagate, rows_after
from orchestrator.strategies.idiff.threshold_crossings import filter_update


@propagate.register
def _(operator: Selection, position: int, diff: Diff, composer: Composer) -> tuple[Diff, ...]:
    condition = operator.condition
    if isinstance(diff, Delete):
        return (diff,)
    if isinstance(diff, Insert):
        return (Insert(Selection(diff.plan, condition)),)
    if not condition.references & diff.touched:
        return (diff.passed_on(),)
    reads = condition.references
    if not diff.known_after(reads):
        rows = rows_after(operator.input, diff, composer)
        return (Delete(diff.plan, diff.ids), Insert(Selection(rows, condition)))
    if not diff.known_before(reads):
        stays = Selection(diff.plan, condition)
        leaves = Selection(diff.plan, filled("(x) IS NOT TRUE", x=condition))
        rows = rows_after(operator.input, replace(diff, plan=stays), composer)
        return (replace(diff, plan=stays), Delete(leaves, diff.ids), Insert(rows))
    return filter_update(operator.input, condition, diff, composer)


@change.register
def _(operator: Selection, inputs: tuple[Bag | None, ...], composer: Composer) -> Bag | None:
    [below] = inputs
    assert below is not None
    return replace(below, plan=Selection(below.plan, operator.condition))


@conditions.register
def _(operator: Selection) -> tuple[frozenset[Column], ...]:
    return (operator.condition.references,)
