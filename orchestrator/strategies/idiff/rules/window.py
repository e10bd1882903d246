"""ω(R): a change recomputes rows of the partitions that it affects.

All functions of one operator share the partition, so a changed row affects its partition as a whole. A
row that moves from one partition to another affects both. Rows are stored under the IDs of R, and rows
whose values stay are not rewritten. If the functions allow it, only the rows from the first change on
are recomputed (`spans.py`).
"""

from __future__ import annotations

from orchestrator.algebra.ids import ids_of
from orchestrator.algebra.operators.window import Window
from orchestrator.algebra.passes.complete_orders import require_determined
from orchestrator.deltascript.leaves import StateScan
from orchestrator.engine.composer import Composer
from orchestrator.engine.recompute_parts import recompute_parts
from orchestrator.engine.states import Upkeep, store
from orchestrator.strategies.idiff.rules.base import bag
from orchestrator.strategies.idiff.rules.stored import maintain
from orchestrator.strategies.idiff.running import running_window
from orchestrator.strategies.idiff.spans import recompute_spans


@maintain.register
def _(operator: Window, composer: Composer, role: str) -> StateScan:
    require_determined(operator)
    changed = bag(operator.input, composer)
    running = running_window(operator, composer)
    state = store(role, running.stored if running else operator, ids_of(operator), composer)
    if changed is not None and running is not None:
        recompute_spans(Upkeep(state, composer), running, changed)
    elif changed is not None:
        if not operator.partition:
            composer.notes.append(f"no partition divides {operator.label}: it is recomputed whole")
        recompute_parts(Upkeep(state, composer), operator, changed, operator.partition)
    return state
