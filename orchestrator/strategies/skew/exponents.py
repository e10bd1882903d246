"""What the costs of plans over heavy and light parts grow with, as powers of N for a given ε."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from orchestrator.strategies.viewtree.classes import power


@dataclass(frozen=True)
class Exponents:
    """Theorem 3 of papers/ivm-eps-triangle-queries.txt: the exponents that ε gives for triangles.

    >>> at = [Exponents(Fraction(1, 4), free) for free in range(4)]
    >>> at[0].update, at[0].least
    (Fraction(3, 4), Fraction(1, 4))
    >>> [str(one.space) for one in at], [str(one.delay) for one in at]
    (['5/4', '5/4', '5/4', '3/2'], ['0', '1/2', '1/4', '0'])
    >>> [str(Exponents(Fraction(one), double=True).space) for one in ("1/4", "1/3", "1/2")]
    ['5/4', '4/3', '1']
    """

    epsilon: Fraction
    free: int = 0
    """How many of the three variables are free."""
    double: bool = False
    """Whether all relations are divided by both of their variables (proposition 4)."""
    linear: bool = False
    """Whether no more rows are stored than the relations have."""
    own: tuple[tuple[str, Fraction], ...] = ()
    """Relations that have an ε of their own."""

    def of(self, atom: str) -> Fraction:
        """The ε of a relation."""
        return dict(self.own).get(atom, self.epsilon)

    def light(self, atom: str) -> Fraction:
        """Of the rows that a light value of a relation has at most."""
        return self.of(atom)

    def heavy(self, atom: str) -> Fraction:
        """Of the number of its heavy values."""
        return 1 - self.of(atom)

    @property
    def least(self) -> Fraction:
        """Where one may go through the rows of a light value or through the heavy values."""
        return min(self.epsilon, 1 - self.epsilon)

    @property
    def update(self) -> Fraction:
        """Of what a change of one row costs, averaged over many."""
        return max(self.epsilon, 1 - self.epsilon)

    @property
    def space(self) -> Fraction:
        """Of the number of rows that are stored."""
        if self.linear:
            return Fraction(1)
        if self.double and not self.free:
            return max(Fraction(1), min(1 + self.epsilon, 2 * (1 - self.epsilon)))
        return Fraction(3, 2) if self.free == 3 else 1 + self.least

    @property
    def delay(self) -> Fraction:
        """Of the time from one row of the result to the next."""
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
    """Theorem 3 of papers/hierarchical-queries.txt: the exponents that w, δ and ε give.

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
    """Whether any value may be heavy."""
    changes: bool = True
    """Whether any table does."""

    @property
    def update(self) -> Fraction:
        """Of what a change of one row costs, averaged over many."""
        return self.delta * self.epsilon

    @property
    def first(self) -> Fraction:
        """Of what the first content costs, and of the number of rows that are stored."""
        return 1 + (self.width - 1) * self.epsilon

    @property
    def delay(self) -> Fraction:
        """Of the time from one row of the result to the next."""
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
    """N^ε for people.

    >>> [written(Fraction(one)) for one in ("0", "1/2", "1")]
    ['N^0', 'N^1/2', 'N^1']
    """
    return f"N^{epsilon}"
