"""τ(R): a stored result has no order."""

from __future__ import annotations

from orchestrator.algebra.operators.sort import Sort
from orchestrator.engine.composer import Composer
from orchestrator.engine.diffs import Bag, Diff
from orchestrator.strategies.idiff.rules.base import change, propagate


@propagate.register
def _(operator: Sort, position: int, diff: Diff, composer: Composer) -> tuple[Diff, ...]:
    return (diff,)


@change.register
def _(operator: Sort, inputs: tuple[Bag | None, ...], composer: Composer) -> Bag | None:
    return inputs[0]
