"""σ_φ(R) (papers/idivm.txt, tables 4 to 6).

Insertions are filtered by φ. Deletions pass, as they may name rows that never were. An update
passes if φ does not read what it touches; else φ before and after the change tell whether a row
stays, comes or goes; after the change alone, whether it is there, so that it is changed and comes
if it is missing. Where a diff does not hold all that φ reads, its rows go and those that satisfy φ
come again.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.scalar import filled
from orchestrator.engine.composer import Composer
from orchestrator.engine.diffs import Bag, Delete, Diff, Insert
from orchestrator.strategies.idiff.rules.base import change, conditions, propagate, rows_after
from orchestrator.strategies.idiff.threshold_crossings import turned


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
    return turned(operator.input, condition, diff, composer)


@change.register
def _(operator: Selection, inputs: tuple[Bag | None, ...], composer: Composer) -> Bag | None:
    [below] = inputs
    assert below is not None
    return replace(below, plan=Selection(below.plan, operator.condition))


@conditions.register
def _(operator: Selection) -> tuple[frozenset[Column], ...]:
    return (operator.condition.references,)
