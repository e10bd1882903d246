"""Final checks of a plan: every function must occur where the operator evaluates it as SQL does."""

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
"""Syntax that looks like a function call but is none. Other such syntax hides the function that it
calls, and thus whether that is an aggregate."""


def validate(context: Context, plan: Plan) -> None:
    """Reject a plan that reads undefined columns, or calls a function in a wrong place.

    For example, an aggregate in WHERE belongs to a surrounding query.
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
