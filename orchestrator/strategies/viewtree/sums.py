"""Aggregates as sums of products over the ring of numbers; all aggregates share one view tree.

An aggregate is stored as a few totals. Each total is the sum, over the joined rows, of a product with one
factor for each atom. A view over some of the atoms holds the part of a total over these atoms, and equal
parts are stored once. Besides the sum itself, totals count what addition cannot tell: rows whose product
is not NULL, scales of numerics, and values that are not finite. A float is added as its decimal text
representation, which is exact, so nothing drifts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.algebra.analysis.decimal_scale import INTEGERS, digit_of_scale
from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.group import Aggregate
from orchestrator.algebra.scalar import Scalar, filled
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.strategies.viewtree.form import Product


class Payload(Protocol):
    """The content of a column of a view's payload: for each key an element of a ring."""

    @property
    def type(self) -> str:
        """The type of the column."""

    def within(self, atoms: Collection[str]) -> Payload:
        """Return the part of the payload that a view over some of the atoms holds."""

    def lifted(self, rows: Sequence[tuple[str, Scalar]]) -> Scalar:
        """Return the aggregate over joined rows of atoms, each weighted by the product of the signs."""

    def of_row(self, rows: Sequence[tuple[str, Scalar]]) -> Scalar:
        """Return the element for one row of each atom, without aggregation."""

    def joined(self, factors: Sequence[tuple[Payload, Column]]) -> Scalar:
        """Return the aggregate over joined rows: the sum of the products of other columns."""

    def multiplied(self, factors: Sequence[tuple[Payload, Column]]) -> Scalar:
        """Return the product of columns of one row."""

    def added(self, stored: Column | Scalar, more: Column | Scalar) -> Scalar:
        """Return the sum of two elements."""

    def negated(self, column: Column) -> Scalar:
        """Return the opposite of an element, which is added where a row goes."""


@dataclass(frozen=True)
class Total:
    """The sum of a product: some atoms have a factor that is never NULL, the other atoms have 1."""

    factors: tuple[tuple[str, Scalar], ...] = ()
    type: str = "bigint"

    def within(self, atoms: Collection[str]) -> Total:
        """Return the total over some of the atoms; without a factor it is their count.

        >>> price = Total((("parts", Scalar.read("price")),), "numeric")
        >>> price.within(["parts", "devices"]) == price, price.within(["devices"]) == COUNT
        (True, True)
        """
        factors = tuple((atom, scalar) for atom, scalar in self.factors if atom in atoms)
        return Total(factors, self.type if factors else "bigint")

    def at(self, atom: str) -> Scalar:
        """Return the factor of an atom."""
        return next((scalar for name, scalar in self.factors if name == atom), ONE)

    def lifted(self, rows: Sequence[tuple[str, Scalar]]) -> Scalar:
        """Return the sum of the product of the atoms' factors."""
        return self._summed(self._product(rows))

    def of_row(self, rows: Sequence[tuple[str, Scalar]]) -> Scalar:
        """Return the product of the factors of one row of each atom."""
        return filled(f"x::{self.type}", x=self._product(rows))

    def _product(self, rows: Sequence[tuple[str, Scalar]]) -> Scalar:
        signs = (sign for _, sign in rows)
        return product_of((*signs, *(self.at(atom) for atom, _ in rows)))

    def joined(self, factors: Sequence[tuple[Payload, Column]]) -> Scalar:
        """Return the sum of the product of other totals."""
        return self._summed(product_of(Scalar.column(column) for _, column in factors))

    def multiplied(self, factors: Sequence[tuple[Payload, Column]]) -> Scalar:
        """Return the product of other totals."""
        return filled(
            f"x::{self.type}", x=product_of(Scalar.column(column) for _, column in factors)
        )

    def added(self, stored: Column | Scalar, more: Column | Scalar) -> Scalar:
        """Return the sum of two totals."""
        return filled("x + y", x=stored, y=more)

    def negated(self, column: Column) -> Scalar:
        """Return the opposite of a total."""
        return filled("-x", x=column)

    def _summed(self, product: Scalar) -> Scalar:
        if product == ONE:
            return Scalar.read("count(*)")
        return filled(f"coalesce(sum(x), 0)::{self.type}", x=product)


ONE = Scalar.read("1")
COUNT = Total()


@dataclass(frozen=True)
class RingAggregate:
    """An aggregate, its totals, and the expression for its value."""

    aggregate: Aggregate
    totals: tuple[Payload, ...]
    value: str
    """`{0}`, `{1}`, ... stand for the totals."""


def ring_aggregate(
    product: Product,
    type_name: str | None,
    result: str | None,
    never_null: Callable[[Scalar], bool],
) -> RingAggregate:
    """Return the totals of an aggregate, given the types of its argument and of its value.

    >>> from orchestrator.algebra.operators.group import Aggregate
    >>> call = Aggregate(Column("s"), Scalar.read("sum(b * d)", [Column("b"), Column("d")]))
    >>> factors = tuple((r, Scalar.read(x, [Column(x)])) for r, x in [("R", "b"), ("T", "d")])
    >>> sums = ring_aggregate(Product(call, factors), "integer", "bigint", lambda factor: "b" in factor.sql)
    >>> for total in sums.totals:
    ...     print(*(f"{atom}: {factor}" for atom, factor in total.factors), sep="; ")
    T: CASE WHEN d IS NOT NULL THEN 1 ELSE 0 END
    R: coalesce(b::numeric, 0); T: coalesce(d::numeric, 0)
    """
    function, factors = product.aggregate.function, product.factors

    holds = [(a, filled("CASE WHEN x THEN 1 ELSE 0 END", x=c)) for a, c in product.conditions]

    def total(lift: str, type_: str = "numeric") -> Total:
        lifted = [(atom, filled(lift, x=scalar)) for atom, scalar in factors]
        return Total(_merge_factors((*lifted, *holds)), type_)

    # With `count`, a row value counts even if its fields are NULL.
    null = "DISTINCT FROM NULL" if function == "count" else "NOT NULL"
    present = f"CASE WHEN x IS {null} THEN 1 ELSE 0 END"
    counted = [(a, filled(present, x=scalar)) for a, scalar in factors if not never_null(scalar)]
    rows = Total(_merge_factors((*counted, *holds)))
    if function == "count":
        return RingAggregate(product.aggregate, (rows,), "{0}")
    shape = (type_name or "").partition("(")[0]
    mean = function == "avg"
    if shape in INTEGERS:
        narrow = shape != "bigint" and len(factors) == 1
        type_ = "bigint" if narrow else "numeric"
        value = "{1}::numeric / {0}::numeric" if mean else f"{{1}}::{result or 'numeric'}"
        return RingAggregate(
            product.aggregate,
            (rows, total(f"coalesce(x::{type_}, 0)", type_)),
            f"CASE WHEN {{0}} > 0 THEN {value} END",
        )
    if shape == "numeric":
        return _numerics(product.aggregate, rows, total, "x::numeric", mean)
    if shape == "double precision":
        return _numerics(
            product.aggregate, rows, total, "(x::double precision)::text::numeric", mean
        )
    raise NotModelledError(
        f"an aggregate is over {type_name or 'an unknown type'}, and not over numbers",
        str(product.aggregate.call),
    )


def _numerics(
    aggregate: Aggregate,
    rows: Total,
    total: Callable[..., Total],
    x: str,
    mean: bool,
) -> RingAggregate:
    """Return the totals of a sum or average of numbers with scales, NaN and infinities.

    Whether a product is finite, whether it is zero, and its sign follow from the same facts about its
    factors. The sums of these facts tell how many products are NaN, Infinity and -Infinity.
    """
    finite = f"{x} < 'Infinity'::numeric AND {x} > '-Infinity'::numeric"
    number = f"{x} <> 'NaN'::numeric"
    floats = "double" in x
    totals = (
        rows,
        total(f"CASE WHEN {finite} THEN {x} ELSE 0 END"),
        # The number of products with each scale, as the digits of one number to the base 10^12.
        # Floats have no scale.
        COUNT if floats else total(f"coalesce({digit_of_scale(x)}, 0)"),
        total(f"CASE WHEN {finite} THEN 1 ELSE 0 END", "bigint"),
        total(f"CASE WHEN {number} AND {x} <> 0 THEN 1 ELSE 0 END", "bigint"),
        total(f"CASE WHEN {finite} AND {x} <> 0 THEN 1 ELSE 0 END", "bigint"),
        total(f"CASE WHEN {number} THEN coalesce(sign({x}), 0)::integer ELSE 0 END", "bigint"),
        total(f"CASE WHEN {finite} THEN sign({x})::integer ELSE 0 END", "bigint"),
    )
    exact = "{1}" if floats else "round({1}, (length(trunc({2})::text) - 1) / 12)"
    if mean:
        exact = "{1}::double precision / {0}" if floats else f"{exact} / {{0}}::numeric"
    infinite, side = "({4} - {5})", "({6} - {7})"
    type_ = "double precision" if floats else "numeric"
    value = (
        "CASE WHEN {0} = 0 THEN NULL"
        f" WHEN {{3}} = {{0}} THEN ({exact})::{type_}"
        f" WHEN {{0}} - {{3}} > {infinite} OR abs({side}) < {infinite} THEN 'NaN'::{type_}"
        f" WHEN {side} > 0 THEN 'Infinity'::{type_} ELSE '-Infinity'::{type_} END"
    )
    return RingAggregate(aggregate, totals, value)


def parts(totals: Iterable[Payload], atoms: Collection[str]) -> tuple[Payload, ...]:
    """Return the payload of a view over some atoms: the count of rows, and its part of each total."""
    return tuple(dict.fromkeys((COUNT, *(total.within(atoms) for total in totals))))


def product_of(scalars: Iterable[Scalar]) -> Scalar:
    """Return a product without factors that are 1."""
    result = ONE
    for scalar in scalars:
        if result == ONE:
            result = scalar
        elif scalar != ONE:
            result = filled("x * y", x=result, y=scalar)
    return result


def value(aggregate: RingAggregate, columns: Iterable[Column]) -> Scalar:
    """Return an aggregate's value as an expression over the columns that hold its totals."""
    column_of = {f"p{number}": column for number, column in enumerate(columns)}
    return filled(aggregate.value.format(*column_of), **column_of)


def _merge_factors(factors: Iterable[tuple[str, Scalar]]) -> tuple[tuple[str, Scalar], ...]:
    """Return one factor for each atom, and leave out factors that are 1."""
    by_atom: dict[str, list[Scalar]] = {}
    for atom, scalar in factors:
        by_atom.setdefault(atom, []).append(scalar)
    products = ((atom, product_of(scalars)) for atom, scalars in sorted(by_atom.items()))
    return tuple((atom, scalar) for atom, scalar in products if scalar != ONE)
