"""`auto`: takes the best strategy that applies to a view, and says why not another."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.deltascript.plan import MaintenancePlan, Reason
from orchestrator.errors import UnsupportedError
from orchestrator.strategies import recompute
from orchestrator.strategies.problem import Problem

Planner = Callable[[Problem, tuple[Reason, ...]], MaintenancePlan]

STRATEGIES: dict[str, Planner] = {recompute.NAME: recompute.plan}
"""Every strategy by its name, the preferred ones first."""


def choose(problem: Problem, wanted: str) -> MaintenancePlan:
    """The plan of the wanted strategy, or of the best one for `auto`."""
    if wanted not in (*STRATEGIES, "auto"):
        known = ", ".join(["auto", *STRATEGIES])
        raise UnsupportedError(f"There is no strategy {wanted!r}; choose one of {known}.")
    because = (
        "it was asked for"
        if wanted != "auto"
        else "it applies to every query; each refresh costs as much as the query"
    )
    moving = "".join(f"; {cause}, so that every refresh recomputes" for cause in problem.moving[:1])
    reasons = (Reason(recompute.NAME, True, because + moving),)
    return STRATEGIES[recompute.NAME](problem, reasons)
