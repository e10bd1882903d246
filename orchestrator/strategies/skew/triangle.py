"""Triangle queries over heavy and light parts (papers/ivm-eps-triangle-queries.txt, sections 3 to 6).

R(A, B), S(B, C) and T(C, A) are divided on A, B and C, and the query with them. Where all three parts
are heavy, or all light, and in three mixed cases of a heavy part, the light part that follows, and all
of the third:

    R_h S_l T      S_h T_l R      T_h R_l S

The join of the two parts is stored for the third's changes to look into. Whatever is free, the cost of
a change and the space follow one rule: the variable between the two parts (B of the first case) is

- bound: the stored join sums it out, and the case is listed, that is added to one table with the
  free variables as its key;
- free: the stored join keeps it. The values around it (A and C) for which there are rows are kept
  beside it, and the case is found from these and the join (figures 10, 12 and 14). Of values around it
  that are bound there may be many for a row. So the parts are divided once more (definition 8) and
  what can be listed is: the rows of S_l where C is light, if C is bound; and those of R_h where B is
  heavy, if A is bound. In what remains, a row has O(N^min(ε, 1-ε)) of these values.

Variables that are in the same two atoms count as one, and one that is in all three belongs to each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from orchestrator.algebra.unsupported import Unsupported
from orchestrator.strategies.skew.degrees import Split
from orchestrator.strategies.skew.exponents import Exponents
from orchestrator.strategies.viewtree.classes import power
from orchestrator.strategies.viewtree.hypergraph import Hypergraph, Variables
from orchestrator.strategies.viewtree.tree import View

HEAVY, LIGHT = "h", "l"


@dataclass(frozen=True)
class Division:
    """An atom in parts, by how many of its rows share the values of some of its variables."""

    atom: str
    schema: Variables
    on: tuple[Variables, ...]
    """None, one, or both of those that it shares with others; a part says of each what its values are."""
    together: tuple[Split, ...] = ()
    """What it is divided with, where its rows and those of another atom count together."""

    @property
    def splits(self) -> tuple[Split, ...]:
        """What is divided."""
        together = {split.on: split for split in self.together}
        return tuple(together.get(on) or self._alone(on) for on in self.on)

    def _alone(self, on: Variables) -> Split:
        name = self.atom if len(self.on) == 1 else f"{self.atom}_{'_'.join(sorted(on))}"
        return Split(name, (self.atom,), on)

    @property
    def parts(self) -> tuple[View, ...]:
        """All parts, which are stored."""
        marks = [""]
        for _ in self.on:
            marks = [mark + own for mark in marks for own in (HEAVY, LIGHT)]
        return tuple(map(self.part, marks))

    def part(self, marks: str) -> View:
        """The rows that are heavy or light by the first variables, whatever they are by the others."""
        return View(self.schema, (self.atom,), part=marks)

    @property
    def whole(self) -> View:
        """The atom."""
        return self.part("")

    def within(self, part: View) -> tuple[View, ...]:
        """The stored parts that make up one."""
        return tuple(item for item in self.parts if item.part.startswith(part.part))


@dataclass(frozen=True)
class Case:
    """Parts of all atoms whose join is listed."""

    parts: tuple[View, ...]
    """In the order of the atoms."""
    through: View | None = None
    """The stored join of all but one of them, without the variables that this one lacks."""

    @property
    def name(self) -> str:
        """The marks of its parts; a dash stands for the whole."""
        return " ".join(part.part or "-" for part in self.parts)


@dataclass(frozen=True)
class Rule:
    """What a change of an atom's part meets in one case, in the order in which it is joined."""

    case: Case
    part: View
    met: tuple[View, ...]
    exponent: Fraction
    """Of what that costs."""

    @property
    def by_key(self) -> bool:
        """Whether a row of the part meets one row at most."""
        return len(self.met) == 1 and self.met[0].keys <= self.part.keys


@dataclass(frozen=True)
class Factorized:
    """A case that is not listed: it is the join of a view with the whole of an atom."""

    joined: View
    """The join of the parts of the two others."""
    known: View
    """What that has in common with the third, if there are rows."""
    whole: View


@dataclass(frozen=True)
class SkewPlan:
    """A query over parts of atoms: what is divided, listed, stored, and done for changes."""

    kind: str
    """What the query is."""
    exponents: Exponents
    divisions: tuple[Division, ...]
    root: View
    """What is listed."""
    rules: Mapping[str, tuple[Rule, ...]]
    """For each atom, how its change adds to that."""
    views: tuple[View, ...]
    """The views that are stored beside the parts and the root, lower ones first."""
    upkeep: Mapping[tuple[View, View], Fraction]
    """For a view and one that it joins: the exponent of what a change of the latter costs it."""
    factorized: tuple[Factorized, ...]

    def update(self, atom: str) -> Fraction:
        """The exponent of what a change of an atom's row costs, averaged over many."""
        kept = (cost for (_, child), cost in self.upkeep.items() if atom in child.atoms)
        return max(*(rule.exponent for rule in self.rules[atom]), *kept)

    @property
    def space(self) -> Fraction:
        """The exponent of the number of rows that are stored: those that rows of parts meet.

        Factorized maintenance (appendix A.2 of the paper on counts) is a choice of ε:

        >>> edges = Hypergraph.of({"R": "AB", "S": "BC", "T": "CA"})
        >>> ends = (("R", Fraction(0)), ("S", Fraction(0)), ("T", Fraction(1)))
        >>> made = triangle(edges, Exponents(Fraction(1, 2), own=ends))
        >>> str(made.space), [str(made.update(atom)) for atom in "RST"]
        ('2', ['0', '1', '1'])
        >>> made = triangle(edges, Exponents(Fraction(1, 4)))
        >>> str(made.space), {str(made.update(atom)) for atom in "RST"}
        ('5/4', {'3/4'})
        """
        met: dict[View, list[Fraction]] = {}
        for (view, _), cost in self.upkeep.items():
            met.setdefault(view, []).append(cost)
        return 1 + max(map(min, met.values()))

    @property
    def described(self) -> str:
        """The guarantee in words."""
        if not self.exponents.own:
            return self.exponents.described
        costs = (
            f"{division.atom} {power(self.update(division.atom))}" for division in self.divisions
        )
        return (
            f"on average, a change of one row costs, of {', of '.join(costs)},"
            f" and {power(self.space)} rows are stored"
        )

    @property
    def counting(self) -> frozenset[View]:
        """The views of which it only matters whether they have rows."""
        return frozenset(
            view
            for item in self.factorized
            for view in item.known.walk()
            if view.children and view != item.joined
        )


def triangle(graph: Hypergraph, exponents: Exponents) -> SkewPlan | Unsupported:
    """The plan of a triangle query, or why a query is none.

    >>> from orchestrator.strategies.skew.show import shown
    >>> edges = {"R": "AB", "S": "BC", "T": "CA"}
    >>> print(shown(triangle(Hypergraph.of(edges), Exponents(Fraction(1, 2)))))
    divided at N^1/2, the rows of heavy values and those of light ones:
      R by A: R_h[A, B] *, R_l[A, B] *
      S by B: S_h[B, C] *, S_l[B, C] *
      T by C: T_h[A, C] *, T_l[A, C] *
    stored besides:
      V@B(R_h, S_l)[A, C] *, kept after a change of R_h in O(N^1/2), of S_l in O(N^1/2)
      V@C(S_h, T_l)[A, B] *, kept after a change of S_h in O(N^1/2), of T_l in O(N^1/2)
      V@A(R_l, T_h)[B, C] *, kept after a change of T_h in O(N^1/2), of R_l in O(N^1/2)
    a change of R adds to V(R, S, T)[] *:
      h h h: δR_h ⋈ T_h[A, C] ⋈ S_h[B, C] in O(N^1/2)
      l l l: δR_l ⋈ S_l[B, C] ⋈ T_l[A, C] in O(N^1/2)
      h l -: δR_h ⋈ S_l[B, C] ⋈ T[A, C] in O(N^1/2)
      - h l: δR ⋈ V@C(S_h, T_l)[A, B] in O(1)
      l - h: δR_l ⋈ T_h[A, C] ⋈ S[B, C] in O(N^1/2)
    a change of S adds to V(R, S, T)[] *:
      h h h: δS_h ⋈ R_h[A, B] ⋈ T_h[A, C] in O(N^1/2)
      l l l: δS_l ⋈ T_l[A, C] ⋈ R_l[A, B] in O(N^1/2)
      h l -: δS_l ⋈ R_h[A, B] ⋈ T[A, C] in O(N^1/2)
      - h l: δS_h ⋈ T_l[A, C] ⋈ R[A, B] in O(N^1/2)
      l - h: δS ⋈ V@A(R_l, T_h)[B, C] in O(1)
    a change of T adds to V(R, S, T)[] *:
      h h h: δT_h ⋈ S_h[B, C] ⋈ R_h[A, B] in O(N^1/2)
      l l l: δT_l ⋈ R_l[A, B] ⋈ S_l[B, C] in O(N^1/2)
      h l -: δT ⋈ V@B(R_h, S_l)[A, C] in O(1)
      - h l: δT_l ⋈ S_h[B, C] ⋈ R[A, B] in O(N^1/2)
      l - h: δT_h ⋈ R_l[A, B] ⋈ S[B, C] in O(N^1/2)

    With free variables, here in the paper's figures 10, 12 and 14, some cases are not listed:

    >>> for free in ("ABC", "AB", "A"):
    ...     made = triangle(Hypergraph.of(edges, free), Exponents(Fraction(1, 2)))
    ...     listed = dict.fromkeys(rule.case.name for rule in made.rules["R"])
    ...     print(", ".join(listed), *(one.known.label for one in made.factorized), sep="; ")
    h h h, l l l; V@B_all(R_h, S_l, T)[A, C]; V@C_all(R, S_h, T_l)[A, B]; V@A_all(R_l, S, T_h)[B, C]
    h h h, l l l, h ll -, - h l, l - hh; V@B_all(R_h, S_lh, T)[A, C]; V@A_all(R_l, S, T_hl)[B, C]
    h h h, l l l, h l -, - h l, ll - h, lh - hh; V@A_all(R_lh, S, T_hl)[B, C]
    >>> triangle(Hypergraph.of({"R": "AB", "S": "BC"}), Exponents(Fraction(1, 2))).reason
    'heavy and light parts are for triangles R(A, B), S(B, C), T(C, A)'
    """
    ring = _ring(graph)
    if isinstance(ring, Unsupported):
        return ring
    return _Builder(graph, exponents, ring).plan()


def _ring(graph: Hypergraph) -> tuple[Variables, ...] | Unsupported:
    """For each atom the variables that it shares with the one before; or why that is no triangle.

    So each two that follow each other share the second's.
    """
    schemas = [schema for _, schema in graph.edges]
    where = ", ".join(f"{name}({', '.join(sorted(schema))})" for name, schema in graph.edges)
    if len(schemas) != 3:
        return _refused(where)
    everywhere = frozenset.intersection(*schemas)
    ring = tuple(schema & schemas[number - 1] for number, schema in enumerate(schemas))
    if any(not item - everywhere for item in ring):
        return _refused(where)
    for (name, schema), before, after in zip(graph.edges, ring, (*ring[1:], ring[0]), strict=True):
        if schema - before - after:
            only = ", ".join(sorted(schema - before - after))
            return Unsupported(f"a triangle is grouped by {only}, which only {name} has", where)
    for some in (everywhere, *(item - everywhere for item in ring)):
        if some & graph.free and some - graph.free:
            names = ", ".join(sorted(some))
            return Unsupported(
                f"{names} join the same tables, and a triangle is grouped by some of them alone",
                where,
            )
    if graph.free and everywhere - graph.free:
        names = ", ".join(sorted(everywhere))
        return Unsupported(
            f"a triangle with GROUP BY is not grouped by {names}, which all three tables have",
            where,
        )
    return ring


def _refused(where: str) -> Unsupported:
    return Unsupported("heavy and light parts are for triangles R(A, B), S(B, C), T(C, A)", where)


def joined(graph: Hypergraph, keys: Variables, children: tuple[View, ...], at: Variables) -> View:
    """A stored join of parts."""
    under = {name for child in children for name in child.atoms}
    over = tuple(name for name, _ in graph.edges if name in under)
    return View(keys, over, children, "_".join(sorted(at)))


class _Builder:
    """Builds the plan for one way in which three atoms follow each other."""

    def __init__(
        self, graph: Hypergraph, exponents: Exponents, ring: tuple[Variables, ...]
    ) -> None:
        self.graph, self.ring = graph, ring
        self.everywhere = frozenset.intersection(*ring)
        self.exponents = replace(exponents, free=sum(map(self._is_free, range(3))))
        twice = {place for number in range(3) for place in self._refined(number)}
        self.divisions = tuple(
            Division(name, schema, (ring[n], ring[n - 2]) if n in twice else (ring[n],))
            for n, (name, schema) in enumerate(graph.edges)
        )
        self.views: list[View] = []
        self.upkeep: dict[tuple[View, View], Fraction] = {}
        self.factorized: list[Factorized] = []

    def plan(self) -> SkewPlan:
        """The plan."""
        cases = [
            Case(tuple(division.part(mark) for division in self.divisions))
            for mark in (HEAVY, LIGHT)
        ]
        for number in range(3):
            cases += self._mixed(number)
        names = tuple(division.atom for division in self.divisions)
        return SkewPlan(
            "a triangle",
            self.exponents,
            self.divisions,
            View(self.graph.free, names, tuple(division.whole for division in self.divisions)),
            {
                division.atom: tuple(self._rule(case, number) for case in cases)
                for number, division in enumerate(self.divisions)
            },
            tuple(self.views),
            self.upkeep,
            tuple(self.factorized),
        )

    def _is_free(self, number: int) -> bool:
        """Whether the variables on which an atom is divided first are."""
        return self.ring[number % 3] - self.everywhere <= self.graph.free

    def _refined(self, number: int) -> tuple[int, ...]:
        """The atoms that are divided twice for the case in which one is heavy and the next light."""
        first, second = number, (number + 1) % 3
        if self.exponents.double:
            return first, second
        if not self._is_free(number + 1):
            return ()
        return tuple(
            place
            for place, around in ((first, number), (second, number + 2))
            if not self._is_free(around)
        )

    def _mixed(self, number: int) -> list[Case]:
        """The cases that are listed of those in which an atom is heavy and the next one light."""
        first, second = number, (number + 1) % 3
        refined, result = self._refined(number), []
        heavy, light = HEAVY, LIGHT
        if second in refined:
            result.append(self._case(number, heavy, LIGHT + LIGHT))
            light = LIGHT + HEAVY
        if first in refined:
            result.append(self._case(number, HEAVY + HEAVY, light))
            heavy = HEAVY + LIGHT
        view = self._joined(number, heavy, light)
        if not self._is_free(number + 1):
            return [*result, self._case(number, heavy, light, view)]
        whole = self.divisions[number - 1].whole
        inner = self.ring[number] | self.ring[number - 1]
        total = View(inner, view.atoms, (view,), view.at, part="sum")
        names = tuple(division.atom for division in self.divisions)
        known = View(inner, names, (total, whole), view.at, part="all")
        for child, parent in ((view, total), (total, known), (whole, known)):
            self.upkeep[parent, child] = Fraction(0)
        self.views += [total, known]
        self.factorized.append(Factorized(view, known, whole))
        return result

    def _case(self, number: int, heavy: str, light: str, through: View | None = None) -> Case:
        marks = {number: heavy, (number + 1) % 3: light}
        parts = (division.part(marks.get(n, "")) for n, division in enumerate(self.divisions))
        return Case(tuple(parts), through)

    def _joined(self, number: int, heavy: str, light: str) -> View:
        """The stored join of a heavy part with a light one."""
        first, second = self.divisions[number], self.divisions[(number + 1) % 3]
        between = self.ring[(number + 1) % 3] - self.everywhere
        keys = (first.schema | second.schema) - (between - self.graph.free)
        children = (first.part(heavy), second.part(light))
        view = joined(self.graph, keys, children, between)
        self.views.append(view)
        # A row of the heavy part meets the rows of a light value, one of the light part heavy values.
        self.upkeep[view, children[0]] = self.exponents.light(second.atom)
        self.upkeep[view, children[1]] = self.exponents.heavy(first.atom)
        return view

    def _rule(self, case: Case, number: int) -> Rule:
        """What is cheapest to meet first: the next atom by its first variable, or the one before."""
        part, after, before = (case.parts[(number + n) % 3] for n in range(3))
        if case.through is not None and part not in case.through.children:
            return Rule(case, part, (case.through,), Fraction(0))
        ways = [
            (self._cost(after, after.part[:1] == LIGHT, after.part[1:] == HEAVY), (after, before)),
            (
                self._cost(before, before.part[1:] == LIGHT, before.part[:1] == HEAVY),
                (before, after),
            ),
        ]
        exponent, met = min(ways, key=lambda way: way[0])
        return Rule(case, part, met, exponent)

    def _cost(self, part: View, few_rows: bool, few_values: bool) -> Fraction:
        """Of looking up a part's rows of a value, which is light or whose partners are heavy."""
        known: Sequence[Fraction] = (
            *((self.exponents.light(part.atoms[0]),) if few_rows else ()),
            *((self.exponents.heavy(part.atoms[0]),) if few_values else ()),
        )
        return min(known, default=Fraction(1))
