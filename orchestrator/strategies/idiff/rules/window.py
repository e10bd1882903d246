"""ω(R): the partitions that a change of R affects are computed again.

The functions of one operator share their partition, so that its columns are the parts. A row that
moves from one partition to another affects both. Rows are stored under the IDs of R, and those
whose values stay are not rewritten.
"""

from __future__ import annotations

from orchestrator.algebra.ids import ids_of
from orchestrator.algebra.operators.window import Window
from orchestrator.algebra.passes.complete_orders import require_determined
from orchestrator.deltascript.leaves import StateScan
from orchestrator.engine.composer import Composer
from orchestrator.engine.recompute_parts import again
from orchestrator.engine.states import Upkeep, store
from orchestrator.strategies.idiff.rules.base import bag
from orchestrator.strategies.idiff.rules.stored import maintain


@maintain.register
def _(operator: Window, composer: Composer, role: str) -> StateScan:
    require_determined(operator)
    if not operator.partition:
        composer.notes.append(f"no partition divides {operator.label}: it is computed again whole")
    changed = bag(operator.input, composer)
    state = store(role, operator, ids_of(operator), composer)
    if changed is not None:
        again(Upkeep(state, composer), operator, changed, operator.partition)
    return state
