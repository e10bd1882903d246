"""Counts without free variables over heavy and light parts (papers/ivm-eps-counting-triangles.txt).

Each change fixes the values of all variables but one, and iterates over the possible values of that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from orchestrator.algebra.unsupported import Unsupported
from orchestrator.strategies.skew.exponents import Exponents
from orchestrator.strategies.skew.triangle import (
    HEAVY,
    LIGHT,
    Case,
    Division,
    Rule,
    SkewPlan,
    joined,
)
from orchestrator.strategies.viewtree.hypergraph import Hypergraph, Variables
from orchestrator.strategies.viewtree.tree import View


def loomis_whitney(graph: Hypergraph, exponents: Exponents) -> SkewPlan | Unsupported:
    """Return the plan of a Loomis-Whitney count (appendix F): each atom lacks one variable of all.

    An atom is divided on the variable that the next atom lacks. A change of R1 leaves open the variable
    that R1 lacks, on which the last atom is divided. If an atom in between is light, few of its rows match.
    If all atoms in between are heavy, there are two cases: the last atom's heavy part has few values, and
    for its light part the join is stored. (The paper defines that join twice; only the second definition
    works.)

    >>> from orchestrator.strategies.skew.show import plan_text
    >>> edges = {"R": "ABC", "S": "BCD", "T": "CDA", "U": "DAB"}
    >>> count = loomis_whitney(Hypergraph.of(edges), Exponents(Fraction(1, 2)))
    >>> for line in plan_text(count).splitlines()[:13]:
    ...     print(line)
    divided at N^1/2, the rows of heavy values and those of light ones:
      R by A: R_h[A, B, C] *, R_l[A, B, C] *
      S by B: S_h[B, C, D] *, S_l[B, C, D] *
      T by C: T_h[A, C, D] *, T_l[A, C, D] *
      U by D: U_h[A, B, D] *, U_l[A, B, D] *
    stored besides:
      V@D(S_h, T_h, U_l)[A, B, C] *, kept after a change of U_l in O(N^1/2), of T_h in O(N^1/2), of S_h in O(N^1/2)
      V@A(R_l, T_h, U_h)[B, C, D] *, kept after a change of R_l in O(N^1/2), of U_h in O(N^1/2), of T_h in O(N^1/2)
      V@B(R_h, S_l, U_h)[A, C, D] *, kept after a change of S_l in O(N^1/2), of R_h in O(N^1/2), of U_h in O(N^1/2)
      V@C(R_h, S_h, T_l)[A, B, D] *, kept after a change of T_l in O(N^1/2), of S_h in O(N^1/2), of R_h in O(N^1/2)
    a change of R adds to V(R, S, T, U)[] *:
      - l - -: δR ⋈ S_l[B, C, D] ⋈ T[A, C, D] ⋈ U[A, B, D] in O(N^1/2)
      - h l -: δR ⋈ T_l[A, C, D] ⋈ S_h[B, C, D] ⋈ U[A, B, D] in O(N^1/2)
    """
    schemas = [schema for _, schema in graph.edges]
    many = len(schemas)
    every = frozenset[str]().union(*schemas)
    everywhere = frozenset.intersection(*schemas) if schemas else every
    lacking = [every - schema for schema in schemas]
    disjoint = sum(map(len, lacking)) == len(every - everywhere)
    if many < 3 or not all(lacking) or not disjoint or graph.free - everywhere:
        return Unsupported("it is no Loomis-Whitney count", where(graph))
    divisions = [
        Division(name, schema, (lacking[(n + 1) % many] | everywhere,))
        for n, (name, schema) in enumerate(graph.edges)
    ]
    views: list[View] = []
    upkeep: dict[tuple[View, View], Fraction] = {}
    rules: dict[str, tuple[Rule, ...]] = {}
    for n, division in enumerate(divisions):
        others = [divisions[(n + step) % many] for step in range(1, many)]
        *between, last = others
        # The parts come in the order in which the view's changes join them.
        parts = (last.part(LIGHT), *(other.part(HEAVY) for other in reversed(between)))
        view = joined(graph, division.schema, parts, lacking[n])
        views.append(view)
        upkeep |= {(view, child): exponents.light(last.atom) for child in parts}
        upkeep[view, parts[0]] = exponents.heavy(between[-1].atom)
        rules_of_atom: list[Rule] = []
        for position, other in enumerate(between):
            light, before, after = other.part(LIGHT), between[:position], others[position + 1 :]
            looked_up = [b.part(HEAVY) for b in before] + [a.whole for a in after]
            rules_of_atom.append(
                rule(divisions, division, (light, *looked_up), exponents.light(other.atom))
            )
        heavy = (last.part(HEAVY), *(other.part(HEAVY) for other in between))
        rules_of_atom.append(rule(divisions, division, heavy, exponents.heavy(last.atom)))
        rules_of_atom.append(through(divisions, division, parts, view))
        rules[division.atom] = tuple(rules_of_atom)
    kind = "a triangle" if many == 3 else f"a Loomis-Whitney count of degree {many}"
    return plan_of(graph, exponents, kind, divisions, rules, views, upkeep)


def path(graph: Hypergraph, exponents: Exponents) -> SkewPlan | Unsupported:
    """Return the plan of R(A), S(A, B), T(B) (appendix H).

    Besides the triangle, it is the only count over three atoms that is not hierarchical. S is divided on
    A. A change of R matches few rows of S if its A is light. For heavy values the join of S and T is
    stored; a change of T iterates over the few heavy values. For light values the join of R and S is
    stored.

    >>> from orchestrator.strategies.skew.show import plan_text
    >>> print(plan_text(path(Hypergraph.of({"R": "A", "S": "AB", "T": "B"}), Exponents(Fraction(1, 4)))))
    divided at N^1/4, the rows of heavy values and those of light ones:
      S by A: S_h[A, B] *, S_l[A, B] *
      R whole: R[A] *
      T whole: T[B] *
    stored besides:
      V@B(S_h, T)[A] *, kept after a change of S_h in O(1), of T in O(N^3/4)
      V@A(R, S_l)[B] *, kept after a change of S_l in O(1), of R in O(N^1/4)
    a change of R adds to V(R, S, T)[] *:
      - h -: δR ⋈ V@B(S_h, T)[A] in O(1)
      - l -: δR ⋈ S_l[A, B] ⋈ T[B] in O(N^1/4)
    a change of S adds to V(R, S, T)[] *:
      - - -: δS ⋈ R[A] ⋈ T[B] in O(1)
    a change of T adds to V(R, S, T)[] *:
      - h -: δT ⋈ S_h[A, B] ⋈ R[A] in O(N^3/4)
      - l -: δT ⋈ V@A(R, S_l)[B] in O(1)
    """
    refusal = Unsupported("it is no count over three tables in a row", where(graph))
    if len(graph.edges) != 3:
        return refusal
    everywhere = frozenset.intersection(*(schema for _, schema in graph.edges))
    middles = [n for n, (_, schema) in enumerate(graph.edges) if schema == _around(graph, n)]
    if len(middles) != 1 or graph.free - everywhere:
        return refusal
    [middle] = middles
    name, schema = graph.edges[middle]
    (first, start), (last, end) = (edge for n, edge in enumerate(graph.edges) if n != middle)
    if start & end != everywhere or start == everywhere or end == everywhere:
        return refusal
    across = Division(name, schema, (start,))
    at_start, at_end = Division(first, start, ()), Division(last, end, ())
    heavy, light = across.part(HEAVY), across.part(LIGHT)
    heavy_view = joined(graph, start, (heavy, at_end.whole), end - everywhere)
    light_view = joined(graph, end, (light, at_start.whole), start - everywhere)
    none = Fraction(0)
    divisions = [Division(n, s, (start,) if n == name else ()) for n, s in graph.edges]

    rules = {
        first: (
            through(divisions, at_start, heavy_view.children, heavy_view),
            rule(divisions, at_start, (light, at_end.whole), exponents.light(name)),
        ),
        name: (rule(divisions, across, (at_start.whole, at_end.whole), none),),
        last: (
            rule(divisions, at_end, (heavy, at_start.whole), exponents.heavy(name)),
            through(divisions, at_end, light_view.children, light_view),
        ),
    }
    upkeep = {
        (heavy_view, heavy): none,
        (heavy_view, at_end.whole): exponents.heavy(name),
        (light_view, light): none,
        (light_view, at_start.whole): exponents.light(name),
    }
    ordered = {division.atom: rules[division.atom] for division in divisions}
    linear = replace(exponents, linear=True)
    kind = "a count over three tables in a row"
    return plan_of(graph, linear, kind, divisions, ordered, [heavy_view, light_view], upkeep)


def _around(graph: Hypergraph, place: int) -> Variables:
    return frozenset[str]().union(*(s for n, (_, s) in enumerate(graph.edges) if n != place))


def rule(
    divisions: Sequence[Division],
    division: Division,
    met: Sequence[View],
    exponent: Fraction,
    part: View | None = None,
) -> Rule:
    """Return the rule for a change of an atom, or of its part: it joins parts of others and stored views."""
    changed = part or division.whole
    leaves = {leaf.atoms[0]: leaf for view in met for leaf in view.walk() if not leaf.children}
    return Rule(_case(divisions, {**leaves, division.atom: changed}), changed, tuple(met), exponent)


def through(
    divisions: Sequence[Division], division: Division, parts: Sequence[View], view: View
) -> Rule:
    """Return the rule for a change of an atom if the join of all other atoms is stored."""
    leaves = {part.atoms[0]: part for part in parts}
    case = _case(divisions, {**leaves, division.atom: division.whole}, view)
    return Rule(case, division.whole, (view,), Fraction(0))


def _case(
    divisions: Sequence[Division], parts: Mapping[str, View], view: View | None = None
) -> Case:
    return Case(tuple(parts[division.atom] for division in divisions), view)


def plan_of(
    graph: Hypergraph,
    exponents: Exponents,
    kind: str,
    divisions: Sequence[Division],
    rules: Mapping[str, tuple[Rule, ...]],
    views: Sequence[View],
    upkeep: Mapping[tuple[View, View], Fraction],
) -> SkewPlan:
    """Return the plan of a count, given the rules for all cases."""
    names = tuple(division.atom for division in divisions)
    root = View(graph.free, names, tuple(division.whole for division in divisions))
    return SkewPlan(kind, exponents, tuple(divisions), root, rules, tuple(views), upkeep, ())


def where(graph: Hypergraph) -> str:
    """Return a query's atoms as text."""
    return ", ".join(f"{name}({', '.join(sorted(schema))})" for name, schema in graph.edges)
