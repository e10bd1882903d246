"""What a change costs on average under a plan, corrected by what refreshes measured.

A table is taken to change as often as PostgreSQL has counted, and a little in every other way: what was
never seen may come. The model counts accesses (papers/idivm.txt, section 6); what one takes depends on
the way of a plan, as a row of a cache is dearer to write than another to read, and on what the model
does not know of a view. So a view's own refreshes tell most; of a plan that it has not had, the
refreshes of other views do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from orchestrator.deltascript.plan import Cost, Estimate, MaintenancePlan, Price
from orchestrator.strategies.problem import Problem

BOUND = 4.0
"""No access counts more times than the cheapest: measurements depend on much beside the plan."""


def accesses(costs: Sequence[Cost], problem: Problem) -> float:
    """The lookups and rows of a change, on average over what changes may come."""
    changes = {
        str(s): problem.statistics[s.oid].changes
        for s in problem.sources
        if s.oid in problem.statistics
    }
    updates = Counter(one.source for one in costs if one.kind == "update")
    total = weight = 0.0
    for one in costs:
        seen = changes.get(one.source, {}).get(one.kind, 0.0)
        often = 1.0 + (seen / updates[one.source] if one.kind == "update" else seen)
        weight += often
        total += often * one.accesses
    return total / max(1.0, weight)


def renewed(problem: Problem, plans: Sequence[MaintenancePlan]) -> tuple[Price, ...]:
    """What is known of accesses, in those that the given plans expect today.

    A view that was planned over empty tables met more than was expected. What a change took is what was
    measured, whatever an access was called then.
    """
    expected = {plan.way: accesses(plan.costs, problem) for plan in plans}

    def today(price: Price) -> Price:
        now = expected.get(price.way, 0.0)
        share = accesses(price.costs, problem) / now if price.costs and now else 1.0
        return replace(price, seconds=price.seconds * share, costs=())

    return tuple(map(today, problem.prices))


def estimates(
    problem: Problem, plans: Sequence[MaintenancePlan], prices: Sequence[Price]
) -> list[Estimate]:
    """What a change costs under each plan.

    Where only some were measured, the others are taken to err as these do, so that nothing turns on it.
    """
    known = {price.way: price for price in prices}
    found = [known.get(plan.way) for plan in plans]
    measured = [price for price in found if price is not None]
    most = BOUND * min((price.seconds for price in measured), default=0.0)
    own = [price for price in measured if not price.views]
    usual = [min(price.seconds, most) for price in own or measured]

    def estimate(plan: MaintenancePlan, price: Price | None) -> Estimate:
        expected = accesses(plan.costs, problem)
        if not usual:
            return Estimate(expected)
        each = median(usual) if price is None else min(price.seconds, most)
        return Estimate(expected, price, each * 1e6)

    return [estimate(plan, price) for plan, price in zip(plans, found, strict=True)]
