"""Which plan over parts of atoms a query has, and the ε that the user wants of it."""

from __future__ import annotations

from fractions import Fraction

from orchestrator.algebra.unsupported import Unsupported
from orchestrator.errors import UsageError
from orchestrator.strategies.request import PlanningRequest
from orchestrator.strategies.skew.counts import loomis_whitney, path
from orchestrator.strategies.skew.exponents import Exponents
from orchestrator.strategies.skew.four_path import four_path
from orchestrator.strategies.skew.triangle import SkewPlan, triangle
from orchestrator.strategies.viewtree.form import NormalForm
from orchestrator.strategies.viewtree.hypergraph import Hypergraph


def parted(graph: Hypergraph, exponents: Exponents) -> SkewPlan | Unsupported:
    """The plan over parts of atoms of a query that is not hierarchical, or why it has none."""
    for make in (path, four_path) if exponents.double else (path, four_path, loomis_whitney):
        result = make(graph, exponents)
        if isinstance(result, SkewPlan):
            break
    else:
        result = triangle(graph, exponents)
    if isinstance(result, SkewPlan) and exponents.own:
        if exponents.double:
            return uneven("a triangle divided by both columns", exponents)
        if result.exponents.free or any(division.together for division in result.divisions):
            return uneven("a grouped triangle, or a 4-path count,", exponents)
    return result


def uneven(what: str, exponents: Exponents) -> Unsupported:
    """Why a query cannot have an ε for each relation."""
    names = ", ".join(name for name, _ in exponents.own)
    return Unsupported(f"{what} has one epsilon for all of its tables", names)


def exponents_of(request: PlanningRequest, form: NormalForm) -> Exponents:
    """What the user says of ε; of a table that is read more than once, each time has its ε."""
    every = {atom.name: atom for atom in form.atoms}
    own: dict[str, Fraction] = {}
    for name, epsilon in request.epsilons:
        named = [
            atom.name
            for atom in form.atoms
            for table in [atom.scan.table]
            if name in (table.name, f"{table.schema}.{table.name}")
        ]
        found = [name] if name in every else named
        if not found:
            raise UsageError(
                f"epsilon names {name!r}, which is no table of the query; it reads"
                f" {', '.join(every)}."
            )
        own |= dict.fromkeys(found, epsilon)
    return Exponents(request.epsilon, double=request.double, own=tuple(own.items()))
