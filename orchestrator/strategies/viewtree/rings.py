"""Payloads from any commutative ring, including registered rings (papers/fivm.txt, section 4).

A view holds the product of the lifted arguments below it. A view without arguments below it holds a count,
by which an element is multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from orchestrator.algebra.columns import Column
from orchestrator.algebra.ring import Ring
from orchestrator.algebra.scalar import TRUE, Scalar, conjunction, filled
from orchestrator.strategies.viewtree.form import Product
from orchestrator.strategies.viewtree.sums import ONE, Payload, RingAggregate, Total, product_of


@dataclass(frozen=True)
class Element:
    """The sum of products of lifted values, over the rows that have all values."""

    ring: Ring
    factors: tuple[tuple[str, int, Scalar], ...]
    """The arguments: the atom, the position and the expression of each."""
    conditions: tuple[tuple[str, Scalar], ...] = ()
    """The conditions on rows of atoms, at most one condition for each atom."""

    @property
    def type(self) -> str:
        """The type of the ring's elements."""
        return self.ring.element

    def within(self, atoms: Collection[str]) -> Payload:
        """Return the product of the arguments of some atoms; without arguments, a count."""
        factors = tuple(factor for factor in self.factors if factor[0] in atoms)
        conditions = tuple(condition for condition in self.conditions if condition[0] in atoms)
        if factors:
            return Element(self.ring, factors, conditions)
        return Total(tuple((atom, counted_if(c, ONE)) for atom, c in conditions))

    def lifted(self, rows: Sequence[tuple[str, Scalar]]) -> Scalar:
        """Return the sum of the products of joined rows, weighted by their signs."""
        if self.ring.sum_of_lifted is None:
            return self._or_zero(self._summed(self._product_of(rows)))
        values, listed, places = self._arguments()
        text = self.ring.sum_of_lifted.format(listed, places)
        return self._or_zero(filled(text, n=counted(rows, self.conditions), **values))

    def of_row(self, rows: Sequence[tuple[str, Scalar]]) -> Scalar:
        """Return the product of one row of each atom."""
        return self._or_zero(self._product_of(rows))

    def _product_of(self, rows: Sequence[tuple[str, Scalar]]) -> Scalar:
        values, listed, places = self._arguments()
        product = filled(f"{self.ring.product}({listed}, {places})", **values)
        return self._multiple(product, counted(rows, self.conditions))

    def _arguments(self) -> tuple[dict[str, Scalar], str, str]:
        """Return the arguments by name, an array of these names, and an array of their positions."""
        values = {f"x{n}": scalar for n, (_, _, scalar) in enumerate(self.factors)}
        places = ", ".join(str(place) for _, place, _ in self.factors)
        return values, f"ARRAY[{', '.join(values)}]", f"ARRAY[{places}]"

    def joined(self, factors: Sequence[tuple[Payload, Column]]) -> Scalar:
        """Return the sum of the products of elements and counts."""
        if self.ring.sum_of_products is None:
            return self._or_zero(self._summed(self.multiplied(factors)))
        elements, count = _elements_and_count(factors)
        *first, last = elements if len(elements) > 1 else (*elements, self._unit())
        total = filled(self.ring.sum_of_products, x=self._product(first), y=last, n=count)
        return self._or_zero(total)

    def multiplied(self, factors: Sequence[tuple[Payload, Column]]) -> Scalar:
        """Return the product of elements and counts."""
        elements, count = _elements_and_count(factors)
        return self._multiple(self._product(elements), count)

    def _product(self, elements: Sequence[Scalar]) -> Scalar:
        product, *others = elements
        for other in others:
            product = filled(f"{self.ring.times}(x, y)", x=product, y=other)
        return product

    def _unit(self) -> Scalar:
        return Scalar.read(f"{self.ring.one}()")

    def added(self, stored: Column | Scalar, more: Column | Scalar) -> Scalar:
        """Return the sum of two elements."""
        return filled(f"{self.ring.plus}(x, y)", x=stored, y=more)

    def negated(self, column: Column) -> Scalar:
        """Return the opposite of an element."""
        return filled(f"{self.ring.multiple}(x, -1)", x=column)

    def _multiple(self, element: Scalar, times: Scalar) -> Scalar:
        if times == ONE:
            return element
        return filled(f"{self.ring.multiple}(x, n)", x=element, n=times)

    def _summed(self, element: Scalar) -> Scalar:
        return filled(self.ring.total, x=element)

    def _or_zero(self, element: Scalar) -> Scalar:
        return filled(f"coalesce(x, {self.ring.zero}())", x=element)


def ring_aggregate(
    product: Product, ring: Ring, never_null: Callable[[Scalar], bool]
) -> RingAggregate:
    """Return the payload of a sum over a ring, and the count of rows that have all values."""
    conditions = tuple(
        (atom, conjunction(c for name, c in product.conditions if name == atom))
        for atom in dict.fromkeys(atom for atom, _ in product.conditions)
    )
    factors = tuple((atom, place, x) for place, (atom, x) in enumerate(product.factors, 1))
    text = ring.value.format("{0}", "{1}", len(factors))
    # A row value may be present although its fields are NULL.
    counted = rows_with_all(product, conditions, never_null, "x IS DISTINCT FROM NULL")
    return RingAggregate(product.aggregate, (counted, Element(ring, factors, conditions)), text)


def _elements_and_count(factors: Sequence[tuple[Payload, Column]]) -> tuple[list[Scalar], Scalar]:
    """Return the elements among factors, and the product of the counts."""
    elements = [Scalar.column(c) for part, c in factors if isinstance(part, Element)]
    counts = (Scalar.column(c) for part, c in factors if not isinstance(part, Element))
    return elements, product_of(counts)


def rows_with_all(
    product: Product,
    conditions: Iterable[tuple[str, Scalar]],
    never_null: Callable[[Scalar], bool],
    present: str = "x IS NOT NULL",
) -> Total:
    """Return the number of rows that satisfy the conditions and have all arguments."""
    condition_of = dict(conditions)
    presence: dict[str, list[Scalar]] = {}
    for atom, scalar in product.factors:
        if not never_null(scalar):
            presence.setdefault(atom, []).append(filled(present, x=scalar))
    required = {
        atom: conjunction(
            [*([condition_of[atom]] if atom in condition_of else []), *presence.get(atom, [])]
        )
        for atom in sorted({*condition_of, *presence})
    }
    return Total(tuple((atom, counted_if(condition, ONE)) for atom, condition in required.items()))


def counted(rows: Iterable[tuple[str, Scalar]], conditions: Iterable[tuple[str, Scalar]]) -> Scalar:
    """Return how often joined rows count: the product of their signs, 0 if a condition does not hold."""
    condition_of = dict(conditions)
    return product_of(
        counted_if(condition_of[atom], sign) if atom in condition_of else sign
        for atom, sign in rows
    )


def counted_if(condition: Scalar, factor: Scalar) -> Scalar:
    """Return a factor that is 0 if a condition does not hold."""
    return (
        factor
        if condition == TRUE
        else filled("CASE WHEN c THEN x ELSE 0 END", c=condition, x=factor)
    )
