"""The covariance ring (papers/fivm.txt, section 8.1): triples (c, s, Q) as one array each.

A triple of m numbers is the upper triangle of the matrix of sums of products of 1, x_1, ..., x_m. A
view holds the block of the numbers below it and no zeros (remark 39): the product of triples over
different atoms is that over the numbers of both, in the order of the factors. `idivm.triple_sum` and
`idivm.triple_lift` do the arithmetic, in C where the server has the module.

The entries are floats and are added up as such.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from orchestrator.algebra.columns import Column
from orchestrator.algebra.scalar import Scalar, conjunction, filled
from orchestrator.strategies.viewtree.form import Product
from orchestrator.strategies.viewtree.rings import counted, counted_if, rows_with_all
from orchestrator.strategies.viewtree.sums import ONE, Kept, Payload, Total

FLOAT = "double precision"
TRIPLE = f"{FLOAT}[]"
"""The type of a triple's column."""

COVARIANCE_TYPE = "idivm.covariance"
"""The type of what a view shows of one."""


@dataclass(frozen=True)
class Triple:
    """The covariance triple of some numbers, over rows that have them all and finite."""

    features: tuple[tuple[str, Scalar], ...]
    """Atom by atom, in the order in which a view tree has them as leaves."""
    conditions: tuple[tuple[str, Scalar], ...] = ()
    """What rows of an atom must satisfy, at most one for each."""
    type: str = TRIPLE

    def within(self, atoms: Collection[str]) -> Payload:
        """The block of the numbers of some atoms; without any, a count.

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
        """The sum of the triples of joined rows, each as often as their signs say.

        >>> Triple((("r", Scalar.read("a")),)).lifted([("r", ONE)])
        Scalar(coalesce((idivm.triple_lift(1, ARRAY[a])), array_fill(0::double precision, ARRAY[3])))
        """
        return self._or_zero(self._of_rows("idivm.triple_lift(times, {})", rows))

    def of_row(self, rows: Sequence[tuple[str, Scalar]]) -> Scalar:
        """The triple of one row of each."""
        return self._of_rows("idivm.triple_lift_step(NULL, times, {})", rows)

    def _of_rows(self, call: str, rows: Sequence[tuple[str, Scalar]]) -> Scalar:
        numbers = {f"x{n}": scalar for n, (_, scalar) in enumerate(self.features)}
        call = call.format(f"ARRAY[{', '.join(numbers)}]")
        return filled(call, times=counted(rows, self.conditions), **numbers)

    def joined(self, factors: Sequence[tuple[Payload, Column]]) -> Scalar:
        """The sum of the product of triples, and of counts, which are triples of no number."""
        *first, last = factors if len(factors) > 1 else (*factors, None)
        product = self.multiplied([factor for factor in first if factor])
        more = _term(*last) if last else Scalar.read(f"ARRAY[1::{FLOAT}]")
        return self._or_zero(filled("idivm.triple_sum(x, y)", x=product, y=more))

    def multiplied(self, factors: Sequence[tuple[Payload, Column]]) -> Scalar:
        """The product of triples and counts."""
        product, *rest = (_term(*factor) for factor in factors)
        for term in rest:
            product = filled("idivm.triple_times(x, y)", x=product, y=term)
        return product

    def added(self, stored: Column | Scalar, more: Column | Scalar) -> Scalar:
        """The sum of two triples."""
        return filled(f"idivm.triple_step(x, y, ARRAY[1::{FLOAT}])", x=stored, y=more)

    def _or_zero(self, total: Scalar) -> Scalar:
        """Without groups there is a total even of nothing."""
        width = len(self.features) + 1
        length = width * (width + 1) // 2
        return filled(f"coalesce(x, array_fill(0::{FLOAT}, ARRAY[{length}]))", x=total)


def kept(product: Product, leaves: Sequence[str], never_null: Callable[[Scalar], bool]) -> Kept:
    """How a covariance is kept in a tree with these leaves.

    The triple leaves out rows with a number that is not finite. If there may be some, or NULLs, the
    rows that have all numbers are counted too.
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
    return Kept(product.aggregate, (counted, triple), text)


def _term(payload: Payload, column: Column) -> Scalar:
    if isinstance(payload, Triple):
        return Scalar.column(column)
    return filled(f"ARRAY[x::{FLOAT}]", x=column)
