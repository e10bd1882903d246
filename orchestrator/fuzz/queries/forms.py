"""The list of all forms of queries."""

from __future__ import annotations

from orchestrator.fuzz.queries.grammar import Form
from orchestrator.fuzz.queries.products import (
    first_of_joins,
    hierarchies,
    paths,
    quadrangles,
    snowflakes,
    stars,
    sums_of_products,
    triangles,
)
from orchestrator.fuzz.queries.selects import (
    distinct,
    distinct_on,
    expanded,
    first_of_each,
    grouped,
    grouped_by_key,
    grouping_sets,
    limited,
    of_a_table,
    plain,
    scalar_aggregate,
    set_operation,
    window_over_groups,
    windowed,
    windowed_peers,
    with_ties,
    without_partner,
)
from orchestrator.fuzz.queries.subqueries import (
    cte,
    cte_twice,
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
    of_a_table,
    of_a_table,
    grouping_sets,
    expanded,
    scalar_aggregate,
    sums_of_products,
    stars,
    snowflakes,
    triangles,
    quadrangles,
    set_operation,
    set_operation,
    with_ties,
    limited,
    windowed,
    windowed_peers,
    first_of_each,
    window_over_groups,
    without_partner,
    subquery_condition,
    subquery_condition,
    subquery_condition,
    scalar_subquery,
    lateral,
    cte,
    cte_twice,
    recursive,
    paths,
    values,
)
"""All forms of queries; a form that is listed twice occurs twice as often."""

DIVIDED: tuple[Form, ...] = (*FORMS, *(hierarchies,) * 3 * len(FORMS))
"""The forms for the strategy `skew`. Few of the others divide values with a threshold that may change."""

SORTED: tuple[Form, ...] = (*FORMS, *(first_of_joins,) * len(FORMS))
"""The forms for the strategy `viewtree`. Few of the others have first rows that a view finds when it is read."""

COMMON: tuple[Form, ...] = (
    plain,
    plain,
    grouped,
    grouped,
    distinct,
    grouped_by_key,
    of_a_table,
    of_a_table,
    scalar_aggregate,
    set_operation,
    without_partner,
    subquery_condition,
)
"""The most common forms. Some cases use only these, so that a view combines many of them."""
