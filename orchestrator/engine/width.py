"""The number of joined tables of a query, which limits the size of its program."""

from __future__ import annotations

from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.joining import Binary
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.plan import Plan, once
from orchestrator.algebra.traversal import fold
from orchestrator.algebra.unsupported import Unsupported

MOST_JOINED = 40
"""The largest number of tables in a join. Each of n tables has a query over all n tables, so a program
grows with n^2, and planning grows faster."""


@once
def too_wide(plan: Plan) -> Unsupported | None:
    """Return why a join of the plan is too long, or None."""
    numbers = [1]

    def joined(operator: Operator, inputs: tuple[int, ...]) -> int:
        """Return how many tables an operator joins, including those below it."""
        through = inputs and isinstance(operator, Binary | Selection | Projection)
        numbers.append(sum(inputs) if through else 1)
        return numbers[-1]

    fold(plan.root, joined)
    widest = max(numbers)
    if widest <= MOST_JOINED:
        return None
    return Unsupported(
        f"a program for a join of more than {MOST_JOINED} tables has a query over all of them for each",
        f"{widest} tables",
    )
