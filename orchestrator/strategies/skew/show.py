"""Text representations of plans over heavy and light parts."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.strategies.skew.exponents import written
from orchestrator.strategies.skew.triangle import Rule, SkewPlan
from orchestrator.strategies.skew.union_plan import UnionPlan
from orchestrator.strategies.viewtree.classes import power
from orchestrator.strategies.viewtree.tree import View


def plan_text(plan: SkewPlan) -> str:
    """Return the parts, the stored views, and the rules for changes of each atom, as text.

    A star marks what is stored.
    """
    return "\n".join(_lines(plan))


def drawn(plan: UnionPlan) -> str:
    """Return the summands of a union, and the views that they join, as text.

    A star marks what is stored.
    """
    return "\n".join(_drawn(plan))


def _drawn(plan: UnionPlan) -> Iterator[str]:
    if plan.divisions:
        yield f"divided at {written(plan.guarantee.epsilon)}:"
    for division in plan.divisions:
        by = ", ".join(sorted(division.split.on))
        yield f"  {', '.join(division.split.atoms)} by {by}: {division.heavy.name} *"
    many = len(plan.unions) > 1
    yield f"the sum of {len(plan.unions)} joins:" if many else "the join:"
    for trees in plan.unions:
        yield "  " + " ⋈ ".join(view.label for tree in trees for view in tree.frontier)
    yield "stored:"
    for view in plan.views:
        if view in plan.stored and not view.indicator:
            yield f"  {view.label} *"
            yield from (f"    {line}" for child in view.children for line in _below(child, plan))


def _below(view: View, plan: UnionPlan) -> Iterator[str]:
    """Yield the views that a view joins, down to stored views."""
    yield view.label
    if view not in plan.stored:
        yield from (f"  {line}" for child in view.children for line in _below(child, plan))


def _lines(plan: SkewPlan) -> Iterator[str]:
    divided = [division.atom for division in plan.divisions if division.on]
    at = written(plan.exponents.epsilon)
    if plan.exponents.own:
        at = ", ".join(f"{written(plan.exponents.of(atom))} ({atom})" for atom in divided)
    yield f"divided at {at}, the rows of heavy values and those of light ones:"
    for split in dict.fromkeys(split for division in plan.divisions for split in division.together):
        yield f"  {', '.join(split.atoms)} by {', '.join(sorted(split.on))}"
    for division in sorted(plan.divisions, key=lambda division: not division.on):
        by = ", ".join(dict.fromkeys(name for on in division.on for name in sorted(on)))
        how = f"by {by}" if by else "whole"
        yield f"  {division.atom} {how}: {', '.join(f'{part.label} *' for part in division.parts)}"
    yield "stored besides:"
    for view in plan.views:
        costs = [
            (child, power(cost)) for (above, child), cost in plan.upkeep.items() if above == view
        ]
        kept = ", of ".join(f"{_short(child)} in {cost}" for child, cost in costs)
        yield f"  {view.label} *, kept after a change of {kept}"
    for atom, rules in plan.rules.items():
        yield f"a change of {atom} adds to {plan.root.label} *:"
        for rule in rules:
            yield f"  {rule.case.name}: {_joined(rule)} in {power(rule.exponent)}"
    for tree in plan.factorized:
        beside = f"{tree.joined.label} ⋈ {tree.whole.label}"
        yield f"and to this is added {beside}, found from {tree.known.label}"


def _short(view: View) -> str:
    return view.label if view.children else view.name


def _joined(rule: Rule) -> str:
    return " ⋈ ".join([f"δ{rule.part.name}", *(view.label for view in rule.met)])
