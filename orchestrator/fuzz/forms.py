"""The list of all forms of queries."""

from __future__ import annotations

from orchestrator.fuzz.grammar import Form
from orchestrator.fuzz.products import sums_of_products
from orchestrator.fuzz.selects import (
    distinct,
    distinct_on,
    grouped,
    grouped_by_key,
    grouping_sets,
    limited,
    plain,
    scalar_aggregate,
    set_operation,
    window_over_groups,
    windowed,
    with_ties,
)
from orchestrator.fuzz.subqueries import (
    cte,
    lateral,
    recursive,
    scalar_subquery,
    subquery_condition,
    values,
)

FORMS: tuple[Form, ...] = (
    plain,
    plain,
    plain,
    distinct,
    distinct_on,
    grouped,
    grouped,
    grouped,
    grouped_by_key,
    grouping_sets,
    scalar_aggregate,
    sums_of_products,
    sums_of_products,
    set_operation,
    set_operation,
    with_ties,
    limited,
    windowed,
    window_over_groups,
    subquery_condition,
    subquery_condition,
    scalar_subquery,
    lateral,
    cte,
    recursive,
    values,
)
"""Every form of query; one that stands here twice comes twice as often."""
