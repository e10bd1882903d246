"""Orders of the rows that aggregates and ARRAY(SELECT ...) read, completed by the IDs of the rows.

PostgreSQL passes rows to `array_agg(name)` in the order in which its plan reads them, so another
plan may return another array. As for LIMIT, the order is completed by the columns that identify the
rows. An order below the aggregation comes first: PostgreSQL follows it, although it does not
guarantee that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.canonical import SQL_JSON_AGGREGATES
from orchestrator.algebra.columns import Column
from orchestrator.algebra.dependencies import has_key
from orchestrator.algebra.ids import ids_of, infer_ids
from orchestrator.algebra.operators.base import Operator, SortKey
from orchestrator.algebra.operators.cte_scan import CteScan
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.grouping_sets import GroupingSets
from orchestrator.algebra.operators.limit import Limit
from orchestrator.algebra.operators.numbered import Numbered
from orchestrator.algebra.operators.project import Item, Projection, over
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.sort import Sort
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.scalar import Scalar, Subquery, unwrapped
from orchestrator.algebra.traversal import rewrite, walk
from orchestrator.algebra.unsupported import Unsupported

OF_SETS = frozenset(
    {
        *("count", "sum", "avg", "min", "max", "every", "bool_and", "bool_or"),
        *("bit_and", "bit_or", "bit_xor", "stddev", "stddev_pop", "stddev_samp"),
        *("variance", "var_pop", "var_samp", "corr", "covar_pop", "covar_samp"),
        *("regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_slope"),
        *("regr_sxx", "regr_sxy", "regr_syy", "range_agg", "range_intersect_agg"),
    }
)
"""Aggregates whose results do not depend on the order of the rows."""


def is_open(
    operator: Grouping | GroupingSets, aggregate: Aggregate, rings: Collection[str] = ()
) -> bool:
    """Return whether an aggregate may return another result for another order of the rows.

    `rings` are the aggregates of users' rings; their results do not depend on the order.
    """
    tree = aggregate.call.tree
    if (
        aggregate.function in OF_SETS
        or aggregate.function in rings
        or aggregate.function == "grouping"
    ):
        return False
    if (
        aggregate.function.startswith("idivm.")
        or tree.find(exp.WithinGroup) is not None
        or aggregate.distinct
    ):
        return False
    by = operator.by if isinstance(operator, Grouping) else ()
    below = operator.input
    known = {*by, *_sorted_by(aggregate)}
    if has_key(below.keys, below.dependencies, known):
        return False
    argument_columns = frozenset[Column]().union(
        *(argument.references for argument in aggregate.arguments)
    )
    exact = (
        aggregate.arguments
        and all(column.exact for column in argument_columns)
        and not aggregate.call.subqueries
    )
    return not (exact and below.dependencies.imply(known, argument_columns))


def is_open_array(subquery: Subquery) -> bool:
    """Return whether ARRAY of a subquery may return another array for another order of its rows."""
    below, order = _order(subquery.plan)
    known = [key.column for key in order]
    if has_key(below.keys, below.dependencies, known):
        return False
    exact = all(column.exact for column in subquery.columns)
    return not (exact and below.dependencies.imply(known, subquery.columns))


def with_orders(plan: Plan, rings: Collection[str] = ()) -> Plan:
    """Return the plan, with the orders of aggregates completed if they are open.

    >>> from orchestrator.algebra.examples import PARTS, PID, PRICE
    >>> from orchestrator.algebra.printer import print_plan
    >>> listed = Aggregate(Column("listed"), Scalar.read("array_agg(pid)", [PID]))
    >>> plan = Plan(Grouping(PARTS, (PRICE,), (listed,)), ("l",), (listed.column,))
    >>> print(print_plan(with_orders(plan), ids=False))
    view l = listed (hidden: price)
    └─ γ price; array_agg(pid ORDER BY pid ASC) → listed
       └─ scan parts
    """

    def changed(operator: Operator) -> Operator:
        if isinstance(operator, Grouping | GroupingSets):
            return _completed(operator, rings)
        return operator.map_scalars(_with_sorted_arrays)

    return replace(plan, root=rewrite(plan.root, changed))


def arrays(scalar: Scalar) -> Iterable[int]:
    """Yield the positions of the subqueries that ARRAY reads."""
    for node in scalar.tree.find_all(exp.Anonymous):
        if node.name == "ARRAY" and len(node.expressions) == 1:
            hole = unwrapped(node.expressions[0])
            if isinstance(hole, exp.Parameter):
                yield int(hole.name) - 1


def _completed(operator: Grouping | GroupingSets, rings: Collection[str]) -> Operator:
    open_aggregates = [
        aggregate for aggregate in operator.aggregates if is_open(operator, aggregate, rings)
    ]
    if not open_aggregates or any(map(_is_sql_json, open_aggregates)):
        return operator
    below, order = _order(operator.input)
    identified = _identified(below)
    if identified is None:
        return operator
    keys = (*order, *(SortKey(column) for column in ids_of(identified)))
    aggregates = tuple(
        replace(aggregate, call=_sorted(aggregate, keys))
        if aggregate in open_aggregates
        else aggregate
        for aggregate in operator.aggregates
    )
    return replace(operator, input=identified, aggregates=aggregates)


def _with_sorted_arrays(scalar: Scalar) -> Scalar:
    open_arrays = {n for n in arrays(scalar) if is_open_array(scalar.subqueries[n])}
    if not open_arrays:
        return scalar
    subqueries = tuple(
        _sorted_array(subquery) if n in open_arrays else subquery
        for n, subquery in enumerate(scalar.subqueries)
    )
    return Scalar.of(scalar.tree, scalar.columns, subqueries)


def _sorted_array(subquery: Subquery) -> Subquery:
    below, order = _order(subquery.plan)
    identified = _identified(below)
    if identified is None:
        return subquery
    known = {key.column for key in order}
    rest = tuple(SortKey(column) for column in ids_of(identified) if column not in known)
    return replace(subquery, plan=over(Sort(identified, (*order, *rest)), subquery.columns))


def _identified(plan: Operator) -> Operator | None:
    """Return a plan with the IDs of its rows, or None if that would require numbering equal rows."""
    if any(isinstance(operator, CteScan) for operator in walk(plan)):
        return None
    with_ids = infer_ids(Plan(plan, (), ()))
    if isinstance(with_ids, Unsupported) or any(
        isinstance(o, Numbered) for o in walk(with_ids.root)
    ):
        return None
    return with_ids.root


def _order(plan: Operator) -> tuple[Operator, tuple[SortKey, ...]]:
    """Return the order of the rows of a plan, and the plan extended by the columns of this order."""
    if isinstance(plan, Sort):
        return plan.input, plan.order
    if isinstance(plan, Limit):
        return plan, plan.order
    if isinstance(plan, Selection):
        below, order = _order(plan.input)
        return replace(plan, input=below), order
    if isinstance(plan, Projection):
        below, order = _order(plan.input)
        unchanged = {item.column for item in plan.items if item.is_unchanged}
        lacking = dict.fromkeys(key.column for key in order if key.column not in unchanged)
        return Projection(below, (*plan.items, *map(Item.kept, lacking))), order
    return plan, ()


def _sorted_by(aggregate: Aggregate) -> list[Column]:
    order = aggregate.call.tree.find(exp.Order)
    as_columns = (
        [aggregate.call.part(key.this).as_column for key in order.expressions] if order else []
    )
    return [column for column in as_columns if column is not None]


def _sorted(aggregate: Aggregate, keys: Iterable[SortKey]) -> Scalar:
    """Return the call of an aggregate with more keys in its order."""
    tree = aggregate.call.tree
    core = tree
    while isinstance(core, exp.Filter | exp.Dot):
        core = core.expression if isinstance(core, exp.Dot) else core.this
    *before, last = core.expressions
    known = set(_sorted_by(aggregate))
    more = [
        exp.Ordered(
            this=dialect.reference(key.column.symbol),
            desc=key.descending,
            nulls_first=key.nulls_first,
        )
        for key in keys
        if key.column not in known
    ]
    if isinstance(last, exp.Order):
        ordered = exp.Order(this=last.this.copy(), expressions=[*last.expressions, *more])
    else:
        ordered = exp.Order(this=last.copy(), expressions=more)
    core.set("expressions", [*before, ordered])
    return Scalar.of(
        tree, {*aggregate.call.columns, *(key.column for key in keys)}, aggregate.call.subqueries
    )


def _is_sql_json(aggregate: Aggregate) -> bool:
    return any(
        node.name in SQL_JSON_AGGREGATES for node in aggregate.call.tree.find_all(exp.Anonymous)
    )
