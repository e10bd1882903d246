"""Aggregates as sums of products over the ring of numbers, many of them sharing one view tree.

An aggregate is kept as a few totals, each the sum over the joined rows of a product with one factor
for each atom. A total over some of the atoms alone is the part of it that a view below holds, and
equal parts are kept once. Beside the sum itself the totals count what addition cannot tell: rows
whose product is not NULL, scales of numerics, values that are not finite. A float is added up as
the decimal number that it is written as, which is exact: nothing drifts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.algebra.analysis.decimal_scale import INTEGERS
from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.group import Aggregate
from orchestrator.algebra.scalar import Scalar, filled
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.strategies.viewtree.form import Product


class Payload(Protocol):
    """What a column of a view's payload holds: an element of a ring for each of its keys."""

    @property
    def type(self) -> str:
        """The column's type."""

    def within(self, atoms: Collection[str]) -> Payload:
        """What a view over some of the atoms holds of it."""

    def lifted(self, rows: Sequence[tuple[str, Scalar]]) -> Scalar:
        """The aggregate over joined rows of atoms, each counted as their signs say."""

    def of_row(self, rows: Sequence[tuple[str, Scalar]]) -> Scalar:
        """The same of one row of each."""

    def joined(self, factors: Sequence[tuple[Payload, Column]]) -> Scalar:
        """The aggregate over joined rows: the sum of products of what other columns hold."""

    def multiplied(self, factors: Sequence[tuple[Payload, Column]]) -> Scalar:
        """The product of what columns of one row hold."""

    def added(self, stored: Column | Scalar, more: Column | Scalar) -> Scalar:
        """The sum of two elements."""


@dataclass(frozen=True)
class Total:
    """The sum of a product: for some of the atoms a factor, never NULL; for the others 1."""

    factors: tuple[tuple[str, Scalar], ...] = ()
    type: str = "bigint"

    def within(self, atoms: Collection[str]) -> Total:
        """The total over some of the atoms; without a factor it is their count.

        >>> price = Total((("parts", Scalar.read("price")),), "numeric")
        >>> price.within(["parts", "devices"]) == price, price.within(["devices"]) == COUNT
        (True, True)
        """
        kept = tuple((atom, scalar) for atom, scalar in self.factors if atom in atoms)
        return Total(kept, self.type if kept else "bigint")

    def at(self, atom: str) -> Scalar:
        """The factor of an atom."""
        return next((scalar for name, scalar in self.factors if name == atom), ONE)

    def lifted(self, rows: Sequence[tuple[str, Scalar]]) -> Scalar:
        """The sum of the product of the atoms' factors."""
        return self._summed(self._product(rows))

    def of_row(self, rows: Sequence[tuple[str, Scalar]]) -> Scalar:
        """The product of the factors of a row of each."""
        return filled(f"x::{self.type}", x=self._product(rows))

    def _product(self, rows: Sequence[tuple[str, Scalar]]) -> Scalar:
        signs = (sign for _, sign in rows)
        return product_of((*signs, *(self.at(atom) for atom, _ in rows)))

    def joined(self, factors: Sequence[tuple[Payload, Column]]) -> Scalar:
        """The sum of the product of other totals."""
        return self._summed(product_of(Scalar.column(column) for _, column in factors))

    def multiplied(self, factors: Sequence[tuple[Payload, Column]]) -> Scalar:
        """The product of other totals."""
        return filled(
            f"x::{self.type}", x=product_of(Scalar.column(column) for _, column in factors)
        )

    def added(self, stored: Column | Scalar, more: Column | Scalar) -> Scalar:
        """The sum of two totals."""
        return filled("x + y", x=stored, y=more)

    def _summed(self, product: Scalar) -> Scalar:
        if product == ONE:
            return Scalar.read("count(*)")
        return filled(f"coalesce(sum(x), 0)::{self.type}", x=product)


ONE = Scalar.read("1")
COUNT = Total()


@dataclass(frozen=True)
class Kept:
    """An aggregate, its totals, and how its value follows from theirs."""

    aggregate: Aggregate
    totals: tuple[Payload, ...]
    value: str
    """`{0}`, `{1}`, ... stand for the totals."""


def kept(
    product: Product,
    type_name: str | None,
    result: str | None,
    never_null: Callable[[Scalar], bool],
) -> Kept:
    """How an aggregate is kept, given the types of its argument and of its value.

    >>> from orchestrator.algebra.operators.group import Aggregate
    >>> call = Aggregate(Column("s"), Scalar.read("sum(b * d)", [Column("b"), Column("d")]))
    >>> factors = tuple((r, Scalar.read(x, [Column(x)])) for r, x in [("R", "b"), ("T", "d")])
    >>> made = kept(Product(call, factors), "integer", "bigint", lambda factor: "b" in factor.sql)
    >>> for total in made.totals:
    ...     print(*(f"{atom}: {factor}" for atom, factor in total.factors), sep="; ")
    T: CASE WHEN d IS NOT NULL THEN 1 ELSE 0 END
    R: coalesce(b::numeric, 0); T: coalesce(d::numeric, 0)
    """
    function, factors = product.aggregate.function, product.factors

    holds = [(a, filled("CASE WHEN x THEN 1 ELSE 0 END", x=c)) for a, c in product.conditions]

    def total(lift: str, type_: str = "numeric") -> Total:
        lifted = [(atom, filled(lift, x=scalar)) for atom, scalar in factors]
        return Total(_multiplied((*lifted, *holds)), type_)

    # A row counts as a value even if its fields are NULL.
    null = "DISTINCT FROM NULL" if function == "count" else "NOT NULL"
    present = f"CASE WHEN x IS {null} THEN 1 ELSE 0 END"
    counted = [(a, filled(present, x=scalar)) for a, scalar in factors if not never_null(scalar)]
    rows = Total(_multiplied((*counted, *holds)))
    if function == "count":
        return Kept(product.aggregate, (rows,), "{0}")
    shape = (type_name or "").partition("(")[0]
    mean = function == "avg"
    if shape in INTEGERS:
        narrow = shape != "bigint" and len(factors) == 1
        type_ = "bigint" if narrow else "numeric"
        value = "{1}::numeric / {0}::numeric" if mean else f"{{1}}::{result or 'numeric'}"
        return Kept(
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
) -> Kept:
    """Numbers with scales, NaN and infinities.

    Whether a product is finite, or not zero, or what its sign is, is the product of what its
    factors are; from the sums of these it follows how many products are NaN, Infinity, -Infinity.
    """
    finite = f"{x} < 'Infinity'::numeric AND {x} > '-Infinity'::numeric"
    number = f"{x} <> 'NaN'::numeric"
    floats = "double" in x
    totals = (
        rows,
        total(f"CASE WHEN {finite} THEN {x} ELSE 0 END"),
        # How many products have which scale: a number to the base 10^12, whose digits these are.
        # A float shows none.
        COUNT if floats else total(f"coalesce(('1e' || (12 * scale({x})))::numeric, 0)"),
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
    return Kept(aggregate, totals, value)


def parts(totals: Iterable[Payload], atoms: Collection[str]) -> tuple[Payload, ...]:
    """What a view over some atoms holds: the count of rows, and each total's part of it."""
    return tuple(dict.fromkeys((COUNT, *(total.within(atoms) for total in totals))))


def product_of(scalars: Iterable[Scalar]) -> Scalar:
    """A product, without its ones."""
    result = ONE
    for scalar in scalars:
        if result == ONE:
            result = scalar
        elif scalar != ONE:
            result = filled("x * y", x=result, y=scalar)
    return result


def value(item: Kept, columns: Iterable[Column]) -> Scalar:
    """An aggregate's value in terms of the columns that hold its totals."""
    given = {f"p{number}": column for number, column in enumerate(columns)}
    return filled(item.value.format(*given), **given)


def _multiplied(factors: Iterable[tuple[str, Scalar]]) -> tuple[tuple[str, Scalar], ...]:
    """One factor for each atom; ones are left out."""
    by_atom: dict[str, list[Scalar]] = {}
    for atom, scalar in factors:
        by_atom.setdefault(atom, []).append(scalar)
    made = ((atom, product_of(scalars)) for atom, scalars in sorted(by_atom.items()))
    return tuple((atom, scalar) for atom, scalar in made if scalar != ONE)
