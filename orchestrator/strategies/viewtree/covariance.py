"""The covariance ring (papers/fivm.txt, section 8.1) in plain columns.

An element is a triple (c, s, Q): a count, a sum for each feature, a sum for each two features. Its
product (definition 32) is, entry by entry, a sum of products of entries of the factors, and an entry
over features of some atoms needs of any other atom its count alone. So each entry is a total that
shares its parts with the others: a view holds the block of the features below it and no zeros
(remark 39), and PostgreSQL's own sums do the arithmetic.

The entries are floats and are added up as such.
"""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.algebra.scalar import TRUE, Scalar, conjunction, filled
from orchestrator.strategies.viewtree.normal import Product
from orchestrator.strategies.viewtree.sums import Kept, Total, product_of


def kept(product: Product, never_null: Callable[[Scalar], bool]) -> Kept:
    """How a covariance is kept; a number that is not finite is left out, and known by a count."""
    present: dict[str, Scalar] = {}
    finite: dict[str, Scalar] = {}
    bounds = "x < 'Infinity'::double precision AND x > '-Infinity'::double precision"
    for atom in dict.fromkeys(atom for atom, _ in product.factors):
        own = [scalar for name, scalar in product.factors if name == atom]
        held = [condition for name, condition in product.conditions if name == atom]
        there = [filled("x IS NOT NULL", x=one) for one in own if not never_null(one)]
        present[atom] = conjunction([*held, *there])
        finite[atom] = conjunction([*held, *(filled(bounds, x=one) for one in own)])
    others = {
        atom: conjunction(c for name, c in product.conditions if name == atom)
        for atom, _ in product.conditions
        if atom not in present
    }

    def total(conditions: dict[str, Scalar], type_: str, *chosen: int) -> Total:
        values: dict[str, list[Scalar]] = {}
        for number in chosen:
            atom, scalar = product.factors[number]
            values.setdefault(atom, []).append(scalar)
        factors = []
        for atom, condition in sorted({**others, **conditions}.items()):
            worth = product_of(values.get(atom, ()))
            if condition != TRUE or atom in values:
                text = "CASE WHEN c THEN x ELSE 0 END"
                factors.append((atom, filled(text, c=condition, x=worth)))
        return Total(tuple(factors), type_)

    m = range(len(product.factors))
    float8 = "double precision"
    sums = [total(finite, float8, i) for i in m]
    squares = [total(finite, float8, i, j) for i in m for j in m if i <= j]
    totals = (total(present, "bigint"), total(finite, "bigint"), *sums, *squares)
    s = ", ".join(f"{{{2 + i}}}" for i in m)
    q = ", ".join(f"{{{2 + len(m) + k}}}" for k in range(len(squares)))
    value = (
        "CASE WHEN {0} = 0 THEN NULL::idivm.covariance"
        f" WHEN {{1}} = {{0}} THEN ROW({{0}}, ARRAY[{s}], ARRAY[{q}])::idivm.covariance"
        f" ELSE idivm.covar_unknown({{0}}, {len(m)}) END"
    )
    return Kept(product.aggregate, totals, value)
