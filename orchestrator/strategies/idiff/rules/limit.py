"""λ(R), ORDER BY ... LIMIT: the first rows of the whole input (`first_rows.py`)."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.passes.complete_orders import require_determined
from orchestrator.algebra.scalar import Scalar, filled
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.deltascript.leaves import StateScan
from orchestrator.engine.composer import Composer
from orchestrator.strategies.idiff.first_rows import Prefix, maintain_prefix
from orchestrator.strategies.idiff.rules.stored import maintain


@maintain.register
def _(operator: Limit, composer: Composer, role: str) -> StateScan:
    require_determined(operator)
    if any(scalar.references or scalar.subqueries for scalar in operator.scalars):
        raise NotModelledError("how many rows are wanted is not constant", operator.label)
    prefix = Prefix(operator.input, (), operator.order, _needed(operator), operator.with_ties)
    return maintain_prefix(prefix, lambda rows: replace(operator, input=rows), composer, role)


def _needed(operator: Limit) -> Scalar:
    """Return how many rows the result and the skipped rows need; NULL for all."""
    count = operator.count or Scalar.read("NULL::bigint")
    offset = operator.offset or Scalar.read("0")
    return filled("n::bigint + coalesce(m, 0)::bigint", n=count, m=offset)
