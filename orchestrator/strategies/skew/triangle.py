"""The triangle query over heavy and light parts (papers/ivm-eps-counting-triangles.txt, section 3).

R(A, B), S(B, C) and T(C, A) are partitioned on A, B and C. The query is the sum of eight, one for
each choice of parts. A change of R meets S and T in four of them, each in its own way (figure 3):

    S_h T_h   through the heavy values of C that T has with the row's A
    S_h T_l   by one lookup in V_ST, which is stored
    S_l T_h   through the rows of S_l with the row's B, or as in the first case: whichever are fewer
    S_l T_l   through the rows of S_l with the row's B

Variables that are in the same two atoms count as one, and one that is in all three belongs to each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from orchestrator.algebra.unsupported import Unsupported
from orchestrator.strategies.skew.degrees import Split
from orchestrator.strategies.skew.exponents import Exponents
from orchestrator.strategies.viewtree.hypergraph import Hypergraph, Variables
from orchestrator.strategies.viewtree.tree import View

HEAVY, LIGHT = "h", "l"


@dataclass(frozen=True)
class Division:
    """An atom in two parts, by how many of its rows share the values of some variables."""

    atom: str
    on: Variables
    heavy: View
    light: View

    @property
    def split(self) -> Split:
        """What is divided."""
        return Split(self.atom, (self.atom,), self.on)

    @property
    def parts(self) -> tuple[View, View]:
        """Both parts."""
        return self.heavy, self.light

    @property
    def whole(self) -> View:
        """The atom."""
        return View(self.heavy.keys, (self.atom,))


@dataclass(frozen=True)
class Rule:
    """What a change of an atom meets in one case, in the order in which it is joined."""

    case: str
    met: tuple[View, ...]
    exponent: Fraction
    """Of what that costs."""


@dataclass(frozen=True)
class SkewPlan:
    """View trees over parts of atoms: what is divided, stored, and done for changes."""

    exponents: Exponents
    divisions: tuple[Division, ...]
    views: tuple[View, ...]
    """The views that are stored beside the parts and the result."""
    upkeep: Mapping[tuple[View, View], Fraction]
    """For a view and a part that it joins: the exponent of what a row of the part costs it."""
    rules: Mapping[str, tuple[Rule, ...]]
    """For each atom, how its change adds to the result."""
    root: View


def triangle(graph: Hypergraph, exponents: Exponents) -> SkewPlan | Unsupported:
    """The plan of a triangle count, or why a query is none.

    >>> from orchestrator.strategies.skew.show import shown
    >>> graph = Hypergraph.of({"R": "AB", "S": "BC", "T": "CA"})
    >>> print(shown(triangle(graph, Exponents(Fraction(1, 2)))))
    divided at N^1/2, the rows of heavy values and those of light ones:
      R by A: R_h[A, B] *, R_l[A, B] *
      S by B: S_h[B, C] *, S_l[B, C] *
      T by C: T_h[A, C] *, T_l[A, C] *
    stored besides:
      V@B(R_h, S_l)[A, C] *, O(N^3/2) rows, kept after a change of R_h in O(N^1/2), of S_l in O(N^1/2)
      V@C(S_h, T_l)[A, B] *, O(N^3/2) rows, kept after a change of S_h in O(N^1/2), of T_l in O(N^1/2)
      V@A(R_l, T_h)[B, C] *, O(N^3/2) rows, kept after a change of T_h in O(N^1/2), of R_l in O(N^1/2)
    a change of R adds to V(R, S, T)[] *:
      hh: δR ⋈ T_h[A, C] ⋈ S_h[B, C] in O(N^1/2)
      hl: δR ⋈ V@C(S_h, T_l)[A, B] in O(1)
      lh: δR ⋈ S_l[B, C] ⋈ T_h[A, C] in O(N^1/2)
      ll: δR ⋈ S_l[B, C] ⋈ T_l[A, C] in O(N^1/2)
    a change of S adds to V(R, S, T)[] *:
      hh: δS ⋈ R_h[A, B] ⋈ T_h[A, C] in O(N^1/2)
      hl: δS ⋈ V@A(R_l, T_h)[B, C] in O(1)
      lh: δS ⋈ T_l[A, C] ⋈ R_h[A, B] in O(N^1/2)
      ll: δS ⋈ T_l[A, C] ⋈ R_l[A, B] in O(N^1/2)
    a change of T adds to V(R, S, T)[] *:
      hh: δT ⋈ S_h[B, C] ⋈ R_h[A, B] in O(N^1/2)
      hl: δT ⋈ V@B(R_h, S_l)[A, C] in O(1)
      lh: δT ⋈ R_l[A, B] ⋈ S_h[B, C] in O(N^1/2)
      ll: δT ⋈ R_l[A, B] ⋈ S_l[B, C] in O(N^1/2)
    >>> triangle(Hypergraph.of({"R": "AB", "S": "BC"}), Exponents(Fraction(1, 2))).reason
    'heavy and light parts are for triangles R(A, B), S(B, C), T(C, A)'
    """
    on = _cycle(graph)
    if isinstance(on, Unsupported):
        return on
    divisions = [_division(name, schema, on[name]) for name, schema in graph.edges]
    atoms = tuple(one.atom for one in divisions)
    ring = [(one, divisions[n - 2], divisions[n - 1]) for n, one in enumerate(divisions)]
    views = {one.atom: _joining(one, second, atoms) for one, second, _ in ring}
    upkeep: dict[tuple[View, View], Fraction] = {}
    for one, second, _ in ring:
        # A row of the heavy part meets the rows of a light value, one of the light part heavy values.
        upkeep[views[one.atom], one.heavy] = exponents.light
        upkeep[views[one.atom], second.light] = exponents.heavy
    return SkewPlan(
        exponents,
        tuple(divisions),
        tuple(views.values()),
        upkeep,
        {
            one.atom: _rules(second, third, views[second.atom], exponents)
            for one, second, third in ring
        },
        View(graph.free, atoms, tuple(one.whole for one in divisions)),
    )


def _cycle(graph: Hypergraph) -> Mapping[str, Variables] | Unsupported:
    """For each atom the variables that it is divided on: those that it shares with the one before.

    So each two that follow each other share the second's.
    """
    schemas = [schema for _, schema in graph.edges]
    where = ", ".join(f"{name}({', '.join(sorted(schema))})" for name, schema in graph.edges)
    if graph.free:
        return Unsupported("triangles with GROUP BY are not kept in heavy and light parts", where)
    refused = Unsupported(
        "heavy and light parts are for triangles R(A, B), S(B, C), T(C, A)", where
    )
    if len(schemas) != 3:
        return refused
    everywhere = frozenset.intersection(*schemas)
    shared = {
        name: schema & schemas[number - 1] for number, (name, schema) in enumerate(graph.edges)
    }
    if any(not one - everywhere for one in shared.values()):
        return refused
    return shared


def _division(name: str, schema: Variables, on: Variables) -> Division:
    heavy, light = (View(schema, (name,), part=part) for part in (HEAVY, LIGHT))
    return Division(name, on, heavy, light)


def _joining(one: Division, other: Division, atoms: tuple[str, ...]) -> View:
    """V_RS: the heavy part of R with the light part of S, without what they alone have."""
    both = one.heavy.keys & other.light.keys
    everywhere = one.on & both
    keys = (one.heavy.keys | other.light.keys) - (both - everywhere)
    over = tuple(name for name in atoms if name in (one.atom, other.atom))
    at = "_".join(sorted(both - everywhere))
    return View(keys, over, (one.heavy, other.light), at)


def _rules(second: Division, third: Division, view: View, exponents: Exponents) -> tuple[Rule, ...]:
    """Lines 3 to 6 of figure 3, for a change of the atom before the second."""
    by_light, by_heavy = (second.light, third.heavy), (third.heavy, second.light)
    return (
        Rule("hh", (third.heavy, second.heavy), exponents.heavy),
        Rule("hl", (view,), Fraction(0)),
        Rule("lh", by_light if exponents.light <= exponents.heavy else by_heavy, exponents.least),
        Rule("ll", (second.light, third.light), exponents.light),
    )
