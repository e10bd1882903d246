"""How many tables a query joins: beyond a limit, a program of diffs would be too large."""

from __future__ import annotations

from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.joining import Binary
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.plan import Plan, once
from orchestrator.algebra.traversal import fold
from orchestrator.algebra.unsupported import Unsupported

MOST_JOINED = 40
"""Tables of one join, at most. Each of n tables has a query over all n of them, so that a program grows
with n^2, and what plans it with more."""


@once
def too_wide(plan: Plan) -> Unsupported | None:
    """Why a plan has too long a join, if it has."""
    found = [1]

    def joined(operator: Operator, inputs: tuple[int, ...]) -> int:
        """How many tables an operator joins, with those below it."""
        through = inputs and isinstance(operator, Binary | Selection | Projection)
        found.append(sum(inputs) if through else 1)
        return found[-1]

    fold(plan.root, joined)
    widest = max(found)
    if widest <= MOST_JOINED:
        return None
    return Unsupported(
        f"a program for a join of more than {MOST_JOINED} tables has a query over all of them for each",
        f"{widest} tables",
    )
