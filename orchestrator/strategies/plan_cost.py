"""What a change costs on average under a plan, corrected by what refreshes measured.

A table is taken to change as often as PostgreSQL has counted, and a little in every other way: what was
never seen may come. The model counts accesses (papers/idivm.txt, section 6); what one takes depends on
the way of a plan, as a row of a cache is dearer to write than another to read, and on what the model
does not know of a view. A view's own refreshes tell of both, those of other views of the former.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

from orchestrator.deltascript.plan import (
    ChangeKind,
    Cost,
    Estimate,
    MaintenancePlan,
    MissingIndex,
    Price,
    Probe,
)
from orchestrator.strategies.request import PlanningRequest

BOUND = 4.0
"""No access counts more times than the cheapest: measurements depend on much beside the plan."""

ELSEWHERE = 2.0
"""The same as far as only other views tell."""


TIMES_DEARER = 10.0
"""A missing index is worth mentioning if a change costs so many times as much without it."""

DEAR = 1000.0
"""The same, in lookups and rows: less than that nobody notices."""


def accesses(costs: Sequence[Cost], request: PlanningRequest, *, indexed: bool = False) -> float:
    """The lookups and rows of a change, on average over what changes may come.

    With `indexed`, or if the indexes are created with the plan, no scan for want of an index counts.
    """
    indexed = indexed or request.create_indexes
    return _average(costs, request, lambda item: item.accesses + (0.0 if indexed else item.scanned))


def _average(
    costs: Sequence[Cost], request: PlanningRequest, value: Callable[[Cost], float]
) -> float:
    """The average over what changes may come."""
    changes = {
        str(s): request.statistics[s.oid].changes
        for s in request.sources
        if s.oid in request.statistics
    }
    updates = Counter(item.source for item in costs if item.kind is ChangeKind.UPDATE)
    total = weight = 0.0
    for cost in costs:
        seen = changes.get(cost.source, {}).get(cost.kind, 0.0)
        often = 1.0 + (seen / updates[cost.source] if cost.kind is ChangeKind.UPDATE else seen)
        weight += often
        total += often * value(cost)
    return total / max(1.0, weight)


def missing(
    request: PlanningRequest, taken: MaintenancePlan, plans: Sequence[MaintenancePlan]
) -> tuple[MissingIndex, ...]:
    """Return the indexes without which a change under the taken plan costs many times what it would cost
    with them, under the plan that would then be the best."""
    if request.create_indexes:
        return ()
    best = min(plans, key=lambda plan: accesses(plan.program.costs, request, indexed=True))
    least = max(1.0, accesses(best.program.costs, request, indexed=True))
    now = accesses(taken.program.costs, request)
    found = []
    for probe in dict.fromkeys(scan[:2] for cost in best.program.costs for scan in cost.scans):
        scans = _average(best.program.costs, request, partial(_scanned, probe))
        without = min(now, least + scans)
        if without >= TIMES_DEARER * least and without >= DEAR:
            found.append(MissingIndex(Probe(*probe), without / least))
    return tuple(sorted(found, key=lambda item: -item.factor))


def _scanned(probe: tuple[int, tuple[int, ...]], cost: Cost) -> float:
    return sum(accesses for *scan, accesses in cost.scans if tuple(scan) == probe)


def renewed(request: PlanningRequest, plans: Sequence[MaintenancePlan]) -> tuple[Price, ...]:
    """What is known of accesses, in those that the given plans expect today.

    A view that was planned over empty tables met more than was expected. What a change took is what was
    measured, whatever an access was called then.
    """
    expected = {
        plan.program.variant: accesses(plan.program.costs, request, indexed=True) for plan in plans
    }

    def today(price: Price) -> Price:
        now = expected.get(price.variant, 0.0)
        if not price.costs or not now:
            return replace(price, costs=())
        # What was measured is a price for lookups, which what they took had scans in it.
        looked_up = accesses(price.costs, request, indexed=True)
        share = looked_up / now * looked_up / max(accesses(price.costs, request), 1.0)
        return replace(price, seconds=price.seconds * share, costs=())

    return tuple(map(today, request.prices))


def estimates(
    request: PlanningRequest, plans: Sequence[MaintenancePlan], prices: Sequence[Price]
) -> list[Estimate]:
    """What a change costs under each plan.

    The refreshes of others tell how the ways of plans compare, and not more: an access of one view may
    take many times what one of another does. Where nothing was measured, an access is one.
    """
    own = {price.variant: price for price in prices if not price.views}
    others = {price.variant: price for price in prices if price.views}
    counted = _counted([plan.program.variant for plan in plans], _seconds(own), _seconds(others))
    return [
        Estimate(
            accesses(plan.program.costs, request),
            own.get(plan.program.variant) or others.get(plan.program.variant),
            counted[plan.program.variant] * 1e6 if counted else None,
        )
        for plan in plans
    ]


def _seconds(prices: Mapping[str, Price]) -> dict[str, float]:
    return {way: price.seconds for way, price in prices.items()}


def _counted(
    ways: Sequence[str], own: Mapping[str, float], others: Mapping[str, float]
) -> dict[str, float]:
    """What an access counts in each of some ways, as a view's own refreshes and others tell.

    >>> _counted(["id", "tuple"], {"id": 6.0}, {"id": 2.0, "tuple": 3.0})
    {'id': 6.0, 'tuple': 9.0}
    >>> _counted(["id", "tuple"], {"id": 6.0, "tuple": 30.0}, {})
    {'id': 6.0, 'tuple': 24.0}
    >>> _counted(["id", "tuple"], {}, {"id": 9.0, "tuple": 3.0})
    {'id': 6.0, 'tuple': 3.0}
    >>> _counted(["id", "tuple"], {"id": 6.0}, {"tuple": 3.0})
    {'id': 6.0, 'tuple': 6.0}
    """
    measured = [way for way in ways if way in own]
    least = min((others[way] for way in ways if way in others), default=0.0)
    relative = {way: min(others.get(way, 0.0), ELSEWHERE * least) for way in ways}
    if measured:
        first = measured[0]

        def told(way: str) -> float:
            if relative[way] and relative[first]:
                return own[first] * relative[way] / relative[first]
            return own[first]

        found = {way: own.get(way) or told(way) for way in ways}
        most = BOUND * min(found.values())
        return {way: min(each, most) for way, each in found.items()}
    usual = [each for each in relative.values() if each]
    return {way: relative[way] or median(usual) for way in ways} if usual else {}
