"""σ_φ(R) (papers/idivm.txt, tables 4 to 6).

Insertions are filtered by φ. Deletions pass, as they may name rows that never were. An update
passes if φ does not read what it touches; else φ before and after the change tell whether a row
stays, comes or goes. Where a diff does not hold all that φ reads, its rows go and those that
satisfy φ come again.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.scalar import Scalar, conjunction
from orchestrator.strategies.idiff.composer import Composer
from orchestrator.strategies.idiff.diffs import Bag, Diff, Minus, Plus
from orchestrator.strategies.idiff.rules.base import change, conditions, propagate, rows_after


@propagate.register
def _(operator: Selection, position: int, diff: Diff, composer: Composer) -> tuple[Diff, ...]:
    condition = operator.condition
    if isinstance(diff, Minus):
        return (diff,)
    if isinstance(diff, Plus):
        return (Plus(Selection(diff.plan, condition)),)
    if not condition.references & diff.touched:
        return (diff,)
    comes = Plus(Selection(rows_after(operator.input, diff, composer), condition))
    reads = condition.references
    if not (diff.known_after(reads) and diff.known_before(reads)):
        return (Minus(diff.plan, diff.ids), comes)
    before = is_true(condition.substitute(diff.as_before))
    after = is_true(condition)
    stays = Selection(diff.plan, conjunction([before, after]))
    goes = Selection(diff.plan, conjunction([before, is_not_true(condition)]))
    entered = replace(
        diff,
        plan=Selection(
            diff.plan, conjunction([is_not_true(condition.substitute(diff.as_before)), after])
        ),
    )
    return (
        replace(diff, plan=stays),
        Minus(goes, diff.ids),
        Plus(rows_after(operator.input, entered, composer)),
    )


@change.register
def _(operator: Selection, inputs: tuple[Bag | None, ...], composer: Composer) -> Bag | None:
    [below] = inputs
    assert below is not None
    return replace(below, plan=Selection(below.plan, operator.condition))


@conditions.register
def _(operator: Selection) -> tuple[frozenset[Column], ...]:
    return (operator.condition.references,)


def is_true(condition: Scalar) -> Scalar:
    """Whether a condition holds; NULL does not."""
    return Scalar.read("((x) IS TRUE)", [X]).substitute({X: condition})


def is_not_true(condition: Scalar) -> Scalar:
    """Whether a condition does not hold, or is NULL."""
    return Scalar.read("((x) IS NOT TRUE)", [X]).substitute({X: condition})


X = Column("x")
