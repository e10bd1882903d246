"""What a change of one row of a triangle costs, by the degrees that PostgreSQL's statistics tell.

Without parts, a change of R(A, B) goes through the rows of S with its B, or those of T with its A. How
many these are on average follows from how often the most common values are in both: a value that many
rows have changes often, too. With parts, it goes through the rows of light values only, and through the
heavy values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.deltascript.plan import Statistics
from orchestrator.engine.costs.degrees import Values, share_met
from orchestrator.engine.costs.script import WRITTEN
from orchestrator.strategies.request import PlanningRequest
from orchestrator.strategies.skew.triangle import Division, SkewPlan
from orchestrator.strategies.viewtree.form import Atom, NormalForm
from orchestrator.strategies.viewtree.hypergraph import Variables

OVERHEAD = 300.0
"""What following degrees and parts costs beside that, in lookups and rows: a dozen statements.

On Zipf graphs of 300,000 rows, where a change meets 240 without parts, both cost the same; of 1,000,000
rows, where it meets 580, parts are 1.6 times as fast (`idivm bench skew --graph stream`).
"""

MET = 2.0
"""What a row of another relation costs that a row meets: the row, and the lookup of what closes the triangle."""


@dataclass(frozen=True)
class Weight:
    """What a change of one row meets, on average."""

    plain: float
    """Rows that it is joined with, without parts."""
    most: float
    """Those that one change may meet."""
    parted: float
    """Lookups and rows, with parts."""
    threshold: float
    heavy: int
    """How many of the most common values are heavy."""

    @property
    def described(self) -> str:
        """In words, with the numbers.

        >>> Weight(5000.0, 90000.0, 620.0, 447.2, 12).described
        'a change meets 5,000 rows on average, by the most common values, and up to 90,000; with 12 of these \
heavy, at N^ε = 447, it costs about 620 lookups and rows'
        """
        return (
            f"a change meets {self.plain:,.0f} rows on average, by the most common values, and up to"
            f" {self.most:,.0f}; with {self.heavy} of these heavy, at N^ε = {self.threshold:,.0f}, it"
            f" costs about {self.parted:,.0f} lookups and rows"
        )


def weight(request: PlanningRequest, form: NormalForm, plan: SkewPlan) -> Weight:
    """What a change of one row costs, if each relation changes as often as it is large."""
    return _Degrees(request, form, plan).weight()


class _Degrees:
    """Degrees of the values of a triangle's variables, as far as statistics tell."""

    def __init__(self, request: PlanningRequest, form: NormalForm, plan: SkewPlan) -> None:
        self.request, self.plan = request, plan
        self.atoms = {atom.name: atom for atom in form.atoms}
        self.size = sum(self._rows(division.atom) for division in plan.divisions)

    def _threshold(self, name: str) -> float:
        return float((2 * self.size + 1) ** float(self.plan.exponents.of(name)))

    def weight(self) -> Weight:
        """The averages over all relations."""
        divisions = self.plan.divisions
        plain = parted = most = 0.0
        for place, division in enumerate(divisions):
            before, after = divisions[place - 1], divisions[(place + 1) % 3]
            share = self._rows(division.atom) / max(1.0, self.size)
            first, second = division.on[0], after.on[0]
            # All that meet, through the one relation or the other.
            plain += share * min(
                self._meeting(division, after, second), self._meeting(division, before, first)
            )
            most = max(most, min(self._most(after, second), self._most(before, first)))
            light = self._meeting(division, after, second, at_most=self._threshold(after.atom))
            heavy = min(float(self._heavy(before)), self._meeting(division, before, first))
            # What is listed, and the join of the row's part with the light or the heavy one.
            parted += share * (MET * (light + heavy) + WRITTEN * max(light, heavy))
        heavy_values = sum(self._heavy(item) for item in divisions)
        # Where each relation has its own, it is the smallest that tells most values to be heavy.
        threshold = min(self._threshold(item.atom) for item in divisions)
        return Weight(plain, most, OVERHEAD + parted, threshold, heavy_values)

    def _heavy(self, division: Division) -> int:
        return sum(
            1
            for n in self._common(division.atom, division.on[0]).values()
            if n >= self._threshold(division.atom)
        )

    def _meeting(
        self, division: Division, other: Division, on: Variables, at_most: float = float("inf")
    ) -> float:
        """How many rows of another relation a row of one meets, of values with no more than so many."""
        rows = max(1.0, self._rows(other.atom))
        mine, theirs = self._known(division.atom, on), self._known(other.atom, on)
        return rows * share_met(mine, theirs, at_most / rows)

    def _known(self, name: str, on: Variables) -> Values:
        rows = max(1.0, self._rows(name))
        shares = {value: number / rows for value, number in self._common(name, on).items()}
        return Values(max(self._values(name, on), default=1.0), shares)

    def _most(self, division: Division, on: Variables) -> float:
        """How many rows the most common value has."""
        return max([self._others(division.atom, on), *self._common(division.atom, on).values()])

    def _others(self, name: str, on: Variables) -> float:
        """How many rows a value has that is not among the most common ones."""
        return self._rows(name) * self._known(name, on).rare_share

    def _common(self, name: str, on: Variables) -> dict[str, float]:
        """The degrees of the most common values, if one column holds them."""
        if len(on) != 1:
            return {}
        known, number = next(self._columns(self.atoms[name], on), (Statistics(0.0), 0))
        return {v: share * known.rows for v, share in known.common.get(number, {}).items()}

    def _values(self, name: str, on: Variables) -> Iterator[float]:
        for known, number in self._columns(self.atoms[name], on):
            yield known.distinct.get(number, known.rows)

    def _columns(self, atom: Atom, on: Variables) -> Iterator[tuple[Statistics, int]]:
        known = self.request.statistics.get(atom.scan.table.oid, Statistics(0.0))
        numbers = {output.column: output.attnum for output in atom.scan.outputs}
        for variable, scalar in atom.binds:
            column = scalar.as_column
            if variable in on and column in numbers:
                yield known, numbers[column]

    def _rows(self, name: str) -> float:
        atom = self.atoms[name]
        return self.request.statistics.get(atom.scan.table.oid, Statistics(0.0)).rows
