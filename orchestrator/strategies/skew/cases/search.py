"""Search, for a join and its cases of heavy and light variables, the views that make changes cheap.

In a case each variable is heavy, light or undecided. With the threshold N^ε, an atom has at most N^ε rows with a
value of a light variable, and a heavy variable has at most N^(1-ε) values. A change of an atom is joined with the
others step by step. Each step meets an atom, or a stored view over several atoms that sums out what no other atom
has. Its cost is the number of rows after the step, by a chain of these bounds. A view costs what its own changes
cost, so the cheapest plan for a set of atoms follows from the cheapest plans for its subsets.

papers/ivm-eps-counting-triangles.txt derives cases and views by hand, for Loomis-Whitney and 4-path counts in
appendices F and G. Costs are whole numbers here, in units of 1/q for ε = p/q.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from heapq import heappop, heappush
from typing import TypeAlias

from orchestrator.caching import cached_property
from orchestrator.strategies.skew.triangle import HEAVY, LIGHT, UNDECIDED
from orchestrator.strategies.viewtree.hypergraph import Hypergraph, Variables

NEVER = 1_000_000
"""The cost if some atoms share no variable with the others."""


@dataclass(frozen=True)
class Marks:
    """A case: the variables that are heavy, and the variables that are light, as bits."""

    heavy: int = 0
    light: int = 0

    def within(self, variables: int) -> Marks:
        """Return the marks of some variables."""
        return Marks(self.heavy & variables, self.light & variables)

    def of(self, variable: int) -> str:
        """Return the mark of a variable; a dash stands for an undecided variable."""
        return HEAVY if self.heavy & variable else LIGHT if self.light & variable else UNDECIDED


Stored: TypeAlias = tuple[int, Marks]
"""A stored view: its atoms, and the marks of their variables."""


@dataclass(frozen=True)
class Steps:
    """How a change is joined: the sets of atoms that it meets, a stored view for each set of several atoms."""

    met: tuple[int, ...]
    cost: int


class CaseSearch:
    """The cheapest plans for the cases of a join. Sets of variables, and sets of atoms, are bits of numbers.

    Variables that the same atoms have count as one. With a threshold of N^1/3, a change of a 4-cycle costs
    O(N^2/3):

    >>> edges = {"R": "AB", "S": "BC", "T": "CD", "U": "DA"}
    >>> for epsilon in ("1/3", "1/2", "2/3", "1"):
    ...     cycle = CaseSearch(Hypergraph.of(edges), Fraction(epsilon))
    ...     print(epsilon, cycle.exponent(cycle.costs[0]), len(cycle.cases()))
    1/3 2/3 10
    1/2 1 10
    2/3 2/3 10
    1 1 12
    """

    def __init__(self, graph: Hypergraph, epsilon: Fraction) -> None:
        """Number the variables and the atoms of a query."""
        self.atoms = [name for name, _ in graph.edges]
        names: dict[tuple[frozenset[str], bool], set[str]] = {}
        for variable in sorted(graph.variables):
            own = frozenset(name for name, schema in graph.edges if variable in schema)
            names.setdefault((own, variable in graph.free), set()).add(variable)
        self.names = [frozenset(alike) for alike in names.values()]
        """The names of each variable."""
        self.schemas = [self._bits(schema) for _, schema in graph.edges]
        self.free = self._bits(graph.free)
        self.everything = (1 << len(self.atoms)) - 1
        self.divisible = [
            1 << n for n, (own, _) in enumerate(names) if 1 < len(own) < len(self.atoms)
        ]
        """The variables that several atoms have, but not all of them."""
        self.epsilon = epsilon
        self.unit, self.few = epsilon.denominator, epsilon.numerator
        self.variables, self.keys = cache(self._variables), cache(self._keys)
        self.rows, self.rows_after = cache(self._rows), cache(self._rows_after)
        self.cost = cache(self._cost)
        self.steps, self.views_of = cache(self._steps), cache(self._views_of)
        self.rows_of_view = cache(self._rows_of_view)

    def _bits(self, variables: Variables) -> int:
        return sum(1 << n for n, alike in enumerate(self.names) if alike <= variables)

    def exponent(self, cost: int) -> Fraction:
        """Return a cost as an exponent of N."""
        return Fraction(cost, self.unit)

    def named(self, variables: int) -> Variables:
        """Return the names of variables."""
        return frozenset[str]().union(
            *(alike for n, alike in enumerate(self.names) if variables >> n & 1)
        )

    def members(self, atoms: int) -> list[int]:
        """Return the numbers of atoms."""
        return [n for n in range(len(self.atoms)) if atoms >> n & 1]

    def _variables(self, atoms: int) -> int:
        """Return the variables of some atoms."""
        result = 0
        for n in self.members(atoms):
            result |= self.schemas[n]
        return result

    def _keys(self, atoms: int) -> int:
        """Return the variables of an atom, or of the view over several atoms: those that others need."""
        inside = self.variables(atoms)
        if atoms & (atoms - 1) == 0:
            return inside
        return inside & (self.variables(self.everything & ~atoms) | self.free)

    @cached_property
    def costs(self) -> tuple[int, ...]:
        """The costs of all cases in which each variable is heavy or light, highest first."""
        every = sum(self.divisible)
        cases = (
            Marks(heavy, every & ~heavy)
            for number in range(1 << len(self.divisible))
            for heavy in [sum(v for n, v in enumerate(self.divisible) if number >> n & 1)]
        )
        return tuple(sorted((self.cost(self.everything, marks) for marks in cases), reverse=True))

    @cached_property
    def bound(self) -> int:
        """What a case may cost, unless it cannot be so cheap.

        That is what the most expensive case must cost. If a plan without parts costs no more than that, it
        is what the next case must cost.
        """
        whole = self.cost(self.everything, Marks())
        if whole > self.costs[0]:
            return self.costs[0]
        return max((cost for cost in self.costs if cost < whole), default=whole)

    def most(self, atoms: int, marks: Marks) -> int:
        """Return what a change of the view over some atoms may cost."""
        return max(self.bound, self.cost(atoms, marks))

    def cases(self) -> tuple[Marks, ...]:
        """Return cases that together are all: those that store the least, and of these the fewest.

        A variable stays undecided in a case if the case then costs and stores no more.
        """

        @cache
        def divided(marks: Marks) -> tuple[int, tuple[Marks, ...]]:
            open_variables = [v for v in self.divisible if not v & (marks.heavy | marks.light)]
            choices: list[tuple[int, tuple[Marks, ...]]] = []
            if not open_variables or self.cost(self.everything, marks) <= self.bound:
                choices.append((self.space(marks), (marks,)))
            for variable in open_variables:
                heavy = divided(replace(marks, heavy=marks.heavy | variable))
                light = divided(replace(marks, light=marks.light | variable))
                choices.append((max(heavy[0], light[0]), (*heavy[1], *light[1])))
            return min(choices, key=lambda choice: (choice[0], len(choice[1])))

        return divided(Marks())[1]

    def space(self, marks: Marks) -> int:
        """Return the bound of the number of rows of the largest view of a case, or of its atoms."""
        views = frozenset[Stored]().union(
            *(self.views_of(self.everything, n, marks) for n in self.members(self.everything))
        )
        return max((self.rows_of_view(*view) for view in views), default=0) or self.unit

    def _rows(self, given: int, atoms: int, marks: Marks) -> dict[int, int]:
        """Return how many rows a join has for given variables: the least bound for each set of variables."""
        least = {given: 0}
        heap = [(0, given)]
        while heap:
            cost, bound = heappop(heap)
            if cost > least[bound]:
                continue
            choices = [
                (self.few if schema & bound & marks.light else self.unit, schema)
                for schema in map(self.schemas.__getitem__, self.members(atoms))
            ]
            choices += [
                (self.unit - self.few, variable)
                for variable in self.divisible
                if variable & marks.heavy & self.variables(atoms)
            ]
            for more, variables in choices:
                wider = bound | variables
                if wider != bound and cost + more < least.get(wider, NEVER):
                    least[wider] = cost + more
                    heappush(heap, (cost + more, wider))
        return least

    def _rows_after(self, changed: int, wanted: int, atoms: int, marks: Marks) -> int:
        least = self.rows(self.schemas[changed], atoms, marks)
        return min(cost for variables, cost in least.items() if not wanted & ~variables)

    def _rows_of_view(self, atoms: int, marks: Marks) -> int:
        """Return the bound of the number of rows of the view over some atoms."""
        least = self.rows(0, atoms, marks.within(self.variables(atoms)))
        return min(cost for known, cost in least.items() if not self.keys(atoms) & ~known)

    def _cost(self, atoms: int, marks: Marks) -> int:
        """Return the lowest cost of a change of a view over some atoms, whichever of them changes."""
        return max(self._cost_of(atoms, n, marks) for n in self.members(atoms))

    def _cost_of(self, atoms: int, changed: int, marks: Marks) -> int:
        start = 1 << changed, self.schemas[changed]
        least, heap = {start: 0}, [(0, *start)]
        while heap:
            cost, covered, bound = heappop(heap)
            if covered == atoms:
                return cost
            for block, wider, rows in self._next(atoms, changed, covered, bound, marks):
                total = max(cost, rows, self._cost_of_view(block, marks))
                following = covered | block, wider
                if total < least.get(following, NEVER):
                    least[following] = total
                    heappush(heap, (total, *following))
        return NEVER

    def _cost_of_view(self, atoms: int, marks: Marks) -> int:
        if atoms & (atoms - 1) == 0:
            return 0
        return self.cost(atoms, marks.within(self.variables(atoms)))

    def _next(
        self, atoms: int, changed: int, covered: int, bound: int, marks: Marks
    ) -> Iterator[tuple[int, int, int]]:
        """Yield what the next step of a join may meet, the variables after it, and the number of rows."""
        rest = atoms & ~covered
        block = rest
        while block:
            keys = self.keys(block)
            is_view = block & (block - 1) != 0
            if keys & bound and not (is_view and keys == self.variables(block)):
                wider = bound | keys
                within = marks.within(self.variables(covered | block))
                yield block, wider, self.rows_after(changed, wider, covered | block, within)
            block = (block - 1) & rest

    def _steps(self, atoms: int, changed: int, marks: Marks) -> Steps:
        """Return the join of a change that needs the smallest and fewest views, and of these the cheapest."""
        most = self.most(atoms, marks)
        heap: list[tuple[int, int, int, int, int, int, tuple[int, ...], frozenset[Stored]]]
        heap = [(0, 0, 0, 0, 1 << changed, self.schemas[changed], (), frozenset())]
        done: set[tuple[int, int]] = set()
        while heap:
            space, _, cost, steps, covered, bound, met, views = heappop(heap)
            if covered == atoms:
                return Steps(met, cost)
            if (covered, bound) in done:
                continue
            done.add((covered, bound))
            for block, wider, rows in self._next(atoms, changed, covered, bound, marks):
                if max(rows, self._cost_of_view(block, marks)) > most:
                    continue
                more = self._views(block, marks)
                needed = views | more
                largest = max([space, *(self.rows_of_view(*view) for view in more)])
                item = (len(needed), max(cost, rows), steps + 1, covered | block, wider)
                heappush(heap, (largest, *item, (*met, block), needed))
        raise AssertionError("no join costs so little")

    def _views(self, atoms: int, marks: Marks) -> frozenset[Stored]:
        """Return the view over some atoms, and all views that its changes meet; an atom has none."""
        if atoms & (atoms - 1) == 0:
            return frozenset()
        marks = marks.within(self.variables(atoms))
        below = (self.views_of(atoms, n, marks) for n in self.members(atoms))
        return frozenset({(atoms, marks)}).union(*below)

    def _views_of(self, atoms: int, changed: int, marks: Marks) -> frozenset[Stored]:
        """Return all views that are needed for changes of an atom."""
        met = self.steps(atoms, changed, marks).met
        return frozenset[Stored]().union(*(self._views(block, marks) for block in met))
