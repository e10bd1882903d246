"""Set-returning functions in the SELECT list: side by side, once for each row (ROWS FROM).

`SELECT t.a, unnest(t.b) FROM t` is t ⋈→ unnest(t.b). The shorter of several sets are filled up with
NULLs, and a row for which all sets are empty is dropped.
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
    """The rows with the functions' results, and how an expression reads over them."""
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

    def over(each: Scalar) -> Scalar:
        def change(node: Tree) -> Tree:
            call = _selected(node) or node
            position = same(calls, each.part(call)) if called(call) else None
            if position is None:
                return node
            named = outputs[position]
            field = node.expression.name if call is not node else next(iter(named))
            return reference(named[field].symbol)

        if not set_calls(context, each):
            return each
        return Scalar.of(
            each.tree.transform(change, copy=False), each.columns | set(columns), each.subqueries
        )

    return rows, over


def _fields(context: Context, call: Tree) -> tuple[str, ...]:
    """The columns that a function gives; none if something wants the row of several as it is."""
    name = called(call)
    assert name is not None
    if name not in context.facts.row_returning:
        return (name[1],)
    above = call.parent
    while isinstance(above, exp.Paren):
        above = above.parent
    fields = context.facts.row_returning[name]
    wanted = above is not None and _selected(above) is call and above.expression.name in fields
    return fields if wanted else ()


def _selected(tree: Tree) -> Tree | None:
    """The call of which a tree is a field: `f(x)` in `(f(x)).a`."""
    if not isinstance(tree, exp.Dot) or not isinstance(tree.expression, exp.Identifier):
        return None
    call = unwrapped(tree.this)
    return call if call is not tree.this and called(call) else None
