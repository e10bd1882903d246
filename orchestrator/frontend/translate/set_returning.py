"""Set-returning functions in the SELECT list: evaluated side by side for each row (ROWS FROM).

`SELECT t.a, unnest(t.b) FROM t` is t ⋈→ unnest(t.b). Shorter sets are filled with NULLs, and a row
for which all sets are empty is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from orchestrator.algebra import Column, DependentJoin, FunctionScan, Operator, Scalar
from orchestrator.algebra.dialect import Tree, reference
from orchestrator.algebra.scalar import unwrapped
from orchestrator.frontend.translate.context import Context, called, not_modelled, same, set_calls


def with_sets(
    context: Context, rows: Operator, scalars: Sequence[Scalar]
) -> tuple[Operator, Callable[[Scalar], Scalar]]:
    """Return the rows with the results of the functions, and a function that rewrites expressions
    to read them.
    """
    calls: list[Scalar] = []
    outputs: list[dict[str, Column]] = []
    for scalar in scalars:
        for tree in set_calls(context, scalar):
            call = scalar.part(tree)
            nested = [t for t in call.tree.iter_expressions() if set_calls(context, scalar.part(t))]
            fields = _fields(context, tree)
            if nested or not fields:
                raise not_modelled("this set-returning function in the SELECT list", tree)
            if same(calls, call) is None:
                calls.append(call)
                outputs.append({f: Column(context.symbols.fresh(f)) for f in fields})
    if not calls:
        return rows, lambda item: item
    columns = [column for named in outputs for column in named.values()]
    alias = context.symbols.fresh("sets")
    rows = DependentJoin(rows, FunctionScan(tuple(calls), alias, tuple(columns)))

    def over(item: Scalar) -> Scalar:
        def change(node: Tree) -> Tree:
            call = _call_of_field(node) or node
            position = same(calls, item.part(call)) if called(call) else None
            if position is None:
                return node
            named = outputs[position]
            field = node.expression.name if call is not node else next(iter(named))
            return reference(named[field].symbol)

        if not set_calls(context, item):
            return item
        return Scalar.of(
            item.tree.transform(change, copy=False), item.columns | set(columns), item.subqueries
        )

    return rows, over


def _fields(context: Context, call: Tree) -> tuple[str, ...]:
    """Return the columns of a function's result; empty if the query uses the whole row of several
    columns.
    """
    name = called(call)
    assert name is not None
    if name not in context.facts.row_returning:
        return (name[1],)
    above = call.parent
    while isinstance(above, exp.Paren):
        above = above.parent
    fields = context.facts.row_returning[name]
    wanted = above is not None and _call_of_field(above) is call and above.expression.name in fields
    return fields if wanted else ()


def _call_of_field(tree: Tree) -> Tree | None:
    """Return the call of which a tree selects a field: `f(x)` in `(f(x)).a`."""
    if not isinstance(tree, exp.Dot) or not isinstance(tree.expression, exp.Identifier):
        return None
    call = unwrapped(tree.this)
    return call if call is not tree.this and called(call) else None
