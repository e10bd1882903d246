"""Choose the plan of a query over parts of atoms, and read the ε that the user requests."""

from __future__ import annotations

from fractions import Fraction

from orchestrator.algebra.unsupported import Unsupported
from orchestrator.errors import UsageError
from orchestrator.strategies.request import PlanningRequest
from orchestrator.strategies.skew.cases.plan import by_cases
from orchestrator.strategies.skew.counts import loomis_whitney, path
from orchestrator.strategies.skew.exponents import Exponents
from orchestrator.strategies.skew.four_path import four_path
from orchestrator.strategies.skew.triangle import SkewPlan, triangle
from orchestrator.strategies.viewtree.form import NormalForm
from orchestrator.strategies.viewtree.hypergraph import Hypergraph


def parted(graph: Hypergraph, exponents: Exponents) -> SkewPlan | Unsupported:
    """Return the plan over parts of atoms for a query that is not hierarchical, or why it has none."""
    for plan_function in (
        (path, four_path) if exponents.double else (path, four_path, loomis_whitney)
    ):
        result = plan_function(graph, exponents)
        if isinstance(result, SkewPlan):
            break
    else:
        few = len(graph.edges) < 4
        result = triangle(graph, exponents) if few else by_cases(graph, exponents)
    if isinstance(result, SkewPlan) and exponents.own:
        if exponents.double:
            return uneven("a triangle divided by both columns", exponents)
        if result.exponents.free or any(division.together for division in result.divisions):
            return uneven("a grouped triangle, or a 4-path count,", exponents)
    return result


def uneven(what: str, exponents: Exponents) -> Unsupported:
    """Return why a query cannot have a separate ε for each relation."""
    names = ", ".join(name for name, _ in exponents.own)
    return Unsupported(f"{what} has one epsilon for all of its tables", names)


def exponents_of(request: PlanningRequest, form: NormalForm) -> Exponents:
    """Return the requested ε; a table that the query reads several times has the ε for each of them."""
    atoms = {atom.name: atom for atom in form.atoms}
    own: dict[str, Fraction] = {}
    for name, epsilon in request.epsilons:
        by_table = [
            atom.name
            for atom in form.atoms
            for table in [scan.table for scan in atom.scans]
            if name in (table.name, f"{table.schema}.{table.name}")
        ]
        names = [name] if name in atoms else by_table
        if not names:
            raise UsageError(
                f"epsilon names {name!r}, which is no table of the query; it reads"
                f" {', '.join(atoms)}."
            )
        own |= dict.fromkeys(names, epsilon)
    return Exponents(
        request.epsilon,
        double=request.double,
        own=tuple(own.items()),
        open=request.epsilon_is_open,
    )
