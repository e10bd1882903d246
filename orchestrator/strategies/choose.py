"""Choose a strategy: `auto` picks the cheapest plan for a view and gives the reasons against the others.

The expected cost of a change decides between ID-based diffs with and without a cache, whole tuples and a
view tree (papers/idivm.txt, section 6; plan_cost.py). A triangle gets heavy and light parts if the
degrees of its most common values make that cheaper, and a 4-cycle or a similar join if the bound of a
change over its cases is below the expected cost without parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from orchestrator.algebra.unsupported import Unsupported
from orchestrator.deltascript.plan import (
    CACHE,
    EAGER,
    ON_READ,
    Estimate,
    MaintenancePlan,
    Reason,
    Strategy,
)
from orchestrator.errors import UnsupportedError
from orchestrator.strategies import plan_cost, recompute, streams
from orchestrator.strategies.idiff import compose
from orchestrator.strategies.request import PlanningRequest
from orchestrator.strategies.skew import program as skew
from orchestrator.strategies.viewtree import program as viewtree
from orchestrator.strategies.viewtree.form import is_looked_up

Planner = Callable[[PlanningRequest], MaintenancePlan | Unsupported]

STRATEGIES: dict[Strategy, Planner] = {
    Strategy.ID: compose.plan,
    Strategy.TUPLE: compose.plan_by_tuples,
    Strategy.RECURSIVE: compose.plan_recursively,
    Strategy.VIEW_TREE: viewtree.plan,
    Strategy.SKEW: skew.plan,
    Strategy.RECOMPUTE: recompute.plan,
}
"""Every strategy with its planner, preferred strategies first."""

MARGIN = 0.8
"""A plan replaces a preferred plan if it costs at most this fraction of the preferred plan."""

SAVED = 5.0
"""It must also save at least so many lookups and rows, because ratios mean little over empty tables."""

TREE_MARGIN, TREE_SAVED = 0.3, 20.0
"""The margin and the saving for a view tree that replaces another plan. The margin may hold for large diffs alone."""

SAVED_BY_ROW, FEW = 2.0, 10
"""A view finds its first rows at each read if the query has so many times as many rows as its tables, for each of them.

A change and a read then together take less time than a change under `id`. Reading fewer rows costs as much as FEW.
"""

CACHE_MARGIN = 0.95
"""A plan keeps a cache only if it then costs at most this fraction of the plan without the cache."""

MOST_COMPARED = 300
"""Above this number of operators only one variant is planned: planning is slow, and `id` usually wins."""

MOST_STEPS = 250
"""Above this number of steps of the plan by `id` no other variant is planned, for the same reason."""

_BECAUSE = {
    Strategy.ID: "every operator has a rule for ID-based diffs",
    Strategy.TUPLE: "every operator has a rule for changes as bags of rows",
    Strategy.RECURSIVE: "every operator has a rule for changes as bags of rows",
    Strategy.VIEW_TREE: "the query is a join with sums of products, grouped",
    Strategy.SKEW: "the query is a triangle, a path or hierarchical, with heavy and light values",
    Strategy.RECOMPUTE: "it applies to every query; each refresh costs as much as the query",
}


def choose(request: PlanningRequest, wanted: str) -> MaintenancePlan:
    """Return the plan of the wanted strategy, or for `auto` of the cheapest."""
    plan = _chosen(request, wanted)
    if request.maintain != EAGER:
        return plan
    note = _on_writers(request, plan)
    reasons = (
        replace(reason, because=f"{reason.because}; {note}") if reason.taken else reason
        for reason in plan.evidence.reasons
    )
    return replace(plan, evidence=replace(plan.evidence, reasons=tuple(reasons)))


def _on_writers(request: PlanningRequest, plan: MaintenancePlan) -> str:
    """Return whether writers share an eager view, and why not."""
    if plan.merges:
        return "no writer waits for another, and reads merge what no writer has added to the content yet"
    if not request.may_be_shared:
        reason = "an option asks for it"
    elif len(request.sources) > 1:
        reason = "a refresh reads several tables"
    else:
        reason = plan.program.not_merged or "a refresh reads the table"
    return f"writers run one at a time: {reason.removesuffix(': ')}"


def _chosen(request: PlanningRequest, wanted: str) -> MaintenancePlan:
    names = ["auto", *map(str, STRATEGIES)]
    if wanted not in names:
        known = ", ".join(names)
        raise UnsupportedError(f"There is no strategy {wanted!r}; choose one of {known}.")
    if request.factorized:
        option = _factorizing(request)
        if wanted not in ("auto", Strategy.VIEW_TREE):
            raise UnsupportedError(
                f"The strategy {wanted} keeps no factorized result; take viewtree, or leave"
                f" {option} out."
            )
        if request.feed:
            raise UnsupportedError(
                "A factorized result stores no rows, so that it can have no feed of their changes; leave out"
                f" feed = on or {option}, or give a view above it the feed."
            )
        if request.table:
            raise UnsupportedError(
                "A factorized result stores no rows, so that users cannot read them as a table; leave out"
                f" relation = table or {option}."
            )
        wanted = str(Strategy.VIEW_TREE)
    if request.streams:
        return _over_streams(request, wanted)
    plans: dict[Strategy, MaintenancePlan | Unsupported] = {}
    best = None
    if wanted == "auto" and not request.time_dependent:
        best = _cheapest(request, plans)
    if request.maintain == ON_READ or (request.may_be_shared and len(request.sources) == 1):
        plan = _merging(request, wanted, best, plans)
        if isinstance(plan, MaintenancePlan):
            return plan
        if request.maintain == ON_READ:
            raise UnsupportedError(
                f"A read cannot merge the pending changes of this query: {plan}."
                " Take maintain = eager, or maintain = deferred with idivm serve."
            )
    if best is not None:
        return best
    if wanted != "auto":
        candidates = [Strategy(wanted)]
    else:
        candidates = [name for name in STRATEGIES if name != Strategy.SKEW]
        if not request.time_dependent:
            plans.setdefault(Strategy.VIEW_TREE, _tree(request))
    return _first(request, candidates, plans, asked_for=wanted != "auto")


def _over_streams(request: PlanningRequest, wanted: str) -> MaintenancePlan:
    """Return the first plan that needs no row of a stream but the changed ones.

    Preferred are plans whose states do not hold such rows either.
    """
    if request.maintain == ON_READ:
        raise UnsupportedError(
            "A read cannot merge the pending changes of a stream, whose rows are in files; take maintain = deferred."
        )
    attempts = [
        (Strategy.ID, replace(request, cache=False)),
        (Strategy.VIEW_TREE, request),
        *((name, request) for name in (Strategy.ID, Strategy.TUPLE, Strategy.RECURSIVE)),
    ]
    if wanted != "auto":
        attempts = [(Strategy(wanted), request)]
    refusals: dict[str, Reason] = {}
    for name, asked in attempts:
        plan = _stored(request, STRATEGIES[name](asked))
        if isinstance(plan, MaintenancePlan):
            plan = streams.over_streams(plan, request.streams)
        if isinstance(plan, Unsupported):
            refusals.setdefault(name, Reason(name, False, str(plan)))
            continue
        because = ["it needs no row of a stream but the changed ones"]
        because += [reason.because for reason in plan.evidence.reasons]
        others = [refusal for other, refusal in refusals.items() if other != name]
        return _taken(request, plan, name, because, others)
    reasons = "; ".join(f"{name}: {reason.because}" for name, reason in refusals.items())
    raise UnsupportedError(
        f"The query cannot be maintained from the changes of a stream and from states alone ({reasons})."
    )


def _merging(
    request: PlanningRequest,
    wanted: str,
    best: MaintenancePlan | None,
    plans: Mapping[Strategy, MaintenancePlan | Unsupported],
) -> MaintenancePlan | str:
    """Return the cheapest plan whose content a read can merge with pending changes, or why there is none.

    For `auto`, `best` is the cheapest plan of all, and `plans` holds the plans tried before.
    """
    if best is not None and best.program.merged is not None:
        return best
    names = [Strategy.ID, Strategy.TUPLE] if wanted == "auto" else [Strategy(wanted)]
    because = "no rule says how"
    for name in names:
        plan = _time_dependence(request, name) or plans.get(name) or STRATEGIES[name](request)
        if isinstance(plan, MaintenancePlan) and plan.program.merged is not None:
            return _first(request, [name], {name: plan}, asked_for=wanted != "auto")
        if isinstance(plan, Unsupported):
            because = str(plan)
        elif plan.program.not_merged:
            because = plan.program.not_merged
            break
    return because.rstrip(": ")


def _first(
    request: PlanningRequest,
    candidates: Iterable[Strategy],
    plans: Mapping[Strategy, MaintenancePlan | Unsupported],
    *,
    asked_for: bool,
) -> MaintenancePlan:
    """Return the plan of the first strategy that applies; `plans` holds the plans tried before."""
    refusals: list[Reason] = []
    for name in candidates:
        plan = (
            _time_dependence(request, name)
            or plans.get(name)
            or _stored(request, STRATEGIES[name](request))
        )
        if isinstance(plan, Unsupported):
            refusals.append(Reason(name, False, str(plan)))
            continue
        because = ["it was asked for" if asked_for else _BECAUSE[name]]
        because += [reason.because for reason in plan.evidence.reasons]
        if request.time_dependent:
            because.append(f"{request.time_dependent[0]}, so that every refresh recomputes")
        return _taken(request, plan, name, because, refusals)
    advice = "Leave the choice to strategy = auto."
    if request.factorized:
        advice = f"Leave {_factorizing(request)} out."
    raise UnsupportedError(
        f"The strategy {refusals[0].strategy} cannot maintain this query: {refusals[0].because}."
        f" {advice}"
    )


def _factorizing(request: PlanningRequest) -> str:
    """Return the option that asks for a factorized result."""
    if request.ranked is not None:
        return "ranked"
    return "inputs" if request.inputs else "representation = factorized"


def _taken(
    request: PlanningRequest,
    plan: MaintenancePlan,
    name: Strategy,
    because: Sequence[str],
    refusals: Sequence[Reason],
) -> MaintenancePlan:
    """Return a plan with the reasons why it was taken, and no other."""
    return plan.because(
        Reason(name, True, "; ".join((*because, *plan.evidence.notes))),
        *refusals,
        prices=plan_cost.current_prices(request, [plan]),
        missing=plan_cost.missing(request, plan, [plan]),
    )


def _cheapest(
    request: PlanningRequest, plans: dict[Strategy, MaintenancePlan | Unsupported]
) -> MaintenancePlan | None:
    """Return the plan with the lowest expected cost of a change, or None if `id` does not apply.

    The function adds the plans that it creates to `plans`.
    """
    first = plans[Strategy.ID] = compose.plan(request)
    if isinstance(first, Unsupported):
        # There is no plan by `id` to compare the other variants with.
        return None
    limits = (
        ("query", compose.size(request), MOST_COMPARED, "operators"),
        ("program", len(first.program.script), MOST_STEPS, "steps"),
    )
    for what, size, most, parts in limits:
        if size <= most:
            continue
        because = f"the {what} has more than {most} {parts}, so that no other was weighed"
        return _taken(request, first, Strategy.ID, [because], [])
    variants = _variants(request, first)
    tree = variants.get(Strategy.VIEW_TREE)
    if tree is not None:
        plans[Strategy.VIEW_TREE] = tree
    planned = {name: plan for name, plan in variants.items() if isinstance(plan, MaintenancePlan)}
    prices = plan_cost.current_prices(request, list(planned.values()))
    estimates = dict(
        zip(planned, plan_cost.estimates(request, list(planned.values()), prices), strict=True)
    )
    best = _least(request, planned, estimates)
    plan = planned[best]
    because = "; ".join((str(estimates[best]), *plan.evidence.notes))
    reasons = [Reason(best, True, because, estimates[best])]
    for name, estimate in estimates.items():
        if name != best:
            reasons.append(Reason(name, False, str(estimate), estimate))
    for name, refused in variants.items():
        if isinstance(refused, Unsupported):
            reasons.append(Reason(name, False, str(refused)))
    over_parts = skew.cost_of(request, estimates[best].accesses)
    if over_parts is not None:
        pays = over_parts.parted < estimates[best].accesses
        parted = _stored(request, skew.plan(request)) if pays else None
        if isinstance(parted, MaintenancePlan):
            because = "; ".join(
                [over_parts.described, *(reason.because for reason in parted.evidence.reasons)]
            )
            others = [replace(reason, taken=False) for reason in reasons]
            return parted.because(Reason(Strategy.SKEW, True, because), *others, prices=prices)
        refusal = str(parted) if isinstance(parted, Unsupported) else over_parts.described
        reasons.append(Reason(Strategy.SKEW, False, refusal))
    missing = plan_cost.missing(request, plan, list(planned.values()))
    return plan.because(*reasons, prices=prices, missing=missing)


def _tree(request: PlanningRequest) -> MaintenancePlan | Unsupported:
    """Return the plan by a view tree, unless reading the view would cost more than its rows."""
    first = viewtree.plan_first_rows(request)
    if isinstance(first, MaintenancePlan):
        if _saves_rows(request, first):
            return first
        sorted_at_reads = _tree(replace(request, first_rows=None))
        return sorted_at_reads if isinstance(sorted_at_reads, MaintenancePlan) else _FEW_ROWS
    query = None if request.factorized else request.recognized
    if query is not None and is_looked_up(query):
        return Unsupported("its groups would be looked up at each read", "ask for viewtree or skew")
    return viewtree.plan(request)


_UNCACHED = f"{Strategy.ID} without a cache"


def _variants(
    request: PlanningRequest, first: MaintenancePlan
) -> dict[str, MaintenancePlan | Unsupported]:
    """Return the plans to compare by name; the first is `first`, the plan by `id`."""
    variants: dict[str, MaintenancePlan | Unsupported] = {Strategy.ID: first}
    cached = any(state.role == CACHE for state in first.program.states)
    if request.cache and request.cache_is_open and cached:
        variants[_UNCACHED] = compose.plan(replace(request, cache=False))
    variants[Strategy.TUPLE] = compose.plan_by_tuples(request)
    tree = _stored(request, _tree(request))
    if isinstance(tree, Unsupported) or tree.program.costs:
        variants[Strategy.VIEW_TREE] = tree
    return variants


def _least(
    request: PlanningRequest,
    planned: Mapping[str, MaintenancePlan],
    estimates: Mapping[str, Estimate],
) -> str:
    """Return the variant that is cheaper by more than the model's error; the first variant is preferred."""
    best, *others = estimates
    total = {
        name: estimate.change_microseconds or estimate.accesses
        for name, estimate in estimates.items()
    }
    for name in others:
        # A cache takes space, its first rows may cost more than the query, and writing its rows costs more
        # than reading other rows, so the cache must save something. A view tree stores several views, which
        # large diffs change row by row, unless many changed rows share their groups.
        margin, least = MARGIN, SAVED
        if name == Strategy.VIEW_TREE:
            least = TREE_SAVED
            if not plan_cost.saves_in_large_diffs(
                request, planned[name], planned[best], TREE_MARGIN
            ):
                margin = TREE_MARGIN
        elif name == _UNCACHED:
            margin, least = 1 / CACHE_MARGIN, -math.inf
        saved = estimates[best].accesses - estimates[name].accesses
        measured = estimates[name].access_microseconds is not None
        if total[name] < margin * total[best] and (measured or saved >= least):
            best = name
    return best


_FEW_ROWS = Unsupported(
    "each read would find its rows in the order, and the query has too few other rows to save that much",
    "ask for viewtree",
)


def _saves_rows(request: PlanningRequest, plan: MaintenancePlan) -> bool:
    """Return whether the query of which a view shows the first rows has far more rows than its tables."""
    assert plan.ranking is not None and plan.ranking.excerpt is not None
    excerpt = plan.ranking.excerpt
    tables = sum(statistics.rows for statistics in request.statistics.values())
    return excerpt.expected > SAVED_BY_ROW * max(FEW, excerpt.skipped + excerpt.count) * tables


def _stored(
    request: PlanningRequest, plan: MaintenancePlan | Unsupported
) -> MaintenancePlan | Unsupported:
    """Return a plan, unless a feed or a table needs stored rows and the plan computes them when they are read."""
    if isinstance(plan, MaintenancePlan) and request.feed and not plan.program.is_stored:
        return Unsupported("it stores no rows whose changes a feed could have", "feed = on")
    if isinstance(plan, MaintenancePlan) and request.table and not plan.program.is_stored:
        return Unsupported("it stores no rows that a table could show", "relation = table")
    return plan


def _time_dependence(request: PlanningRequest, name: Strategy) -> Unsupported | None:
    """Return why only `recompute` applies if the content changes without a change of a captured table."""
    if name == Strategy.RECOMPUTE or not request.time_dependent:
        return None
    return Unsupported(
        "the content changes while no captured table does", request.time_dependent[0]
    )
