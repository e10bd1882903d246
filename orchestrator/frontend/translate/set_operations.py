"""UNION, INTERSECT, EXCEPT and VALUES."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from orchestrator.algebra import (
    Branch,
    Column,
    Difference,
    Distinct,
    Intersection,
    Operator,
    Plan,
    UnionAll,
    Values,
)
from orchestrator.algebra.dialect import Tree
from orchestrator.frontend.translate.context import Context, Scope, not_modelled, only_known
from orchestrator.frontend.translate.expressions import scalar
from orchestrator.frontend.translate.select import limited
from orchestrator.frontend.translate.windows import sort_key


def set_operation(context: Context, query: exp.SetOperation, scope: Scope) -> Plan:
    """Return the plan of a set operation, with the column names of its first branch."""
    only_known(query, "with_", "this", "expression", "distinct", "order", "limit", "offset")
    plans = [context.query(context, part, scope) for part in _parts(query)]
    branches = tuple(Branch(plan.root, plan.columns) for plan in plans)
    names = plans[0].names
    outputs = outputs_of(context, names, branches)
    rows: Operator
    everything = not query.args.get("distinct")
    if isinstance(query, exp.Union):
        rows = UnionAll(branches, outputs)
        rows = rows if everything else Distinct(rows)
    else:
        kind = Intersection if isinstance(query, exp.Intersect) else Difference
        rows = kind(branches[0], branches[1], outputs, everything)
    keys = []
    order = query.args.get("order")
    for item in order.expressions if order is not None else []:
        keys.append(sort_key(item, outputs[_position(item.this, names)]))
    return Plan(limited(context, rows, query, tuple(keys), scope), names, outputs)


def _parts(query: exp.SetOperation) -> list[Tree]:
    """Return the branches: all of a chain of UNION ALL, otherwise two."""
    left: Tree = query.this
    chained = (
        isinstance(query, exp.Union)
        and not query.args.get("distinct")
        and isinstance(left, exp.Union)
        and not any(
            left.args.get(name) for name in ("distinct", "with_", "order", "limit", "offset")
        )
    )
    if chained and isinstance(left, exp.Union):
        return [*_parts(left), query.expression]
    return [left, query.expression]


def outputs_of(
    context: Context, names: tuple[str, ...], branches: tuple[Branch, ...]
) -> tuple[Column, ...]:
    """Return new columns for branches matched by position, with the types on which all branches
    agree.
    """
    outputs = []
    for position, name in enumerate(names):
        inputs = [branch.columns[position] for branch in branches]
        column = context.column(name)
        kinds, equalities = {c.type for c in inputs}, {c.equality for c in inputs}
        if len(kinds) == 1:
            column = replace(column, type=kinds.pop())
        if len(equalities) == 1:
            exact = all(c.exact for c in inputs)
            column = replace(column, equality=equalities.pop(), exact=exact)
        outputs.append(column)
    return tuple(outputs)


def _position(tree: Tree, names: tuple[str, ...]) -> int:
    if isinstance(tree, exp.Literal) and not tree.is_string:
        return int(tree.name) - 1
    if isinstance(tree, exp.Column) and tree.name in names:
        return names.index(tree.name)
    raise not_modelled("this ORDER BY of a set operation", tree)


def values(context: Context, query: exp.Values, scope: Scope) -> Plan:
    """Return the plan of VALUES."""
    only_known(query, "expressions", "alias", "order", "limit", "offset", "with_")
    rows = []
    for row in query.expressions:
        parts = row.expressions if isinstance(row, exp.Tuple) else [row]
        rows.append(tuple(scalar(context, part, scope) for part in parts))
    names = tuple(f"column{position}" for position in range(1, len(rows[0]) + 1))
    alias = query.args.get("alias")
    hints = [column.name for column in alias.args.get("columns") or []] if alias else []
    outputs = tuple(
        context.column(hints[position] if position < len(hints) else name)
        for position, name in enumerate(names)
    )
    table: Operator = Values(tuple(rows), outputs)
    keys = []
    order = query.args.get("order")
    for item in order.expressions if order is not None else []:
        keys.append(sort_key(item, outputs[_position(item.this, names)]))
    return Plan(limited(context, table, query, tuple(keys), scope), names, outputs)
