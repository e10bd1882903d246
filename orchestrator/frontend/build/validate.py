"""A last look at a finished plan: every function stands where its operator gives it its meaning."""

from __future__ import annotations

from sqlglot import exp

from orchestrator.algebra import FunctionScan, Grouping, GroupingSets, Plan, Window
from orchestrator.algebra.traversal import walk
from orchestrator.frontend.build.context import Context, not_modelled, set_calls
from orchestrator.frontend.build.grouping import aggregate_calls


def validate(context: Context, plan: Plan) -> None:
    """Refuses a plan that reads columns nobody gives, or calls a function at a wrong place.

    An aggregate in WHERE, for one, belongs to a query further out.
    """
    if plan.root.outer_columns:
        [*names] = sorted(map(str, plan.root.outer_columns))
        raise not_modelled("a column that its query does not have", ", ".join(names))
    for operator in walk(plan.root):
        for one in operator.scalars:
            if not isinstance(operator, FunctionScan):
                for tree in set_calls(context, one):
                    raise not_modelled("a set-returning function at this place", tree)
            if not isinstance(operator, Grouping | GroupingSets | Window):
                for tree in aggregate_calls(context, one):
                    raise not_modelled("an aggregate of a query further out", tree)
            for tree in one.tree.find_all(exp.Window):
                raise not_modelled("a window function at this place", tree)
