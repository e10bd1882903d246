"""A last look at a finished plan: every function stands where its operator gives it its meaning."""

from __future__ import annotations

from sqlglot import exp

from orchestrator.algebra import FunctionScan, Plan
from orchestrator.algebra.canonical import SQL_JSON, SQL_JSON_AGGREGATES
from orchestrator.algebra.traversal import walk
from orchestrator.frontend.translate.context import Context, called, not_modelled, set_calls
from orchestrator.frontend.translate.grouping import require_own_aggregates

_SYNTAX = frozenset(
    {"all", "any", "array", "coalesce", "exists", "greatest", "grouping", "least", "nullif", "row"}
) | frozenset(map(str.lower, SQL_JSON | SQL_JSON_AGGREGATES))
"""What looks like a call of a function and is none. Other syntax of this kind hides which function
it calls, and with it whether that is an aggregate."""


def validate(context: Context, plan: Plan) -> None:
    """Refuses a plan that reads columns nobody gives, or calls a function at a wrong place.

    An aggregate in WHERE, for one, belongs to a query further out.
    """
    if plan.root.outer_columns:
        [*names] = sorted(map(str, plan.root.outer_columns))
        raise not_modelled("a column that its query does not have", ", ".join(names))
    facts = context.facts
    for use in facts.functions:
        if use.role == "operator" and use.returns_set:
            raise not_modelled("an operator that returns a set", use.name)
    known = facts.aggregates | facts.window_functions | facts.plain_functions
    require_own_aggregates(context, plan.root)
    for operator in walk(plan.root):
        for scalar in operator.scalars:
            for call in scalar.tree.find_all(exp.Anonymous, exp.Dot):
                name = called(call)
                if name is not None and name not in known and name[1] not in _SYNTAX:
                    raise not_modelled("a call that stands for another function", call)
            if not isinstance(operator, FunctionScan):
                for tree in set_calls(context, scalar):
                    raise not_modelled("a set-returning function at this place", tree)
            for tree in scalar.tree.find_all(exp.Window):
                raise not_modelled("a window function at this place", tree)
