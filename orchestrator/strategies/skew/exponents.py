"""The costs of plans over heavy and light parts, as exponents of N for a given ε."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from orchestrator.strategies.viewtree.classes import power
from orchestrator.strategies.viewtree.hypergraph import Constraints
from orchestrator.strategies.viewtree.search import joined_after, meets_nothing
from orchestrator.strategies.viewtree.tree import View
from orchestrator.strategies.viewtree.widths import cover


@dataclass(frozen=True)
class Exponents:
    """Theorem 3 of papers/ivm-eps-triangle-queries.txt: exponents for triangles, as functions of ε.

    >>> at = [Exponents(Fraction(1, 4), free) for free in range(4)]
    >>> at[0].update, at[0].least
    (Fraction(3, 4), Fraction(1, 4))
    >>> [str(costs.space) for costs in at], [str(costs.delay) for costs in at]
    (['5/4', '5/4', '5/4', '3/2'], ['0', '1/2', '1/4', '0'])
    >>> [str(Exponents(Fraction(e), double=True).space) for e in ("1/4", "1/3", "1/2")]
    ['5/4', '4/3', '1']
    """

    epsilon: Fraction
    free: int = 0
    """The number of free variables among the three."""
    double: bool = False
    """Whether all relations are divided by both of their variables (proposition 4)."""
    linear: bool = False
    """Whether the stored rows are no more than the rows of the relations."""
    own: tuple[tuple[str, Fraction], ...] = ()
    """The relations with an ε of their own."""
    open: bool = False
    """Whether the user leaves ε to the plan."""

    def of(self, atom: str) -> Fraction:
        """Return the ε of a relation."""
        return dict(self.own).get(atom, self.epsilon)

    def light(self, atom: str) -> Fraction:
        """Return the exponent of the maximum of rows that a light value of a relation has."""
        return self.of(atom)

    def heavy(self, atom: str) -> Fraction:
        """Return the exponent of the number of heavy values of a relation."""
        return 1 - self.of(atom)

    @property
    def least(self) -> Fraction:
        """The exponent if a step may iterate over a light value's rows or over the heavy values."""
        return min(self.epsilon, 1 - self.epsilon)

    @property
    def update(self) -> Fraction:
        """The exponent of the cost of a change of one row, averaged over many changes."""
        return max(self.epsilon, 1 - self.epsilon)

    @property
    def space(self) -> Fraction:
        """The exponent of the number of stored rows."""
        if self.linear:
            return Fraction(1)
        if self.double and not self.free:
            return max(Fraction(1), min(1 + self.epsilon, 2 * (1 - self.epsilon)))
        return Fraction(3, 2) if self.free == 3 else 1 + self.least

    @property
    def delay(self) -> Fraction:
        """The exponent of the time from a row of the result to the next row."""
        return {1: 2 * self.least, 2: self.least}.get(self.free, Fraction(0))

    @property
    def described(self) -> str:
        """The guarantee in words.

        >>> Exponents(Fraction(1, 2)).described
        'a change of one row costs O(N^1/2) on average, and O(N^3/2) rows are stored'
        >>> Exponents(Fraction(1, 4), 2).described.partition("average, ")[-1]
        'O(N^5/4) rows are stored, and a row is O(N^1/4) after the one before'
        """
        update, space = power(self.update), power(self.space)
        costs = f"a change of one row costs {update} on average"
        if not self.free:
            return f"{costs}, and {space} rows are stored"
        row = f"a row is {power(self.delay)} after the one before"
        return f"{costs}, {space} rows are stored, and {row}"


@dataclass(frozen=True)
class Guarantee:
    """Theorem 3 of papers/hierarchical-queries.txt: exponents as functions of w, δ and ε.

    >>> pair = Guarantee(Fraction(1, 4), Fraction(2), Fraction(1), Fraction(1), True)
    >>> pair.update, pair.first, pair.delay
    (Fraction(1, 4), Fraction(5, 4), Fraction(3, 4))
    """

    epsilon: Fraction
    width: Fraction
    """w, the factorization width."""
    delta: Fraction
    """δ, the delta width."""
    come_or_go: Fraction
    """δ for inserts and deletes alone, which match no row that refers to another by a foreign key."""
    divided: bool
    """Whether any value can be heavy."""
    changes: bool = True
    """Whether any table can change."""
    because: str = ""
    """The constraints that the exponents rely on, in words."""

    @property
    def update(self) -> Fraction:
        """The exponent of the cost of a change of one row, averaged over many changes."""
        return self.delta * self.epsilon

    @property
    def first(self) -> Fraction:
        """The exponent of the cost of the first content, and of the number of stored rows."""
        return 1 + (self.width - 1) * self.epsilon

    @property
    def space(self) -> Fraction:
        """The exponent of the number of stored rows."""
        return self.first

    @property
    def delay(self) -> Fraction:
        """The exponent of the time from a row of the result to the next row."""
        return 1 - self.epsilon if self.divided else Fraction(0)

    @property
    def rank(self) -> tuple[Fraction, Fraction, Fraction, Fraction]:
        """The exponents; the better of two guarantees has the lower rank."""
        return self.update, self.delay, self.come_or_go, self.first

    @property
    def described(self) -> str:
        """The guarantee in words.

        >>> one, zero = Fraction(1), Fraction(0)
        >>> Guarantee(Fraction(1, 2), one, one, zero, True, because="by keys of S").described
        'w = 1, δ = 1: a change of one row costs O(N^1/2) on average, an insert or a delete O(1), the first \
content O(N), and a row is O(N^1/2) after the one before, by keys of S'
    """
        first = f"the first content {power(self.first)}"
        rest = f"and a row is {power(self.delay)} after the one before"
        rest = f"{rest}, {self.because}" if self.because else rest
        if not self.changes:
            first = f"the first content costs {power(self.first)}"
            return f"w = {self.width}, and no table changes: {first}, {rest}"
        update = f"a change of one row costs {power(self.update)} on average"
        if self.come_or_go < self.delta:
            update += f", an insert or a delete {power(self.come_or_go * self.epsilon)}"
        return f"w = {self.width}, δ = {self.delta}: {update}, {first}, {rest}"


EIGHTHS = tuple(Fraction(number, 8) for number in range(9))
"""The values of ε that a curve shows beside that of the plan, and that a dial has."""


def curve_of(costs: Exponents | Guarantee) -> tuple[tuple[str, str, str, str], ...]:
    """Return the bounds of a change, of the stored rows and of the time to the next row for each ε.

    >>> one = Fraction(1)
    >>> curve_of(Guarantee(Fraction(1, 2), one + 1, one, one, True))[2]
    ('1/4', 'O(N^1/4)', 'O(N^5/4)', 'O(N^3/4)')
    >>> curve_of(Exponents(Fraction(1, 2)))[2]
    ('1/4', 'O(N^3/4)', 'O(N^5/4)', 'O(1)')
    """
    points = (replace(costs, epsilon=each) for each in sorted({*EIGHTHS, costs.epsilon}))
    return tuple(
        (str(each.epsilon), power(each.update), power(each.space), power(each.delay))
        for each in points
    )


def delta_width(light: View, constraints: Constraints) -> Fraction:
    """Return δ of a light view: a changed row meets the δ-th power of N^ε rows.

    >>> from orchestrator.strategies.viewtree.hypergraph import Fd
    >>> inputs = (View(frozenset("AB"), ("R",)), View(frozenset("BC"), ("S",)))
    >>> light = View(frozenset("AC"), ("R", "S"), inputs)
    >>> str(delta_width(light, Constraints()))
    '1'
    >>> str(delta_width(light, Constraints((Fd.of("S", "B", "C"),), static=frozenset("S"))))
    '0'
    """
    most = Fraction(0)
    for child in light.children:
        if all(meets_nothing(atom, child, light.children, constraints) for atom in child.leaves):
            continue
        joined = [child]
        for view, _ in joined_after(child, light.children, constraints):
            joined.append(view)
            leaves = frozenset[str]().union(*(item.leaves for item in joined))
            schemas = [constraints.closure(item.keys, leaves) for item in joined]
            variables = frozenset[str]().union(*(item.keys for item in joined))
            most = max(most, cover(variables - schemas[0], schemas))
    return most


def written(epsilon: Fraction) -> str:
    """Return N^ε as text.

    >>> [written(Fraction(e)) for e in ("0", "1/2", "1")]
    ['N^0', 'N^1/2', 'N^1']
    """
    return f"N^{epsilon}"
