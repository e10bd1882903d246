"""δ1(R), DISTINCT ON: a change recomputes the first row for each of the compared values that it affects."""

from __future__ import annotations

from orchestrator.algebra.operators.distinct_on import DistinctOn
from orchestrator.algebra.passes.complete_orders import require_determined
from orchestrator.deltascript.leaves import StateScan
from orchestrator.engine.composer import Composer
from orchestrator.engine.recompute_parts import recompute_parts
from orchestrator.engine.states import Upkeep, store
from orchestrator.strategies.idiff.rules.base import bag
from orchestrator.strategies.idiff.rules.stored import maintain


@maintain.register
def _(operator: DistinctOn, composer: Composer, role: str) -> StateScan:
    require_determined(operator)
    changed = bag(operator.input, composer)
    state = store(role, operator, operator.on, composer)
    if changed is not None:
        recompute_parts(Upkeep(state, composer), operator, changed, operator.on)
    return state
