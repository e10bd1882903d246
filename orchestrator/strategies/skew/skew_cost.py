"""Estimate the cost of a change of one row of a triangle from the degrees in PostgreSQL's statistics.

Without parts, a change of R(A, B) reads the rows of S with its B, or the rows of T with its A. Their
average number depends on how often the most common values occur in both relations, because a value with
many rows also changes often. With parts, a change only reads the rows of light values, and the heavy
values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from orchestrator.algebra.operators.scan import Scan
from orchestrator.deltascript.plan import Statistics
from orchestrator.engine.costs.degrees import Values, share_met
from orchestrator.engine.costs.script import WRITTEN
from orchestrator.strategies.request import PlanningRequest
from orchestrator.strategies.skew.triangle import Division, SkewPlan
from orchestrator.strategies.viewtree.form import Atom, NormalForm
from orchestrator.strategies.viewtree.hypergraph import Variables

OVERHEAD = 300.0
"""The additional cost of maintaining degrees and parts, in lookups and rows: about a dozen statements.

Measured with `idivm bench skew --graph stream` on Zipf graphs. With 300,000 rows, where a change reads 240
rows without parts, both cost the same. With 1,000,000 rows, where it reads 580, parts are 1.6 times as fast.
"""

MET = 2.0
"""The cost of a matching row of another relation: the row, and the lookup that closes the triangle."""


@dataclass(frozen=True)
class TriangleCost:
    """The average cost of a change of one row of a triangle."""

    plain: float
    """The rows that a change joins without parts."""
    most: float
    """The rows that a single change may join without parts."""
    parted: float
    """The lookups and rows with parts."""
    threshold: float
    heavy: int
    """The number of heavy values among the most common values."""

    @property
    def described(self) -> str:
        """The costs in words.

        >>> TriangleCost(5000.0, 90000.0, 620.0, 447.2, 12).described
        'a change meets 5,000 rows on average, by the most common values, and up to 90,000; with 12 of these \
heavy, at N^ε = 447, it costs about 620 lookups and rows'
        """
        return (
            f"a change meets {self.plain:,.0f} rows on average, by the most common values, and up to"
            f" {self.most:,.0f}; with {self.heavy} of these heavy, at N^ε = {self.threshold:,.0f}, it"
            f" costs about {self.parted:,.0f} lookups and rows"
        )


@dataclass(frozen=True)
class CaseCost:
    """The cost of a change of one row of a join over the cases of heavy and light variables."""

    parted: float
    """The most lookups and rows of a change, on average over many changes."""
    exponent: Fraction
    rows: float
    """The number of rows of all relations, counted for each time that the query reads them."""

    @property
    def described(self) -> str:
        """The cost in words.

        >>> CaseCost(5828.8, Fraction(2, 3), 400000.0).described
        'over 400,000 rows, a change costs at most about 5,829 lookups and rows'
        """
        return f"over {self.rows:,.0f} rows, a change costs at most about {self.parted:,.0f} lookups and rows"


def case_cost(request: PlanningRequest, form: NormalForm, exponent: Fraction) -> CaseCost:
    """Return the cost of a change whose exponent is known."""
    tables = [scan.table for atom in form.atoms for scan in atom.scans]
    rows = sum(request.statistics.get(table.oid, Statistics(0.0)).rows for table in tables)
    overhead = OVERHEAD * len(form.atoms) / 3
    return CaseCost(overhead + rows ** float(exponent), exponent, rows)


def triangle_cost(request: PlanningRequest, form: NormalForm, plan: SkewPlan) -> TriangleCost:
    """Return the cost of a change of one row, if each relation changes in proportion to its size."""
    return _Degrees(request, form, plan).cost()


class _Degrees:
    """Degrees of the values of a triangle's variables, from statistics."""

    def __init__(self, request: PlanningRequest, form: NormalForm, plan: SkewPlan) -> None:
        self.request, self.plan = request, plan
        self.atoms = {atom.name: atom for atom in form.atoms}
        self.size = sum(self._rows(division.atom) for division in plan.divisions)

    def _threshold(self, name: str) -> float:
        return float((2 * self.size + 1) ** float(self.plan.exponents.of(name)))

    def cost(self) -> TriangleCost:
        """Return the average cost over all relations."""
        divisions = self.plan.divisions
        plain = parted = most = 0.0
        for position, division in enumerate(divisions):
            before, after = divisions[position - 1], divisions[(position + 1) % 3]
            share = self._rows(division.atom) / max(1.0, self.size)
            first, second = division.on[0], after.on[0]
            # Without parts: all matching rows, through the cheaper of the two relations.
            plain += share * min(
                self._matching(division, after, second), self._matching(division, before, first)
            )
            most = max(
                most, min(self._highest_degree(after, second), self._highest_degree(before, first))
            )
            light = self._matching(division, after, second, at_most=self._threshold(after.atom))
            heavy = min(float(self._heavy(before)), self._matching(division, before, first))
            # The listed cases, and the join of the row's part with the light or the heavy part.
            parted += share * (MET * (light + heavy) + WRITTEN * max(light, heavy))
        heavy_values = sum(self._heavy(division) for division in divisions)
        # If the relations have thresholds of their own, the smallest decides for most values.
        threshold = min(self._threshold(division.atom) for division in divisions)
        return TriangleCost(plain, most, OVERHEAD + parted, threshold, heavy_values)

    def _heavy(self, division: Division) -> int:
        return sum(
            1
            for n in self._common(division.atom, division.on[0]).values()
            if n >= self._threshold(division.atom)
        )

    def _matching(
        self, division: Division, other: Division, on: Variables, at_most: float = float("inf")
    ) -> float:
        """Return how many rows of another relation match a row, for values with at most so many rows."""
        rows = max(1.0, self._rows(other.atom))
        mine, theirs = self._value_shares(division.atom, on), self._value_shares(other.atom, on)
        return rows * share_met(mine, theirs, at_most / rows)

    def _value_shares(self, name: str, on: Variables) -> Values:
        rows = max(1.0, self._rows(name))
        shares = {value: number / rows for value, number in self._common(name, on).items()}
        return Values(max(self._values(name, on), default=1.0), shares)

    def _highest_degree(self, division: Division, on: Variables) -> float:
        """Return the number of rows of the most common value."""
        return max(
            [self._rare_degree(division.atom, on), *self._common(division.atom, on).values()]
        )

    def _rare_degree(self, name: str, on: Variables) -> float:
        """Return the average number of rows of a value that is not among the most common values."""
        return self._rows(name) * self._value_shares(name, on).rare_share

    def _common(self, name: str, on: Variables) -> dict[str, float]:
        """Return the degrees of the most common values, or nothing if several columns hold the values."""
        if len(on) != 1:
            return {}
        statistics, number = next(self._columns(self.atoms[name], on), (Statistics(0.0), 0))
        return {
            v: share * statistics.rows for v, share in statistics.common.get(number, {}).items()
        }

    def _values(self, name: str, on: Variables) -> Iterator[float]:
        for statistics, number in self._columns(self.atoms[name], on):
            yield statistics.distinct.get(number, statistics.rows)

    def _columns(self, atom: Atom, on: Variables) -> Iterator[tuple[Statistics, int]]:
        if not isinstance(atom.scan, Scan):
            return
        statistics = self.request.statistics.get(atom.scan.table.oid, Statistics(0.0))
        numbers = {output.column: output.attnum for output in atom.scan.outputs}
        for variable, scalar in atom.binds:
            column = scalar.as_column
            if variable in on and column in numbers:
                yield statistics, numbers[column]

    def _rows(self, name: str) -> float:
        scans = self.atoms[name].scans
        return sum(
            self.request.statistics.get(scan.table.oid, Statistics(0.0)).rows for scan in scans
        )
