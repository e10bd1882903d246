"""Translation of the canonical text of a query into an algebra plan, one module for each kind of
clause.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from orchestrator.algebra import Plan, Symbols, Unsupported
from orchestrator.algebra.dialect import Tree, UnreadableError, read
from orchestrator.algebra.passes.project_scans import project_scans
from orchestrator.algebra.passes.push_conditions import arrange_joins
from orchestrator.algebra.unsupported import NotModelledError
from orchestrator.frontend.translate.context import Context, QueryFacts, Scope, not_modelled
from orchestrator.frontend.translate.ctes import with_clause
from orchestrator.frontend.translate.select import select
from orchestrator.frontend.translate.set_operations import set_operation, values
from orchestrator.frontend.translate.validate import validate


def build(text: str, facts: QueryFacts) -> Plan | Unsupported:
    """Return the plan of a query as PostgreSQL prints it, or the part that the algebra does not
    model.
    """
    try:
        tree = read(text)
        texts = [tree, *(read(view.text) for view in facts.views.values())]
        whole = any(_counts_columns(text) or _reads_rows(text) for text in texts)
        mentioned = None if whole else _names(texts)
        context = Context(facts, Symbols(), mentioned, _query)
        plan = _query(context, tree, Scope())
        validate(context, plan)
    except UnreadableError as error:
        return Unsupported("the text cannot be read back", error.where)
    except NotModelledError as error:
        return error.unsupported
    return project_scans(arrange_joins(plan))


def _counts_columns(tree: Tree) -> bool:
    """Return whether columns of a derived table are named by position."""
    return any(
        isinstance(alias.parent, exp.Subquery) and alias.args.get("columns")
        for alias in tree.find_all(exp.TableAlias)
    )


def _reads_rows(tree: Tree) -> bool:
    return any(isinstance(column.this, exp.Star) for column in tree.find_all(exp.Column))


def _names(trees: Iterable[Tree]) -> frozenset[str]:
    return frozenset(
        name.name for tree in trees for name in tree.find_all(exp.Column, exp.Identifier)
    )


def _query(context: Context, tree: Tree, scope: Scope) -> Plan:
    """Return the plan of any query: a SELECT, a set operation or VALUES, with or without
    parentheses.
    """
    while isinstance(tree, exp.Subquery) and tree.is_wrapper:
        tree = tree.this
    inside = with_clause(context, tree, scope)
    if isinstance(tree, exp.Select):
        return select(context, tree, inside)
    if isinstance(tree, exp.SetOperation):
        return set_operation(context, tree, inside)
    if isinstance(tree, exp.Values):
        return values(context, tree, inside)
    raise not_modelled("this form of query", tree)


__all__ = ["QueryFacts", "build"]
