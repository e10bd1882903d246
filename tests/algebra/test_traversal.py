"""Plans in which every level refers twice to the one below."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.algebra import (
    Branch,
    CteScan,
    Item,
    Join,
    Operator,
    Plan,
    Projection,
    Scalar,
)
from orchestrator.algebra.examples import DEVICES, DID
from orchestrator.algebra.ids import ids_of
from orchestrator.algebra.printer import to_json
from orchestrator.algebra.traversal import rewrite, walk


def nested(depth: int) -> Operator:
    plan: Operator = Projection(DEVICES, (Item.kept(DID),))
    for level in range(depth):
        left, right = (
            CteScan(
                f"c{level}", Branch(plan, plan.columns), (replace(DID, symbol=f"{side}{level}"),)
            )
            for side in "xy"
        )
        equal = Scalar.read(f"x{level} = y{level}", (*left.columns, *right.columns))
        plan = Projection(Join(left, right, equal), (Item.kept(*left.columns),))
    return plan


def test_what_references_share_is_visited_once() -> None:
    depth = 40
    plan = nested(depth)
    assert sum(1 for _ in walk(plan)) == 4 * depth + 2
    kept = rewrite(plan, lambda operator: operator) is plan
    assert kept
    same, other = plan == nested(depth), plan == nested(depth - 1)
    assert (same, other) == (True, False)
    assert list(map(str, ids_of(plan))) == [f"x{depth - 1}"]
    printed = str(to_json(Plan(plan, ("did",), plan.columns)))
    assert printed.count("'CteScan'") == 2 * depth
