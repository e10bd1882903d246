"""Selections of the first rows of each partition, such as `rank() OVER (PARTITION BY a ORDER BY b) <= 3`.

Only the selected rows are stored. A change recomputes the partitions that it affects, from the input. A
stored window would have a row for each row of the input, which large changes and recomputes write.
"""

from __future__ import annotations

from orchestrator.algebra.analysis.first_rows import below_projections, window_of_first_rows
from orchestrator.algebra.ids import ids_of
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.window import Window
from orchestrator.algebra.passes.complete_orders import require_determined
from orchestrator.deltascript.leaves import StateScan
from orchestrator.engine.composer import Composer
from orchestrator.engine.costs.cardinality import Cardinality
from orchestrator.engine.recompute_parts import again
from orchestrator.engine.states import Upkeep, store
from orchestrator.strategies.idiff.rules.base import bag

MOST = 1000.0
"""The greatest expected number of rows of a partition. Larger partitions are stored, because a change
then recomputes only a span of them."""


def picks_first_rows(operator: Operator, cardinality: Cardinality) -> bool:
    """Return whether an operator selects the first rows of partitions that are known to be small."""
    found = window_of_first_rows(operator)
    if found is None or not found[0].partition:
        return False
    rows, partition = found[0].input, frozenset(found[0].partition)
    cardinality.learn(rows)
    is_known = cardinality.knows(rows) and any(map(cardinality.is_counted, partition))
    return is_known and cardinality.fanout(rows, partition) <= MOST


def moved_to_window(operator: Operator, cardinality: Cardinality) -> Operator:
    """Return an operator with a selection of first rows moved from above projections to the window."""
    moved = below_projections(operator)
    selection = moved
    while isinstance(selection, Projection):
        selection = selection.input
    is_picked = moved is not operator and picks_first_rows(selection, cardinality)
    return moved if is_picked else operator


def maintain_first_rows(selection: Operator, composer: Composer, role: str) -> StateScan:
    """Store the selected rows, add the steps that maintain them, and return a scan of the state."""
    assert isinstance(selection, Selection)
    window = selection.input
    assert isinstance(window, Window)
    require_determined(window)
    changed = bag(window.input, composer)
    state = store(role, selection, ids_of(window.input), composer)
    if changed is not None:
        condition = selection.condition
        again(Upkeep(state, composer), window, changed, window.partition, condition)
    return state
