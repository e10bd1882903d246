"""WITH: common table expressions, including recursive ones."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from orchestrator.algebra import Branch, Column, CteScan, Operator, Plan, Recursion, RecursiveScan
from orchestrator.algebra.dialect import Tree
from orchestrator.frontend.translate.context import Context, Scope, Shared, not_modelled, only_known


def with_clause(context: Context, query: Tree, scope: Scope) -> Scope:
    """Return the scope of a query, extended by the expressions of its WITH."""
    clause = query.args.get("with_")
    if clause is None:
        return scope
    only_known(clause, "expressions", "recursive")
    for cte in clause.expressions:
        only_known(cte, "this", "alias", "materialized")
        name = cte.alias
        recursive = bool(clause.args.get("recursive")) and _mentions(cte.this, name)
        expression = _recursive(context, cte, scope) if recursive else _plain(context, cte, scope)
        scope = replace(scope, shared={**scope.shared, name: expression})
    return scope


def _names(cte: exp.CTE, given: tuple[str, ...]) -> tuple[str, ...]:
    alias = cte.args["alias"]
    declared = [column.name for column in alias.args.get("columns") or []]
    return (*declared, *given[len(declared) :])


def _plain(context: Context, cte: exp.CTE, scope: Scope) -> Shared:
    plan = context.query(context, cte.this, scope.inner())
    return _shared(context, context.symbols.fresh(cte.alias), plan, _names(cte, plan.names))


def _shared(context: Context, name: str, plan: Plan, names: tuple[str, ...]) -> Shared:
    branch = Branch(plan.root, plan.columns)

    def scan() -> tuple[Operator, tuple[Column, ...]]:
        outputs = tuple(
            context.column(called, f"{name}_{called}", like=column)
            for called, column in zip(names, plan.columns, strict=True)
        )
        return CteScan(name, branch, outputs), outputs

    return Shared(names, scan)


def _recursive(context: Context, cte: exp.CTE, scope: Scope) -> Shared:
    body = cte.this
    plain = isinstance(body, exp.Union) and not any(
        body.args.get(name) for name in ("with_", "order", "limit", "offset")
    )
    if not plain or _mentions(body.this, cte.alias):
        raise not_modelled("a recursion of this form", cte)
    base = context.query(context, body.this, scope.inner())
    names = _names(cte, base.names)
    inner = context.symbols.fresh(cte.alias)
    outputs = tuple(
        context.column(called, like=column)
        for called, column in zip(names, base.columns, strict=True)
    )

    def scan() -> tuple[Operator, tuple[Column, ...]]:
        columns = tuple(
            context.column(called, f"{inner}_{called}", like=column)
            for called, column in zip(names, base.columns, strict=True)
        )
        symbols = tuple(column.symbol for column in outputs)
        return RecursiveScan(inner, symbols, columns), columns

    step_scope = replace(scope, shared={**scope.shared, cte.alias: Shared(names, scan)})
    step = context.query(context, body.expression, step_scope.inner())
    recursion = Recursion(
        inner,
        Branch(base.root, base.columns),
        Branch(step.root, step.columns),
        outputs,
        all=not body.args.get("distinct"),
    )
    return _shared(
        context, context.symbols.fresh(cte.alias), Plan(recursion, names, outputs), names
    )


def _mentions(tree: Tree, name: str) -> bool:
    return any(table.name == name and not table.db for table in tree.find_all(exp.Table))
