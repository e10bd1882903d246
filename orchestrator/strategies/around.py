"""The content of a view that looks up groups in keyed tables when it is read.

The groups are states that a strategy maintains. The tables are copied, so that the rows are those of the last
refresh.
"""

from __future__ import annotations

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.scan import Scan
from orchestrator.algebra.recognition.around import Around
from orchestrator.algebra.scalar import Scalar
from orchestrator.deltascript.leaves import StateScan, captured
from orchestrator.deltascript.plan import CONTENT, StateView
from orchestrator.engine.composer import Composer
from orchestrator.engine.leaves import diffs_of
from orchestrator.engine.states import Upkeep, store
from orchestrator.strategies.request import PlanningRequest


def show_around(
    around: Around, groups: Operator, request: PlanningRequest, composer: Composer
) -> None:
    """Let the view compute the query over the groups, given by the columns of its core."""
    copies = {scan: _copied(scan, request, composer) for scan in around.tables}

    def over_states(operator: Operator) -> Operator:
        if operator == around.core:
            return groups
        if isinstance(operator, Scan):
            return copies[operator]
        return operator.with_children(tuple(map(over_states, operator.children)))

    rows = over_states(around.root)
    new = [Column(column.name) for column in request.columns]
    items = [
        Item(name, Scalar.column(column)) for name, column in zip(new, around.columns, strict=True)
    ]
    query = composer.query(Projection(rows, tuple(items)), new)
    composer.states.append(StateView(CONTENT, request.columns, (), query))


def _copied(scan: Scan, request: PlanningRequest, composer: Composer) -> StateScan:
    """Store the rows of a table by their key, and add the steps that maintain them."""
    table = captured(scan)
    ids = min((sorted(key, key=str) for key in table.keys), key=lambda key: (len(key), str(key)))
    rest = frozenset(table.columns) - frozenset(ids)
    role = composer.name(f"{scan.table.name}_rows".encode()[:40].decode(errors="ignore"))
    state = store(role, table, ids, composer, followed=False)
    if scan.table.oid not in request.static:
        Upkeep(state, composer).apply(diffs_of(table, (rest,), composer))
    return state
