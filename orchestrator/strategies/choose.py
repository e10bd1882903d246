"""`auto`: takes the best strategy that applies to a view, and says why not another.

Between ID-based diffs, with and without a cache, whole tuples and a view tree, what a change costs decides
(papers/idivm.txt, section 6; weighing.py). A triangle is kept in heavy and light parts if that pays by
the degrees of its most common values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from orchestrator.algebra.unsupported import Unsupported
from orchestrator.deltascript.plan import CACHE, MaintenancePlan, Reason
from orchestrator.errors import UnsupportedError
from orchestrator.strategies import plan_cost, recompute
from orchestrator.strategies.idiff import compose
from orchestrator.strategies.request import PlanningRequest
from orchestrator.strategies.skew import program as skew
from orchestrator.strategies.viewtree import program as viewtree

Planner = Callable[[PlanningRequest], MaintenancePlan | Unsupported]

STRATEGIES: dict[str, Planner] = {
    compose.NAME: compose.plan,
    compose.TUPLE: compose.plan_by_tuples,
    compose.RECURSIVE: compose.plan_recursively,
    viewtree.NAME: viewtree.plan,
    skew.NAME: skew.plan,
    recompute.NAME: recompute.plan,
}
"""Every strategy by its name, the preferred ones first."""

ASKED_FOR = (skew.NAME,)
"""Strategies that `auto` takes for what the degrees of values say, or not by itself."""

MARGIN = 0.8
"""A plan is taken in place of a preferred one if it costs at most so much of it."""

SAVED = 5.0
"""Lookups and rows that it must save as well: less says nothing, as over tables that are still empty."""

TREE_MARGIN, TREE_SAVED = 0.3, 20.0
"""The same for a view tree in place of another plan."""

MOST_COMPARED = 300
"""A query of more operators is planned in one way: to plan it in several takes long, and that way mostly
wins."""

_BECAUSE = {
    compose.NAME: "every operator has a rule for ID-based diffs",
    compose.TUPLE: "every operator has a rule for changes as bags of rows",
    compose.RECURSIVE: "every operator has a rule for changes as bags of rows",
    viewtree.NAME: "the query is a join with sums of products, grouped",
    skew.NAME: "the query is a triangle, a path or hierarchical, with heavy and light values",
    recompute.NAME: "it applies to every query; each refresh costs as much as the query",
}


def choose(request: PlanningRequest, wanted: str) -> MaintenancePlan:
    """The plan of the wanted strategy, or of the best one for `auto`."""
    if wanted not in (*STRATEGIES, "auto"):
        known = ", ".join(["auto", *STRATEGIES])
        raise UnsupportedError(f"There is no strategy {wanted!r}; choose one of {known}.")
    if request.factorized:
        if wanted not in ("auto", viewtree.NAME):
            raise UnsupportedError(
                f"The strategy {wanted} keeps no factorized result; take viewtree, or leave"
                " representation = factorized out."
            )
        wanted = viewtree.NAME
    reasons: list[Reason] = []
    tried_already: dict[str, MaintenancePlan | Unsupported] = {}
    if wanted == "auto" and not request.time_dependent:
        found = _compared(request, tried_already)
        if found is not None:
            return found
    weighed = {name: one for name, one in STRATEGIES.items() if name not in ASKED_FOR}
    tried = weighed if wanted == "auto" else {wanted: STRATEGIES[wanted]}
    for name, planner in tried.items():
        made = _moving(request, name) or tried_already.get(name) or planner(request)
        if isinstance(made, Unsupported):
            reasons.append(Reason(name, False, str(made)))
            continue
        because = _BECAUSE[name] if wanted == "auto" else "it was asked for"
        because = "; ".join([because, *(reason.because for reason in made.evidence.reasons)])
        if request.time_dependent:
            because += f"; {request.time_dependent[0]}, so that every refresh recomputes"
        because = "; ".join((because, *made.evidence.notes))
        prices = plan_cost.renewed(request, [made])
        missing = plan_cost.missing(request, made, [made])
        return made.because(Reason(name, True, because), *reasons, prices=prices, missing=missing)
    raise UnsupportedError(
        f"The strategy {wanted} cannot maintain this query: {reasons[0].because}."
        " Leave the choice to strategy = auto."
    )


def _compared(
    request: PlanningRequest, tried: dict[str, MaintenancePlan | Unsupported]
) -> MaintenancePlan | None:
    """The plan whose changes cost least by the model; none if there is nothing to choose between.

    `tried` takes up what was made of the strategies, so that nobody makes it again.
    """
    first = tried[compose.NAME] = compose.plan(request)
    if isinstance(first, Unsupported):
        # The other variants have nothing to be compared with.
        return None
    if compose.size(request) > MOST_COMPARED:
        because = f"the query has more than {MOST_COMPARED} operators, so that no other was weighed"
        taken = Reason(compose.NAME, True, "; ".join((because, *first.evidence.notes)))
        return first.because(
            taken,
            prices=plan_cost.renewed(request, [first]),
            missing=plan_cost.missing(request, first, [first]),
        )
    variants: list[tuple[str, MaintenancePlan | Unsupported]] = [(compose.NAME, first)]
    without = None
    if request.cache and request.cache_is_open and _has_cache(variants[0][1]):
        without = compose.plan(replace(request, cache=False))
        variants.append((f"{compose.NAME} without a cache", without))
    variants.append((compose.TUPLE, compose.plan_by_tuples(request)))
    tree = tried[viewtree.NAME] = viewtree.plan(request)
    if isinstance(tree, Unsupported) or tree.program.costs:
        variants.append((viewtree.NAME, tree))
    made = [(name, one) for name, one in variants if isinstance(one, MaintenancePlan)]
    plans = [one for _, one in made]
    prices = plan_cost.renewed(request, plans)
    found = plan_cost.estimates(request, plans, prices)
    estimates = {name: one for (name, _), one in zip(made, found, strict=True)}
    total = {name: one.change_microseconds or one.accesses for name, one in estimates.items()}
    best, plan = made[0]
    for name, one in made[1:]:
        # The model is rough: a little less is not less. But a cache, which takes space and whose
        # rows are dearer to write than others to read, has to pay for itself. A view tree has several
        # stored views, and what a large diff does to each is not in the model.
        margin, least = (TREE_MARGIN, TREE_SAVED) if one is tree else (MARGIN, SAVED)
        if one is without:
            margin, least = 1.0, 0.0
        saved = estimates[best].accesses - estimates[name].accesses
        measured = estimates[name].access_microseconds is not None
        if total[name] < margin * total[best] and (measured or saved >= least):
            best, plan = name, one
    because = "; ".join((str(estimates[best]), *plan.evidence.notes))
    reasons = [Reason(best, True, because, estimates[best])]
    reasons += [
        Reason(name, False, str(one), one) for name, one in estimates.items() if name != best
    ]
    reasons += [
        Reason(name, False, str(one)) for name, one in variants if isinstance(one, Unsupported)
    ]
    parted = skew.weighed(request)
    if parted is not None:
        pays = parted.parted < estimates[best].accesses
        by_parts = skew.plan(request) if pays else None
        if isinstance(by_parts, MaintenancePlan):
            because = "; ".join(
                [parted.described, *(one.because for one in by_parts.evidence.reasons)]
            )
            reasons = [replace(one, taken=False) for one in reasons]
            reasons = [Reason(skew.NAME, True, because), *reasons]
            return by_parts.because(*reasons, prices=prices)
        refused = isinstance(by_parts, Unsupported)
        reasons.append(Reason(skew.NAME, False, str(by_parts) if refused else parted.described))
    missing = plan_cost.missing(request, plan, plans)
    return plan.because(*reasons, prices=prices, missing=missing)


def _has_cache(plan: MaintenancePlan | Unsupported) -> bool:
    return isinstance(plan, MaintenancePlan) and any(s.role == CACHE for s in plan.program.states)


def _moving(request: PlanningRequest, name: str) -> Unsupported | None:
    if name == recompute.NAME or not request.time_dependent:
        return None
    return Unsupported(
        "the content changes while no captured table does", request.time_dependent[0]
    )
