"""Scalar expressions: names become columns with identities, queries become subplans."""

from __future__ import annotations

from sqlglot import exp

from orchestrator.algebra import Column, Scalar, Subquery
from orchestrator.algebra.dialect import Tree, reference
from orchestrator.frontend.build.context import Context, Scope, not_modelled

QUERIES = (exp.Select, exp.SetOperation, exp.Values)


_SYSTEM_COLUMNS = frozenset({"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"})


def scalar(context: Context, tree: Tree, scope: Scope) -> Scalar:
    """An expression of the query's text over the columns in scope."""
    columns: list[Column] = []
    subqueries: list[Subquery] = []

    def column(found: Column | None, node: Tree) -> Tree:
        if found is None and node.name in _SYSTEM_COLUMNS:
            raise not_modelled("a system column", node)
        if found is None:
            raise not_modelled("a name that cannot be resolved", node)
        columns.append(found)
        return reference(found.symbol)

    def resolved(node: Tree) -> Tree:
        if isinstance(node, exp.Subquery) and not isinstance(node.this, QUERIES):
            raise not_modelled("an unknown form of subquery", node)
        if isinstance(node, QUERIES):
            plan = context.query(context, node, scope.inner())
            subqueries.append(Subquery(plan.root, plan.columns))
            return exp.Parameter(this=exp.Literal.number(len(subqueries)))
        if isinstance(node, exp.Subquery) and node.args.get("with_"):
            raise not_modelled("WITH around a subquery in parentheses", node)
        if not isinstance(node, exp.Column):
            return node
        if isinstance(node.this, exp.Star):
            return column(scope.row(node.table) if node.table else None, node)
        if not node.this.args.get("quoted") and node.name != node.name.lower():
            # PostgreSQL puts a name with capitals in quotes; this is a word of some syntax.
            raise not_modelled("a keyword where a column is expected", node.parent or node)
        return column(scope.column(node.table or None, node.name), node)

    made = tree.copy()
    for wrapped in made.find_all(exp.Subquery):
        while isinstance(wrapped.this, exp.Subquery) and wrapped.this.is_wrapper:
            wrapped.set("this", wrapped.this.this)
    made = made.transform(resolved)
    return Scalar.of(made, columns, tuple(subqueries))
