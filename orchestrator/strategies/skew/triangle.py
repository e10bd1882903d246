"""Triangle queries over heavy and light parts (papers/ivm-eps-triangle-queries.txt, sections 3 to 6).

R(A, B), S(B, C) and T(C, A) are divided on A, B and C, and so is the query. Two cases join three heavy or
three light parts. Three mixed cases join a heavy part, the light part of the next relation, and the whole
third relation:

    R_h S_l T      S_h T_l R      T_h R_l S

The join of the two parts is stored, so that changes of the third relation look it up. The cost of a change
and the space follow one rule for all sets of free variables. It depends on the variable between the two
parts (B in the first case):

- If it is bound, the stored join sums it out. The case is listed: it is added to one table whose key is the
  free variables.
- If it is free, the stored join keeps it. A further view stores the values around it (A and C) that have
  rows, and the case is enumerated from this view and the join (figures 10, 12 and 14). If values around it
  are bound, a result row may have many of them. So the parts are divided once more (definition 8), and
  what can be listed is listed: the rows of S_l with light C if C is bound, and the rows of R_h with heavy B
  if A is bound. In the rest, a row has O(N^min(ε, 1-ε)) of these values.

Variables that occur in the same two atoms count as one. A variable of all three atoms belongs to each of A,
B and C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product

from orchestrator.algebra.unsupported import Unsupported
from orchestrator.strategies.skew.exponents import Exponents
from orchestrator.strategies.skew.partition.split import Split
from orchestrator.strategies.viewtree.classes import power
from orchestrator.strategies.viewtree.hypergraph import Hypergraph, Variables
from orchestrator.strategies.viewtree.tree import View

HEAVY, LIGHT = "h", "l"
UNDECIDED = "-"
"""The mark of a variable on which a part is not divided; marks at the end may be left out."""


@dataclass(frozen=True)
class Division:
    """An atom and its parts, by the degrees of the values of some of its variables."""

    atom: str
    schema: Variables
    on: tuple[Variables, ...]
    """No, one or both of the variables that it shares with others; a part has a mark for each."""
    together: tuple[Split, ...] = ()
    """The splits in which its rows and the rows of another atom count together."""

    @property
    def splits(self) -> tuple[Split, ...]:
        """The splits by which the atom is divided."""
        together = {split.on: split for split in self.together}
        return tuple(together.get(on) or self._alone(on) for on in self.on)

    def _alone(self, on: Variables) -> Split:
        name = self.atom if len(self.on) == 1 else f"{self.atom}_{'_'.join(sorted(on))}"
        return Split(name, (self.atom,), on)

    @property
    def parts(self) -> tuple[View, ...]:
        """All stored parts."""
        marks = [""]
        for _ in self.on:
            marks = [mark + own for mark in marks for own in (HEAVY, LIGHT)]
        return tuple(map(self.part, marks))

    def part(self, marks: str) -> View:
        """Return the rows that are heavy or light by the first variables; other variables do not matter."""
        return View(self.schema, (self.atom,), part=marks)

    @property
    def all_parts(self) -> tuple[View, ...]:
        """All parts, also those over several stored parts."""
        marks = map("".join, product((HEAVY, LIGHT, UNDECIDED), repeat=len(self.on)))
        return tuple(map(self.part, dict.fromkeys(mark.rstrip(UNDECIDED) for mark in marks)))

    @property
    def whole(self) -> View:
        """The view of the undivided atom."""
        return self.part("")

    def within(self, part: View) -> tuple[View, ...]:
        """Return the stored parts that a part consists of."""
        return tuple(
            inner
            for inner in self.parts
            if all(
                mark in (UNDECIDED, own) for mark, own in zip(part.part, inner.part, strict=False)
            )
        )

    @staticmethod
    def is_marked(part: View, position: int) -> bool:
        """Return whether a part has only heavy, or only light values of the variable of a split."""
        return part.part[position : position + 1] in (HEAVY, LIGHT)


@dataclass(frozen=True)
class Case:
    """Parts of all atoms whose join is added to the listed result."""

    parts: tuple[View, ...]
    """One part of each atom, in the order of the atoms."""
    through: View | None = None
    """The stored join of all parts but one, without the variables that this part lacks."""

    @property
    def name(self) -> str:
        """The marks of the parts; a dash stands for an undivided atom."""
        return " ".join(part.part or "-" for part in self.parts)


@dataclass(frozen=True)
class Rule:
    """The parts and views that a change of a part joins in one case, in the order of the join."""

    case: Case
    part: View
    met: tuple[View, ...]
    exponent: Fraction
    """The exponent of the cost."""

    @property
    def by_key(self) -> bool:
        """Whether a row of the part matches at most one row."""
        return len(self.met) == 1 and self.met[0].keys <= self.part.keys


@dataclass(frozen=True)
class Factorized:
    """A case that is not listed: the join of a view with a whole atom."""

    joined: View
    """The join of the parts of the other two atoms."""
    known: View
    """The values that the join shares with the whole atom and that have rows."""
    whole: View


@dataclass(frozen=True)
class SkewPlan:
    """A query over parts of atoms: the divisions, the listed result, the stored views, and the rules."""

    kind: str
    """The kind of the query, for users."""
    exponents: Exponents
    divisions: tuple[Division, ...]
    root: View
    """The listed result."""
    rules: Mapping[str, tuple[Rule, ...]]
    """For each atom, the rules by which its change is added to the listed result."""
    views: tuple[View, ...]
    """The stored views besides the parts and the root, lower views first."""
    upkeep: Mapping[tuple[View, View], Fraction]
    """For a view and a child: the exponent of the cost of a change of the child."""
    factorized: tuple[Factorized, ...]
    view_rules: Mapping[View, Mapping[str, Rule]] = field(default_factory=dict)
    """For a view and an atom: how a change of the atom is joined, if not with the view's other children."""

    def update(self, atom: str) -> Fraction:
        """Return the exponent of the cost of a change of an atom's row, averaged over many changes."""
        costs = (cost for (_, child), cost in self.upkeep.items() if atom in child.atoms)
        return max(*(rule.exponent for rule in self.rules[atom]), *costs)

    @property
    def space(self) -> Fraction:
        """The exponent of the number of stored rows.

        Factorized maintenance (appendix A.2 of the paper on counts) is a choice of ε:

        >>> edges = Hypergraph.of({"R": "AB", "S": "BC", "T": "CA"})
        >>> ends = (("R", Fraction(0)), ("S", Fraction(0)), ("T", Fraction(1)))
        >>> plan = triangle(edges, Exponents(Fraction(1, 2), own=ends))
        >>> str(plan.space), [str(plan.update(atom)) for atom in "RST"]
        ('2', ['0', '1', '1'])
        >>> plan = triangle(edges, Exponents(Fraction(1, 4)))
        >>> str(plan.space), {str(plan.update(atom)) for atom in "RST"}
        ('5/4', {'3/4'})
        """
        costs: dict[View, list[Fraction]] = {}
        for (view, _), exponent in self.upkeep.items():
            costs.setdefault(view, []).append(exponent)
        return 1 + max(map(min, costs.values()))

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
        """The views that only need to tell whether they have rows."""
        return frozenset(
            view
            for item in self.factorized
            for view in item.known.walk()
            if view.children and view != item.joined
        )


def triangle(graph: Hypergraph, exponents: Exponents) -> SkewPlan | Unsupported:
    """Return the plan of a triangle query, or why a query is not a triangle.

    >>> from orchestrator.strategies.skew.show import plan_text
    >>> edges = {"R": "AB", "S": "BC", "T": "CA"}
    >>> print(plan_text(triangle(Hypergraph.of(edges), Exponents(Fraction(1, 2)))))
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

    With free variables, as in the paper's figures 10, 12 and 14, some cases are not listed:

    >>> for free in ("ABC", "AB", "A"):
    ...     plan = triangle(Hypergraph.of(edges, free), Exponents(Fraction(1, 2)))
    ...     listed = dict.fromkeys(rule.case.name for rule in plan.rules["R"])
    ...     print(", ".join(listed), *(case.known.label for case in plan.factorized), sep="; ")
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
    """Return for each atom the variables that it shares with the previous atom, or why this is no triangle.

    So two atoms in sequence share the variables of the second.
    """
    schemas = [schema for _, schema in graph.edges]
    atoms = ", ".join(f"{name}({', '.join(sorted(schema))})" for name, schema in graph.edges)
    if len(schemas) != 3:
        return _no_triangle(atoms)
    everywhere = frozenset.intersection(*schemas)
    ring = tuple(schema & schemas[number - 1] for number, schema in enumerate(schemas))
    if any(not shared - everywhere for shared in ring):
        return _no_triangle(atoms)
    for (name, schema), before, after in zip(graph.edges, ring, (*ring[1:], ring[0]), strict=True):
        if schema - before - after:
            only = ", ".join(sorted(schema - before - after))
            return Unsupported(f"a triangle is grouped by {only}, which only {name} has", atoms)
    for group in (everywhere, *(shared - everywhere for shared in ring)):
        if group & graph.free and group - graph.free:
            names = ", ".join(sorted(group))
            return Unsupported(
                f"{names} join the same tables, and a triangle is grouped by some of them alone",
                atoms,
            )
    if graph.free and everywhere - graph.free:
        names = ", ".join(sorted(everywhere))
        return Unsupported(
            f"a triangle with GROUP BY is not grouped by {names}, which all three tables have",
            atoms,
        )
    return ring


def _no_triangle(where: str) -> Unsupported:
    return Unsupported("heavy and light parts are for triangles R(A, B), S(B, C), T(C, A)", where)


def joined(graph: Hypergraph, keys: Variables, children: tuple[View, ...], at: Variables) -> View:
    """Return a stored join of parts."""
    under = {name for child in children for name in child.atoms}
    over = tuple(name for name, _ in graph.edges if name in under)
    return View(keys, over, children, "_".join(sorted(at)))


class _Builder:
    """Builds the plan of a triangle, given the order of its atoms."""

    def __init__(
        self, graph: Hypergraph, exponents: Exponents, ring: tuple[Variables, ...]
    ) -> None:
        self.graph, self.ring = graph, ring
        self.everywhere = frozenset.intersection(*ring)
        self.exponents = replace(exponents, free=sum(map(self._is_free, range(3))))
        divided_twice = {place for number in range(3) for place in self._refined(number)}
        self.divisions = tuple(
            Division(name, schema, (ring[n], ring[n - 2]) if n in divided_twice else (ring[n],))
            for n, (name, schema) in enumerate(graph.edges)
        )
        self.views: list[View] = []
        self.upkeep: dict[tuple[View, View], Fraction] = {}
        self.factorized: list[Factorized] = []

    def plan(self) -> SkewPlan:
        """Return the plan."""
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
        """Return whether the variables on which an atom is divided first are free."""
        return self.ring[number % 3] - self.everywhere <= self.graph.free

    def _refined(self, number: int) -> tuple[int, ...]:
        """Return the atoms that are divided twice for the case of a heavy atom and a light next atom."""
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
        """Return the listed cases in which an atom is heavy and the next atom light; note the factorized one."""
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
        """Return the stored join of a heavy part with a light part."""
        first, second = self.divisions[number], self.divisions[(number + 1) % 3]
        between = self.ring[(number + 1) % 3] - self.everywhere
        keys = (first.schema | second.schema) - (between - self.graph.free)
        children = (first.part(heavy), second.part(light))
        view = joined(self.graph, keys, children, between)
        self.views.append(view)
        # A row of the heavy part joins the rows of a light value, a row of the light part joins heavy values.
        self.upkeep[view, children[0]] = self.exponents.light(second.atom)
        self.upkeep[view, children[1]] = self.exponents.heavy(first.atom)
        return view

    def _rule(self, case: Case, number: int) -> Rule:
        """Return the cheaper rule: join the next atom first, or the previous atom."""
        part, after, before = (case.parts[(number + n) % 3] for n in range(3))
        if case.through is not None and part not in case.through.children:
            return Rule(case, part, (case.through,), Fraction(0))
        join_orders = [
            (self._cost(after, after.part[:1] == LIGHT, after.part[1:] == HEAVY), (after, before)),
            (
                self._cost(before, before.part[1:] == LIGHT, before.part[:1] == HEAVY),
                (before, after),
            ),
        ]
        exponent, joined_parts = min(join_orders, key=lambda order: order[0])
        return Rule(case, part, joined_parts, exponent)

    def _cost(self, part: View, few_rows: bool, few_values: bool) -> Fraction:
        """Return the exponent of looking up the rows of a value that is light or has only heavy partners."""
        bounds: Sequence[Fraction] = (
            *((self.exponents.light(part.atoms[0]),) if few_rows else ()),
            *((self.exponents.heavy(part.atoms[0]),) if few_values else ()),
        )
        return min(bounds, default=Fraction(1))
