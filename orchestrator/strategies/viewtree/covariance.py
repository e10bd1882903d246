"""The covariance ring (papers/fivm.txt, section 8.1): triples (c, s, Q), stored as one array each.

A triple of m numbers is the upper triangle of the matrix of sums of products of 1, x_1, ..., x_m. A view
holds only the block of the numbers below it, without zeros (remark 39). The product of triples over
different atoms is a triple over the numbers of both, in the order of the factors. `idivm.triple_sum` and
`idivm.triple_lift` do the arithmetic, in C if the server has the module.

The entries are floats and are added as floats.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from orchestrator.algebra.columns import Column
from orchestrator.algebra.scalar import Scalar, conjunction, filled
from orchestrator.strategies.viewtree.form import Product
from orchestrator.strategies.viewtree.rings import counted, counted_if, rows_with_all
from orchestrator.strategies.viewtree.sums import ONE, Payload, RingAggregate, Total

FLOAT = "double precision"
TRIPLE = f"{FLOAT}[]"
"""The type of a column that holds triples."""

COVARIANCE_TYPE = "idivm.covariance"
"""The type of a triple that a view shows."""


@dataclass(frozen=True)
class Triple:
    """The covariance triple of some numbers, over the rows in which all of them are present and finite."""

    features: tuple[tuple[str, Scalar], ...]
    """The numbers with their atoms, in the order of the leaves of the view tree."""
    conditions: tuple[tuple[str, Scalar], ...] = ()
    """The conditions on rows of atoms, at most one condition for each atom."""
    type: str = TRIPLE

    def within(self, atoms: Collection[str]) -> Payload:
        """Return the block of the numbers of some atoms; without numbers, a count.

        >>> a, b = Scalar.read("a"), Scalar.read("b")
        >>> whole = Triple((("r", a), ("s", b)))
        >>> whole.within(["r"]).features, whole.within("t") == Total()
        ((('r', Scalar(a)),), True)
        """
        features = tuple(feature for feature in self.features if feature[0] in atoms)
        conditions = tuple(condition for condition in self.conditions if condition[0] in atoms)
        if features:
            return Triple(features, conditions)
        return Total(tuple((atom, counted_if(c, ONE)) for atom, c in conditions))

    def lifted(self, rows: Sequence[tuple[str, Scalar]]) -> Scalar:
        """Return the sum of the triples of joined rows, weighted by their signs.

        >>> Triple((("r", Scalar.read("a")),)).lifted([("r", ONE)])
        Scalar(coalesce((idivm.triple_lift(1, ARRAY[a])), array_fill(0::double precision, ARRAY[3])))
        """
        return self._or_zero(self._of_rows("idivm.triple_lift(times, {})", rows))

    def of_row(self, rows: Sequence[tuple[str, Scalar]]) -> Scalar:
        """Return the triple of one row of each atom."""
        return self._of_rows("idivm.triple_lift_step(NULL, times, {})", rows)

    def _of_rows(self, call: str, rows: Sequence[tuple[str, Scalar]]) -> Scalar:
        numbers = {f"x{n}": scalar for n, (_, scalar) in enumerate(self.features)}
        call = call.format(f"ARRAY[{', '.join(numbers)}]")
        return filled(call, times=counted(rows, self.conditions), **numbers)

    def joined(self, factors: Sequence[tuple[Payload, Column]]) -> Scalar:
        """Return the sum of products of triples and counts; a count is a triple of no numbers."""
        factors = self._sorted(factors)
        *first, last = factors if len(factors) > 1 else (*factors, None)
        product = _product([factor for factor in first if factor])
        more = _term(*last) if last else Scalar.read(f"ARRAY[1::{FLOAT}]")
        total = filled("idivm.triple_sum(x, y)", x=product, y=more)
        return self._or_zero(self._in_order(total, factors))

    def multiplied(self, factors: Sequence[tuple[Payload, Column]]) -> Scalar:
        """Return the product of triples and counts."""
        factors = self._sorted(factors)
        return self._in_order(_product(factors), factors)

    def _sorted(self, factors: Sequence[tuple[Payload, Column]]) -> list[tuple[Payload, Column]]:
        """Return the factors in the order of their first numbers."""
        return sorted(factors, key=lambda factor: min(self._places(factor[0]), default=0))

    def _in_order(self, triple: Scalar, factors: Sequence[tuple[Payload, Column]]) -> Scalar:
        """Return a product of factors with its numbers in the order of this triple.

        In a view tree they are in order. A join over parts may multiply R and T, and then S.

        >>> a, b, c = (("r", Scalar.read("a")), ("s", Scalar.read("b")), ("t", Scalar.read("c")))
        >>> factors = [(Triple((b,)), Column("x")), (Triple((a, c)), Column("y"))]
        >>> Triple((a, b, c)).multiplied(factors)
        Scalar(idivm.triple_products((idivm.triple_times(y, x)), ARRAY[0, 1, 3, 2]))
        """
        places = [place for payload, _ in factors for place in self._places(payload)]
        if places == sorted(places):
            return triple
        order = ", ".join(str(places.index(place) + 1) for place in range(len(places)))
        return filled(f"idivm.triple_products(x, ARRAY[0, {order}])", x=triple)

    def _places(self, payload: Payload) -> list[int]:
        """Return the positions of a factor's numbers; a factor has all numbers of its atoms."""
        atoms = {atom for atom, _ in payload.features} if isinstance(payload, Triple) else set()
        return [place for place, (atom, _) in enumerate(self.features) if atom in atoms]

    def negated(self, column: Column) -> Scalar:
        """Return the opposite of a triple."""
        return filled(f"idivm.triple_times(x, ARRAY[-1::{FLOAT}])", x=column)

    def added(self, stored: Column | Scalar, more: Column | Scalar) -> Scalar:
        """Return the sum of two triples."""
        return filled(f"idivm.triple_step(x, y, ARRAY[1::{FLOAT}])", x=stored, y=more)

    def _or_zero(self, total: Scalar) -> Scalar:
        """Replace NULL by the zero triple: without GROUP BY the view has a row even for no input."""
        width = len(self.features) + 1
        length = width * (width + 1) // 2
        return filled(f"coalesce(x, array_fill(0::{FLOAT}, ARRAY[{length}]))", x=total)


def ring_aggregate(
    product: Product, leaves: Sequence[str], never_null: Callable[[Scalar], bool]
) -> RingAggregate:
    """Return the payload of a covariance in a tree with these leaves.

    The triple leaves out rows with a number that is not finite. If such rows or NULLs are possible, the
    payload also counts the rows that have all numbers.
    """
    conditions = tuple(
        (atom, conjunction(c for name, c in product.conditions if name == atom))
        for atom in dict.fromkeys(atom for atom, _ in product.conditions)
    )
    numbers = [(leaves.index(atom), n) for n, (atom, _) in enumerate(product.factors)]
    places = {n: place for place, (_, n) in enumerate(sorted(numbers), 1)}
    triple = Triple(tuple(product.factors[n] for n in places), conditions)
    counted = rows_with_all(product, conditions, never_null)
    order = ", ".join(str(places[n]) for n in range(len(places)))
    text = f"idivm.triple_covariance({{0}}, {{1}}, ARRAY[{order}])"
    return RingAggregate(product.aggregate, (counted, triple), text)


def _product(factors: Sequence[tuple[Payload, Column]]) -> Scalar:
    product, *rest = (_term(*factor) for factor in factors)
    for term in rest:
        product = filled("idivm.triple_times(x, y)", x=product, y=term)
    return product


def _term(payload: Payload, column: Column) -> Scalar:
    if isinstance(payload, Triple):
        return Scalar.column(column)
    return filled(f"ARRAY[x::{FLOAT}]", x=column)
