"""The rings over which aggregates add up values, with the names of their functions in the database."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ring:
    """A commutative ring, and the aggregate that sums products of lifted values over it."""

    element: str
    """The type of the elements."""
    plus: str
    times: str
    zero: str
    one: str
    total: str
    """The aggregate that sums elements `x` and ignores NULL."""
    product: str
    """The function that lifts values, given their argument positions, and multiplies the results."""
    multiple: str
    """The function that multiplies an element by an integer."""
    sum_of_products: str | None = None
    """The aggregate that sums the products of elements `x` and `y`, each `n` times, without storing each product."""
    sum_of_lifted: str | None = None
    """The aggregate that sums products of lifted values, each `n` times; {}, {} are values and argument positions."""
    value: str = "CASE WHEN {0} > 0 THEN {1} END"
    """The value that a view shows, from {0}, the number of rows with all values, and {1}, the sum."""


MIXED_TYPE = "idivm.mixed_covariance"
"""The type in which a view shows a generalized covariance."""

MIXED = Ring(
    "idivm.mixed_triple",
    "idivm.mixed_plus",
    "idivm.mixed_times",
    "idivm.mixed_zero",
    "idivm.mixed_one",
    "idivm.mixed_total(array_agg(x))",
    "idivm.mixed_product",
    "idivm.mixed_multiple",
    "idivm.mixed_sum(x, y, n)",
    "idivm.mixed_lift(n, {}, {})",
    f"{MIXED_TYPE}({{0}}, {{1}}, {{2}})",
)
"""Generalized covariance: triples over numbers and categories (papers/fivm.txt, section 8.1)."""
