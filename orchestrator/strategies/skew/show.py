"""Plans over heavy and light parts, for people."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.strategies.skew.exponents import written
from orchestrator.strategies.skew.hierarchical import UnionPlan
from orchestrator.strategies.skew.triangle import SkewPlan
from orchestrator.strategies.viewtree.classes import power
from orchestrator.strategies.viewtree.tree import View


def shown(plan: SkewPlan) -> str:
    """The parts, the stored views, and the rules for the changes of each atom.

    A star marks what is stored.
    """
    return "\n".join(_lines(plan))


def drawn(plan: UnionPlan) -> str:
    """The summands of a union, and the views from which they are joined.

    A star marks what is stored.
    """
    return "\n".join(_drawn(plan))


def _drawn(plan: UnionPlan) -> Iterator[str]:
    if plan.divisions:
        yield f"divided at {written(plan.guarantee.epsilon)}:"
    for one in plan.divisions:
        by = ", ".join(sorted(one.split.on))
        yield f"  {', '.join(one.split.atoms)} by {by}: {one.heavy.name} *"
    many = len(plan.unions) > 1
    yield f"the sum of {len(plan.unions)} joins:" if many else "the join:"
    for trees in plan.unions:
        yield "  " + " ⋈ ".join(view.label for tree in trees for view in tree.frontier)
    yield "stored:"
    for view in plan.views:
        if view in plan.stored and not view.indicator:
            yield f"  {view.label} *"
            yield from (f"    {one}" for child in view.children for one in _below(child, plan))


def _below(view: View, plan: UnionPlan) -> Iterator[str]:
    """What a view is joined from, down to what is stored."""
    yield view.label
    if view not in plan.stored:
        yield from (f"  {one}" for child in view.children for one in _below(child, plan))


def _lines(plan: SkewPlan) -> Iterator[str]:
    space = power(plan.exponents.space)
    yield f"divided at {written(plan.exponents.epsilon)}, the rows of heavy values and those of light ones:"
    for one in plan.divisions:
        heavy, light = (f"{part.label} *" for part in one.parts)
        yield f"  {one.atom} by {', '.join(sorted(one.on))}: {heavy}, {light}"
    yield "stored besides:"
    for view in plan.views:
        heavy, light = (f"{one.name} in {power(plan.upkeep[view, one])}" for one in view.children)
        yield f"  {view.label} *, {space} rows, kept after a change of {heavy}, of {light}"
    for atom, rules in plan.rules.items():
        yield f"a change of {atom} adds to {plan.root.label} *:"
        for rule in rules:
            yield f"  {rule.case}: {_joined(atom, rule.met)} in {power(rule.exponent)}"


def _joined(atom: str, met: tuple[View, ...]) -> str:
    return " ⋈ ".join([f"δ{atom}", *(view.label for view in met)])
