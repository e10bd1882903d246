"""The costs of plans over heavy and light parts, as exponents of N for a given ε."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from orchestrator.strategies.viewtree.classes import power


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

    >>> pair = Guarantee(Fraction(1, 4), Fraction(2), Fraction(1), True)
    >>> pair.update, pair.first, pair.delay
    (Fraction(1, 4), Fraction(5, 4), Fraction(3, 4))
    """

    epsilon: Fraction
    width: Fraction
    """w, the factorization width."""
    delta: Fraction
    """δ, the delta width."""
    divided: bool
    """Whether any value can be heavy."""
    changes: bool = True
    """Whether any table can change."""

    @property
    def update(self) -> Fraction:
        """The exponent of the cost of a change of one row, averaged over many changes."""
        return self.delta * self.epsilon

    @property
    def first(self) -> Fraction:
        """The exponent of the cost of the first content, and of the number of stored rows."""
        return 1 + (self.width - 1) * self.epsilon

    @property
    def delay(self) -> Fraction:
        """The exponent of the time from a row of the result to the next row."""
        return 1 - self.epsilon if self.divided else Fraction(0)

    @property
    def described(self) -> str:
        """The guarantee in words."""
        update, first, delay = map(power, (self.update, self.first, self.delay))
        if not self.changes:
            return (
                f"w = {self.width}, and no table changes: the first content costs {first},"
                f" and a row is {delay} after the one before"
            )
        return (
            f"w = {self.width}, δ = {self.delta}: a change of one row costs {update} on average,"
            f" the first content {first}, and a row is {delay} after the one before"
        )


def written(epsilon: Fraction) -> str:
    """Return N^ε as text.

    >>> [written(Fraction(e)) for e in ("0", "1/2", "1")]
    ['N^0', 'N^1/2', 'N^1']
    """
    return f"N^{epsilon}"
