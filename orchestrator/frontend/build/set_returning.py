"""Set-returning functions in the SELECT list: side by side, once for each row (ROWS FROM).

`SELECT t.a, unnest(t.b) FROM t` is t ⋈→ unnest(t.b). The shorter of several sets are filled up with
NULLs, and a row for which all sets are empty is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.algebra import Column, DependentJoin, FunctionScan, Operator, Scalar
from orchestrator.algebra.dialect import Tree, reference
from orchestrator.frontend.build.context import Context, called, not_modelled, same, set_calls


def with_sets(
    context: Context, rows: Operator, scalars: Sequence[Scalar]
) -> tuple[Operator, Callable[[Scalar], Scalar]]:
    """The rows with the functions' results, and how an expression reads over them."""
    calls: list[Scalar] = []
    for one in scalars:
        for tree in set_calls(context, one):
            call = one.part(tree)
            nested = [t for t in call.tree.iter_expressions() if set_calls(context, one.part(t))]
            if called(tree) in context.facts.row_returning or nested:
                raise not_modelled("this set-returning function in the SELECT list", tree)
            if same(calls, call) is None:
                calls.append(call)
    if not calls:
        return rows, lambda one: one
    columns = [Column(context.symbols.fresh(_name(call))) for call in calls]
    alias = context.symbols.fresh("sets")
    rows = DependentJoin(rows, FunctionScan(tuple(calls), alias, tuple(columns)))

    def over(one: Scalar) -> Scalar:
        def change(node: Tree) -> Tree:
            position = same(calls, one.part(node)) if called(node) else None
            return node if position is None else reference(columns[position].symbol)

        if not set_calls(context, one):
            return one
        return Scalar.of(
            one.tree.transform(change, copy=False), one.columns | set(columns), one.subqueries
        )

    return rows, over


def _name(call: Scalar) -> str:
    name = called(call.tree)
    return name[1] if name else "value"
