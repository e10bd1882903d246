"""`auto`: takes the best strategy that applies to a view, and says why not another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from orchestrator.algebra.unsupported import Unsupported
from orchestrator.deltascript.plan import MaintenancePlan, Reason
from orchestrator.errors import UnsupportedError
from orchestrator.strategies import recompute
from orchestrator.strategies.idiff import compose
from orchestrator.strategies.problem import Problem

Planner = Callable[[Problem], MaintenancePlan | Unsupported]

STRATEGIES: dict[str, Planner] = {
    compose.NAME: compose.plan,
    compose.TUPLE: compose.plan_by_tuples,
    recompute.NAME: recompute.plan,
}
"""Every strategy by its name, the preferred ones first."""

_BECAUSE = {
    compose.NAME: "every operator has a rule for ID-based diffs",
    compose.TUPLE: "every operator has a rule for changes as bags of rows",
    recompute.NAME: "it applies to every query; each refresh costs as much as the query",
}


def choose(problem: Problem, wanted: str) -> MaintenancePlan:
    """The plan of the wanted strategy, or of the best one for `auto`."""
    if wanted not in (*STRATEGIES, "auto"):
        known = ", ".join(["auto", *STRATEGIES])
        raise UnsupportedError(f"There is no strategy {wanted!r}; choose one of {known}.")
    tried = STRATEGIES if wanted == "auto" else {wanted: STRATEGIES[wanted]}
    reasons: list[Reason] = []
    for name, planner in tried.items():
        made = _moving(problem, name) or planner(problem)
        if isinstance(made, Unsupported):
            reasons.append(Reason(name, False, str(made)))
            continue
        because = _BECAUSE[name] if wanted == "auto" else "it was asked for"
        if problem.moving:
            because += f"; {problem.moving[0]}, so that every refresh recomputes"
        because = "; ".join((because, *made.notes))
        return replace(made, reasons=(Reason(name, True, because), *reasons))
    raise UnsupportedError(
        f"The strategy {wanted} cannot maintain this query: {reasons[0].because}."
        " Leave the choice to strategy = auto."
    )


def _moving(problem: Problem, name: str) -> Unsupported | None:
    if name == recompute.NAME or not problem.moving:
        return None
    return Unsupported("the content changes while no captured table does", problem.moving[0])
