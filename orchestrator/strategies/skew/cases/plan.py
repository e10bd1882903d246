"""Plans over the cases of heavy and light variables of any join of a few tables, as 4-cycles and 4-cliques.

All atoms with a variable are divided on it together: a value is heavy if they have many rows with it. So the cases
do not overlap, and the query is their sum. `search` finds the cases and the views of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from orchestrator.algebra.unsupported import Unsupported
from orchestrator.strategies.skew.cases.search import NEVER, CaseSearch, Marks
from orchestrator.strategies.skew.counts import where
from orchestrator.strategies.skew.exponents import Exponents
from orchestrator.strategies.skew.partition.split import Split
from orchestrator.strategies.skew.triangle import UNDECIDED, Case, Division, Rule, SkewPlan
from orchestrator.strategies.viewtree.classes import power
from orchestrator.strategies.viewtree.hypergraph import Hypergraph
from orchestrator.strategies.viewtree.tree import View

MOST_ATOMS, MOST_VARIABLES = 6, 4
"""Above these numbers of tables and of divided variables the search takes long, and cases are too many."""

TRIED = (Fraction(1, 2), Fraction(1, 3), Fraction(2, 3))
"""The ε to choose from if the user asks for none."""


@dataclass(frozen=True)
class CaseExponents(Exponents):
    """The exponents that a search has determined."""

    most: Fraction = Fraction(1)
    """The exponent of the cost of a change in the most expensive case."""
    stored: Fraction = Fraction(1)
    """The exponent of the number of stored rows."""
    cheaper: str = ""
    """How many cases are cheaper than the most expensive ones, in words."""

    @property
    def update(self) -> Fraction:
        """The exponent of the cost of a change of one row, averaged over many changes."""
        return self.most

    @property
    def space(self) -> Fraction:
        """The exponent of the number of stored rows."""
        return self.stored

    @property
    def described(self) -> str:
        """The guarantee in words."""
        return super().described + self.cheaper


def by_cases(graph: Hypergraph, exponents: Exponents) -> SkewPlan | Unsupported:
    """Return the plan over the cases of a join, or why it has none.

    >>> from orchestrator.strategies.skew.show import plan_text
    >>> edges = {"R": "AB", "S": "BC", "T": "CD", "U": "DA"}
    >>> plan = by_cases(Hypergraph.of(edges), Exponents(Fraction(1, 3)))
    >>> print(plan.kind, plan.described, sep=": ")
    a 4-cycle in 10 cases of heavy and light values: a change of one row costs O(N^2/3) on average, and O(N^4/3) rows \
are stored
    >>> for line in [*plan_text(plan).splitlines()[:6], *plan_text(plan).splitlines()[22:26]]:
    ...     print(line)
    divided at N^1/3, the rows of heavy values and those of light ones:
      R, U by A
      R, S by B
      S, T by C
      T, U by D
      R by A, B: R_hh[A, B] *, R_hl[A, B] *, R_lh[A, B] *, R_ll[A, B] *
    a change of R adds to V(R, S, T, U)[] *:
      h -h h h: δR_h ⋈ S_-h[B, C] ⋈ V@D(T_h, U_h)[A, C] in O(N^2/3)
      hh hl lh hh: δR_hh ⋈ V@C(S_hl, T_lh)[B, D] ⋈ U_hh[A, D] in O(N^2/3)
      hh hl ll hl: δR_hh ⋈ V@C_D(S_hl, T_ll, U_hl)[A, B] in O(1)
    >>> clique = {"R": "AB", "S": "AC", "T": "AD", "U": "BC", "V": "BD", "W": "CD"}
    >>> print(by_cases(Hypergraph.of(clique), Exponents(Fraction(1, 3))).described)
    a change of one row costs O(N) on average, and O(N^5/3) rows are stored; in 15 of 16 cases, by which variables are \
heavy, it costs O(N^2/3)
    """
    if len(graph.edges) > MOST_ATOMS:
        return Unsupported(f"cases are searched for at most {MOST_ATOMS} tables", where(graph))
    if exponents.own:
        names = ", ".join(name for name, _ in exponents.own)
        return Unsupported("a join over cases has one epsilon for all of its tables", names)
    return _by_cases(graph, exponents)


@lru_cache(maxsize=32)
def _by_cases(graph: Hypergraph, exponents: Exponents) -> SkewPlan | Unsupported:
    tried = TRIED if exponents.open else (exponents.epsilon,)
    searches = [CaseSearch(graph, epsilon) for epsilon in tried]
    if len(searches[0].divisible) > MOST_VARIABLES:
        return Unsupported(
            f"cases are searched for at most {MOST_VARIABLES} variables that tables share",
            where(graph),
        )
    search = min(searches, key=_rank)
    cost = search.costs[0]
    if cost >= NEVER:
        return Unsupported("tables that share no variable have no cases", where(graph))
    if search.exponent(cost) > 1:
        return Unsupported(
            f"in some case a change costs {power(search.exponent(cost))}, with epsilon = {search.epsilon}",
            where(graph),
        )
    cases = search.cases()
    if len(cases) < 2:
        return Unsupported(
            f"with epsilon = {search.epsilon}, heavy and light parts make no case cheaper",
            where(graph),
        )
    return _Builder(graph, search, cases).plan()


def _rank(search: CaseSearch) -> tuple[Fraction, Fraction]:
    """Return the cost of the most expensive case, and the average; the better of two searches has less."""
    average = Fraction(sum(search.costs), len(search.costs) * search.unit)
    return search.exponent(search.costs[0]), average


class _Builder:
    """Builds the plan of a join, given its cases."""

    def __init__(self, graph: Hypergraph, search: CaseSearch, cases: tuple[Marks, ...]) -> None:
        self.graph, self.search, self.cases = graph, search, cases
        used = 0
        for marks in cases:
            used |= marks.heavy | marks.light
        everywhere = frozenset.intersection(*(schema for _, schema in graph.edges))
        self.on = [[v for v in search.divisible if v & used & schema] for schema in search.schemas]
        """For each atom, the variables on which it is divided."""
        splits = {}
        for variable in search.divisible:
            on = search.named(variable) | everywhere
            atoms = [
                name
                for name, schema in zip(search.atoms, search.schemas, strict=True)
                if schema & variable
            ]
            splits[variable] = Split("_".join(sorted(on)), tuple(atoms), on)
        self.divisions = [
            Division(name, schema, tuple(splits[v].on for v in on), tuple(splits[v] for v in on))
            for (name, schema), on in zip(graph.edges, self.on, strict=True)
        ]
        self.views: dict[tuple[int, Marks], View] = {}
        self.view_rules: dict[View, dict[str, Rule]] = {}
        self.upkeep: dict[tuple[View, View], Fraction] = {}

    def plan(self) -> SkewPlan:
        """Return the plan."""
        search = self.search
        rules = {
            division.atom: tuple(
                self._rule(search.everything, number, marks) for marks in self.cases
            )
            for number, division in enumerate(self.divisions)
        }
        stored = [search.rows_of_view(*key) for key in self.views]
        bounds = [max([search.unit, *stored]), search.rows_of_view(search.everything, Marks())]
        names = tuple(search.atoms)
        exponents = CaseExponents(
            search.epsilon,
            most=search.exponent(search.costs[0]),
            stored=search.exponent(max(bounds)),
            cheaper=self._cheaper(),
        )
        root = View(self.graph.free, names, tuple(division.whole for division in self.divisions))
        return SkewPlan(
            self._kind(),
            exponents,
            tuple(self.divisions),
            root,
            rules,
            tuple(self.views.values()),
            self.upkeep,
            (),
            self.view_rules,
        )

    def _kind(self) -> str:
        """Return the kind of the query, for users."""
        schemas, variables = self.search.schemas, len(self.search.divisible)
        pairs = {tuple(v for v in self.search.divisible if v & schema) for schema in schemas}
        many, size = len(schemas), variables
        if all(len(pair) == 2 for pair in pairs) and len(pairs) == many == size * (size - 1) // 2:
            shape = f"a {size}-clique"
        elif all(len(pair) == 2 for pair in pairs) and len(pairs) == many == size:
            shape = f"a {size}-cycle"
        else:
            shape = f"a join of {many} tables"
        return f"{shape} in {len(self.cases)} cases of heavy and light values"

    def _cheaper(self) -> str:
        """Return how many cases are cheaper than the most expensive ones, if a plan without parts is as good."""
        search, costs = self.search, self.search.costs
        if search.cost(search.everything, Marks()) > costs[0]:
            return ""
        number = sum(cost <= search.bound for cost in costs)
        return (
            f"; in {number} of {len(costs)} cases, by which variables are heavy, it costs"
            f" {power(search.exponent(search.bound))}"
        )

    def _rule(self, atoms: int, number: int, marks: Marks) -> Rule:
        """Return the rule for a change of an atom of a view, or of the query."""
        steps = self.search.steps(atoms, number, marks)
        case = Case(tuple(self._part(member, marks) for member in self.search.members(atoms)))
        met = tuple(self._met(block, marks) for block in steps.met)
        return Rule(case, self._part(number, marks), met, self.search.exponent(steps.cost))

    def _part(self, number: int, marks: Marks) -> View:
        text = "".join(map(marks.of, self.on[number]))
        return self.divisions[number].part(text.rstrip(UNDECIDED))

    def _met(self, atoms: int, marks: Marks) -> View:
        """Return a part of an atom, or the stored view over some atoms."""
        search, members = self.search, self.search.members(atoms)
        if len(members) == 1:
            return self._part(members[0], marks)
        marks = marks.within(search.variables(atoms))
        if (atoms, marks) not in self.views:
            rules = {search.atoms[n]: self._rule(atoms, n, marks) for n in members}
            first = rules[search.atoms[members[0]]]
            summed = search.named(search.variables(atoms) & ~search.keys(atoms))
            view = View(
                search.named(search.keys(atoms)),
                tuple(rules),
                (first.part, *first.met),
                "_".join(sorted(summed)),
            )
            self.views[atoms, marks] = view
            self.view_rules[view] = rules
            self.upkeep |= {(view, rule.part): rule.exponent for rule in rules.values()}
        return self.views[atoms, marks]
