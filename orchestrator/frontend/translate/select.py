"""SELECT: its clauses, in the order in which SQL evaluates them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from orchestrator.algebra import (
    Column,
    Distinct,
    DistinctOn,
    Item,
    Limit,
    Operator,
    Plan,
    Projection,
    Scalar,
    Selection,
    Sort,
    SortKey,
    conjunction,
)
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.scalar import filled
from orchestrator.frontend.translate.context import Context, Scope, only_known, same
from orchestrator.frontend.translate.expressions import scalar
from orchestrator.frontend.translate.grouping import group, has_groups
from orchestrator.frontend.translate.relations import from_clause
from orchestrator.frontend.translate.set_returning import with_sets
from orchestrator.frontend.translate.types import type_of, typed
from orchestrator.frontend.translate.unnest import where
from orchestrator.frontend.translate.windows import named_windows, sort_key, windows, with_named

_KNOWN = (
    "with_", "expressions", "from_", "joins", "where", "group", "having", "windows", "distinct",
    "order", "limit", "offset",
)  # fmt: skip


@dataclass(frozen=True)
class _Output:
    """An item of the SELECT list or of ORDER BY."""

    name: str
    scalar: Scalar


def select(context: Context, query: exp.Select, scope: Scope) -> Plan:
    """Return the plan of a SELECT; `scope` has the surrounding queries and its WITH."""
    only_known(query, *_KNOWN)
    rows, names = from_clause(context, query, scope)
    named = named_windows(query)
    if query.args.get("where"):
        rows = where(rows, scalar(context, query.args["where"].this, names))
    outputs = [
        _Output(_name(tree), _scalar(context, tree, names, named)) for tree in query.expressions
    ]
    order = _ordering(context, query, names, named, outputs)
    on = _distinct_on(context, query, names, outputs)
    having = query.args.get("having")
    conditions = [scalar(context, having.this, names)] if having else []
    scalars = [
        *(output.scalar for output in outputs),
        *(expression for _, expression in order),
        *on,
        *conditions,
    ]

    def hint(call: Scalar) -> str:
        position = same([output.scalar for output in outputs], call)
        return outputs[position].name if position is not None else ""

    if has_groups(context, query, scalars):
        rows, over_groups = group(context, rows, query, names, scalars, hint)
        for condition in conditions:
            rows = Selection(rows, over_groups(condition))
    else:

        def over_groups(item: Scalar) -> Scalar:
            return item

    grouped = [_Output(o.name, over_groups(o.scalar)) for o in outputs]
    grouped_order = [over_groups(expression) for _, expression in order]
    grouped_on = [over_groups(expression) for expression in on]

    def window_hint(call: Scalar) -> str:
        position = same([output.scalar for output in grouped], call)
        return outputs[position].name if position is not None else ""

    everything = [*(o.scalar for o in grouped), *grouped_order, *grouped_on]
    rows, over_windows = windows(context, rows, everything, window_hint)
    rows, over_sets = with_sets(context, rows, [over_windows(o.scalar) for o in grouped])
    final = [_Output(o.name, over_sets(over_windows(o.scalar))) for o in grouped]
    sort_scalars = [over_sets(over_windows(expression)) for expression in grouped_order]
    on_scalars = [over_sets(over_windows(expression)) for expression in grouped_on]

    columns, items = _items(context, rows, final)
    unique = tuple(dict.fromkeys(columns))
    extra: list[Item] = []
    sort_columns = [
        _sorted_by(context, rows, sort_scalar, final, columns, extra)
        for sort_scalar in sort_scalars
    ]
    on_columns = [
        _sorted_by(context, rows, on_scalar, final, columns, extra) for on_scalar in on_scalars
    ]
    rows = _projected(rows, [*items, *extra])
    keys = tuple(
        sort_key(tree, column) for (tree, _), column in zip(order, sort_columns, strict=True)
    )
    distinct = query.args.get("distinct")
    if distinct is not None and on:
        rows = DistinctOn(rows, tuple(dict.fromkeys(on_columns)), keys)
    elif distinct is not None:
        rows = Distinct(rows)
    rows = limited(context, rows, query, keys, scope)
    rows = _projected(rows, [Item.kept(column) for column in unique])
    return Plan(rows, tuple(output.name for output in final), tuple(columns))


def _name(tree: Tree) -> str:
    if isinstance(tree, exp.Alias | exp.Column):
        return tree.alias or tree.name
    return _NAMELESS


def _scalar(context: Context, tree: Tree, names: Scope, named: dict[str, exp.Window]) -> Scalar:
    inner = tree.this if isinstance(tree, exp.Alias) else tree
    return scalar(context, with_named(inner, named), names)


_NAMELESS = "?column?"
"""PostgreSQL's name for a column without a name."""

Ordered = list[tuple[Tree, Scalar]]


def _ordering(
    context: Context,
    query: exp.Select,
    names: Scope,
    named: dict[str, exp.Window],
    outputs: Sequence[_Output],
) -> Ordered:
    """Return the ORDER BY: a plain name or a number refers to an output column, any other item is
    an expression.
    """
    clause = query.args.get("order")
    result: Ordered = []
    for item in clause.expressions if clause is not None else []:
        position = _output_position(item.this, outputs)
        if position is not None:
            result.append((item, outputs[position].scalar))
        else:
            result.append((item, _scalar(context, item.this, names, named)))
    return result


def _output_position(tree: Tree, outputs: Sequence[_Output]) -> int | None:
    if isinstance(tree, exp.Literal) and not tree.is_string:
        return int(tree.name) - 1
    if isinstance(tree, exp.Column) and not tree.table and not isinstance(tree.this, exp.Star):
        positions = [
            position for position, output in enumerate(outputs) if output.name == tree.name
        ]
        return positions[0] if positions else None
    return None


def _distinct_on(
    context: Context, query: exp.Select, names: Scope, outputs: Sequence[_Output]
) -> list[Scalar]:
    distinct = query.args.get("distinct")
    on = distinct.args.get("on") if distinct is not None else None
    if on is None:
        return []
    parts = on.expressions if isinstance(on, exp.Tuple) else [on]
    result = []
    for tree in parts:
        position = _output_position(tree, outputs)
        output = None if position is None else outputs[position].scalar
        result.append(output or scalar(context, tree, names))
    return result


def _items(
    context: Context, rows: Operator, outputs: Sequence[_Output]
) -> tuple[list[Column], list[Item]]:
    """Return the column of each output, and the items that compute the columns; equal outputs share
    a column.
    """
    columns: list[Column] = []
    items: dict[Column, Item] = {}
    for position, output in enumerate(outputs):
        column = output.scalar.as_column
        earlier = same([other.scalar for other in outputs[:position]], output.scalar)
        if column is not None and column in rows.columns:
            items[column] = Item.kept(column)
        elif earlier is not None:
            column = columns[earlier]
        else:
            wanted = "value" if output.name == _NAMELESS else output.name
            column = typed(context.symbols.fresh(wanted), type_of(output.scalar))
            items[column] = Item(column, output.scalar)
        columns.append(column)
    return columns, list(items.values())


def _sorted_by(
    context: Context,
    rows: Operator,
    expression: Scalar,
    outputs: Sequence[_Output],
    columns: Sequence[Column],
    extra: list[Item],
) -> Column:
    """Return the column to sort by: an output column, or an additional one."""
    position = same([output.scalar for output in outputs], expression)
    if position is not None:
        return columns[position]
    position = same([item.scalar for item in extra], expression)
    if position is not None:
        return extra[position].column
    column = expression.as_column
    if column is not None and column in rows.columns:
        extra.append(Item.kept(column))
        return column
    column = typed(context.symbols.fresh("key"), type_of(expression))
    extra.append(Item(column, expression))
    return column


def _projected(rows: Operator, items: Sequence[Item]) -> Operator:
    """Return the projection, or the rows if it would change nothing."""
    kept = [item.column for item in items if item.is_unchanged]
    if len(kept) == len(items) and set(kept) == set(rows.columns):
        return rows
    return Projection(rows, tuple(items))


def limited(
    context: Context, rows: Operator, query: Tree, keys: tuple[SortKey, ...], scope: Scope
) -> Operator:
    """Return rows with ORDER BY, LIMIT and OFFSET over columns."""
    limit, offset = query.args.get("limit"), query.args.get("offset")
    start = None if offset is None else scalar(context, offset.expression, scope)
    if start is not None and str(start) == "0":
        start = None
    count, with_ties = None, False
    if isinstance(limit, exp.Fetch):
        options = limit.args.get("limit_options")
        with_ties = options is not None and bool(options.args.get("with_ties"))
        count = scalar(context, limit.args.get("count") or exp.Literal.number(1), scope)
    elif limit is not None and not isinstance(limit.expression, exp.Var | exp.Null):
        # LIMIT ALL and LIMIT NULL mean no limit.
        count = scalar(context, limit.expression, scope)
    if count is None and start is None:
        return Sort(rows, keys) if keys and not isinstance(rows, DistinctOn) else rows
    if frozenset() in rows.keys:
        # For a single row, LIMIT is a condition.
        conditions = [filled("coalesce(m, 0) = 0", m=start)] if start else []
        conditions += [filled("coalesce(n, 1) > 0", n=count)] if count else []
        return Selection(rows, conjunction(conditions))
    return Limit(rows, keys, count, start, with_ties)
