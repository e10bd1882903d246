"""Plans of joins, selections and projections as a single product with conditions and outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.dependent_join import DependentJoin
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.group import Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.joining import Binary
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.project import Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.sort import Sort
from orchestrator.algebra.scalar import TRUE, Scalar


@dataclass(frozen=True)
class Flat:
    """π_items(σ_conditions(atom × atom × ...)); conditions and items read columns of the atoms."""

    atoms: tuple[Operator, ...]
    conditions: tuple[Scalar, ...]
    """The conjuncts of the condition."""
    items: Mapping[Column, Scalar]
    """The expressions of the plan's columns."""


def flattened(
    plan: Operator, probing: bool = False, atom: Callable[[Operator], Flat] | None = None
) -> Flat:
    """Return the product that a plan is equivalent to; any other operator is an atom.

    With `probing`, more operators count, as rows are looked up through them: outer joins and
    semijoins as joins, groups and distinct rows as the rows that they summarize. `atom` may return
    the product that replaces an atom.

    >>> from orchestrator.algebra.examples import running_example
    >>> flat = flattened(running_example().root)
    >>> [atom.label for atom in flat.atoms]
    ['parts', 'devices_parts', 'devices']
    >>> flat.conditions
    (Scalar(part = pid), Scalar(category = 'phone'), Scalar(device = did))
    """
    if atom is not None:
        return _flattened(plan, probing, atom)
    known: dict[bool, Flat] = plan.__dict__.setdefault("_flattened", {})
    if probing not in known:
        known[probing] = _flattened(plan, probing, None)
    return known[probing]


def _flattened(plan: Operator, probing: bool, atom: Callable[[Operator], Flat] | None) -> Flat:
    if isinstance(plan, Projection):
        below = flattened(plan.input, probing, atom)
        items = {item.column: in_terms(item.scalar, below.items) for item in plan.items}
        return Flat(below.atoms, below.conditions, items)
    if isinstance(plan, Selection):
        below = flattened(plan.input, probing, atom)
        return Flat(
            below.atoms,
            _with_conditions(below.conditions, plan.condition, below.items),
            below.items,
        )
    if isinstance(plan, Sort) or (probing and isinstance(plan, Distinct)):
        return flattened(plan.input, probing, atom)
    if probing and isinstance(plan, Grouping):
        below = flattened(plan.input, probing, atom)
        return Flat(below.atoms, below.conditions, {c: below.items[c] for c in plan.by})
    if probing and isinstance(plan, Antisemijoin) and not plan.right.children:
        # The antisemijoin removes rows that a diff names, which needs no lookup.
        return flattened(plan.left, probing, atom)
    if isinstance(plan, Join) or (probing and isinstance(plan, Binary)):
        other = plan.right
        if isinstance(plan, DependentJoin):
            # The limit applies to the rows that are looked up for each row of the left side.
            other = _without_limit(other)
        left, right = flattened(plan.left, probing, atom), flattened(other, probing, atom)
        items = {**left.items, **right.items}
        known = left.conditions + right.conditions
        return Flat(left.atoms + right.atoms, _with_conditions(known, plan.condition, items), items)
    if atom is not None:
        return atom(plan)
    return Flat((plan,), (), {column: Scalar.column(column) for column in plan.columns})


def _without_limit(plan: Operator) -> Operator:
    if isinstance(plan, Projection):
        return replace(plan, input=_without_limit(plan.input))
    return plan.input if isinstance(plan, Limit) and not plan.indexed else plan


def _with_conditions(
    known: Iterable[Scalar], condition: Scalar, items: Mapping[Column, Scalar]
) -> tuple[Scalar, ...]:
    own = () if condition == TRUE else condition.conjuncts
    return (*known, *(in_terms(conjunct, items) for conjunct in own))


def in_terms(scalar: Scalar, items: Mapping[Column, Scalar]) -> Scalar:
    """Return an expression over the columns of a plan in terms of the columns of its atoms."""
    return scalar.substitute(
        {c: items[c] for c in scalar.references if c in items and items[c].as_column != c}
    )
