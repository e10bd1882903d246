"""Rings whose elements aggregates add up, by the names of their functions in the database."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ring:
    """A commutative ring, and the aggregate that sums products of lifted values over it."""

    element: str
    """The type of its elements."""
    plus: str
    times: str
    zero: str
    one: str
    total: str
    """What sums up elements `x`, NULLs aside."""
    product: str
    """The function from values and their places among the arguments to the product of what they lift to."""
    multiple: str
    """The function that adds an element up so many times."""
    sum_of_products: str | None = None
    """What sums up the products of elements `x` and `y`, each `n` times, without making each of them."""
    sum_of_lifted: str | None = None
    """What sums up products of lifted values, each `n` times, in the same way; they and their places are {}, {}."""
    value: str = "CASE WHEN {0} > 0 THEN {1} END"
    """What a view shows of the count of rows that have all values, {0}, and of the sum, {1}."""


MIXED_TYPE = "idivm.mixed_covariance"
"""The type of what a view shows of a generalised covariance."""

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
"""Generalised covariance: triples over numbers and categories (papers/fivm.txt, section 8.1)."""
