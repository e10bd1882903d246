"""Estimate the average cost of a change under a plan, corrected by measured refreshes.

The model assumes that tables keep changing as often as PostgreSQL has counted, and gives changes that
never occurred a small weight. It counts accesses (papers/idivm.txt, section 6). The time of an access
depends on the plan variant, because writing a row of a cache costs more than reading a row, and on
properties of the view that the model does not know. Refreshes of the view itself measure both effects.
Refreshes of other views measure only the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
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
"""The highest weight of an access, as a multiple of the cheapest variant's, because measurements vary."""

ELSEWHERE = 2.0
"""The same bound when only other views were measured."""


MUCH_MORE = 1.25
"""A plan that is chosen for what it saves in large diffs may make the changes of a table so much dearer."""

TIMES_DEARER = 10.0
"""A missing index is reported if a change costs so many times as much without it."""

DEAR = 1000.0
"""A missing index is reported if a change without it costs at least so many lookups and rows."""


def accesses(costs: Sequence[Cost], request: PlanningRequest, *, indexed: bool = False) -> float:
    """Return the lookups and rows of a change, averaged over the changes that may occur.

    With `indexed`, or if the plan's indexes are created, scans that an index would avoid do not count.
    """
    indexed = indexed or request.create_indexes
    return _average(costs, request, lambda cost: cost.accesses + (0.0 if indexed else cost.scanned))


def saves_in_large_diffs(
    request: PlanningRequest, plan: MaintenancePlan, other: MaintenancePlan, margin: float
) -> bool:
    """Return whether one of many changed rows costs at most a fraction of what it costs under another plan.

    Each table must do its part: no change of a table may cost much more, alone or among many.
    """
    mine, others = plan.program.costs, other.program.costs
    if _average(mine, request, _least) > margin * _average(others, request, _least):
        return False
    for source in {cost.source for cost in mine}:
        ours, theirs = ([c for c in costs if c.source == source] for costs in (mine, others))
        for value in (_least, _single):
            if _average(ours, request, value) > MUCH_MORE * _average(theirs, request, value):
                return False
    return True


_least, _single = attrgetter("least"), attrgetter("accesses")
"""The cost of one of many changed rows, and of a row that changes alone."""


def _average(
    costs: Sequence[Cost], request: PlanningRequest, value: Callable[[Cost], float]
) -> float:
    """Return the average of a value over the changes that may occur, weighted by their frequency."""
    changes = {
        str(s): request.statistics[s.oid].changes
        for s in request.sources
        if s.oid in request.statistics
    }
    updates = Counter(cost.source for cost in costs if cost.kind is ChangeKind.UPDATE)
    total = weight = 0.0
    for cost in costs:
        count = changes.get(cost.source, {}).get(cost.kind, 0.0)
        frequency = 1.0 + (
            count / updates[cost.source] if cost.kind is ChangeKind.UPDATE else count
        )
        weight += frequency
        total += frequency * value(cost)
    return total / max(1.0, weight)


def missing(
    request: PlanningRequest, taken: MaintenancePlan, plans: Sequence[MaintenancePlan]
) -> tuple[MissingIndex, ...]:
    """Return the indexes whose absence makes a change of the taken plan many times as expensive.

    The comparison is with the plan that would be cheapest if all indexes existed.
    """
    if request.create_indexes:
        return ()
    best = min(plans, key=lambda plan: accesses(plan.program.costs, request, indexed=True))
    least = max(1.0, accesses(best.program.costs, request, indexed=True))
    now = accesses(taken.program.costs, request)
    missing_indexes = []
    for probe in dict.fromkeys(scan[:2] for cost in best.program.costs for scan in cost.scans):
        scans = _average(best.program.costs, request, partial(_scanned, probe))
        without = min(now, least + scans)
        if without >= TIMES_DEARER * least and without >= DEAR:
            missing_indexes.append(MissingIndex(Probe(*probe), without / least))
    return tuple(sorted(missing_indexes, key=lambda index: -index.factor))


def _scanned(probe: tuple[int, tuple[int, ...]], cost: Cost) -> float:
    return sum(accesses for *scan, accesses in cost.scans if tuple(scan) == probe)


def current_prices(request: PlanningRequest, plans: Sequence[MaintenancePlan]) -> tuple[Price, ...]:
    """Return the measured prices per access, converted to the accesses that the plans expect today.

    A view planned over empty tables needed more accesses than its plan expected. The measured time of a
    change stays as it is, whatever number of accesses the plan expected then.
    """
    expected = {
        plan.program.variant: accesses(plan.program.costs, request, indexed=True) for plan in plans
    }

    def convert(price: Price) -> Price:
        now = expected.get(price.variant, 0.0)
        if not price.costs or not now:
            return replace(price, costs=())
        # The price is for lookups, but the measured time includes scans: take their share out.
        looked_up = accesses(price.costs, request, indexed=True)
        share = looked_up / now * looked_up / max(accesses(price.costs, request), 1.0)
        return replace(price, seconds=price.seconds * share, costs=())

    return tuple(map(convert, request.prices))


def estimates(
    request: PlanningRequest, plans: Sequence[MaintenancePlan], prices: Sequence[Price]
) -> list[Estimate]:
    """Return the cost estimate of a change under each plan.

    Refreshes of other views only show how plan variants compare, because an access of one view may take
    many times as long as an access of another. Without any measurement each access counts as 1.
    """
    own = {price.variant: price for price in prices if not price.views}
    others = {price.variant: price for price in prices if price.views}
    weights = _access_weights(
        [plan.program.variant for plan in plans], _seconds(own), _seconds(others)
    )
    return [
        Estimate(
            accesses(plan.program.costs, request),
            own.get(plan.program.variant) or others.get(plan.program.variant),
            weights[plan.program.variant] * 1e6 if weights else None,
        )
        for plan in plans
    ]


def _seconds(prices: Mapping[str, Price]) -> dict[str, float]:
    return {variant: price.seconds for variant, price in prices.items()}


def _access_weights(
    variants: Sequence[str], own: Mapping[str, float], others: Mapping[str, float]
) -> dict[str, float]:
    """Return the weight of an access for each plan variant, from the view's own and other refreshes.

    >>> _access_weights(["id", "tuple"], {"id": 6.0}, {"id": 2.0, "tuple": 3.0})
    {'id': 6.0, 'tuple': 9.0}
    >>> _access_weights(["id", "tuple"], {"id": 6.0, "tuple": 30.0}, {})
    {'id': 6.0, 'tuple': 24.0}
    >>> _access_weights(["id", "tuple"], {}, {"id": 9.0, "tuple": 3.0})
    {'id': 6.0, 'tuple': 3.0}
    >>> _access_weights(["id", "tuple"], {"id": 6.0}, {"tuple": 3.0})
    {'id': 6.0, 'tuple': 6.0}
    """
    measured = [variant for variant in variants if variant in own]
    least = min((others[variant] for variant in variants if variant in others), default=0.0)
    relative = {variant: min(others.get(variant, 0.0), ELSEWHERE * least) for variant in variants}
    if measured:
        reference = measured[0]

        def estimated(variant: str) -> float:
            if relative[variant] and relative[reference]:
                return own[reference] * relative[variant] / relative[reference]
            return own[reference]

        weights = {variant: own.get(variant) or estimated(variant) for variant in variants}
        most = BOUND * min(weights.values())
        return {variant: min(weight, most) for variant, weight in weights.items()}
    known = [weight for weight in relative.values() if weight]
    return {variant: relative[variant] or median(known) for variant in variants} if known else {}
