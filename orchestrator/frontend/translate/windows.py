"""Window functions: calls with OVER become columns of ω, with an operator for each window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from orchestrator.algebra import (
    Aggregate,
    Column,
    Item,
    Operator,
    Projection,
    Scalar,
    SortKey,
    Window,
)
from orchestrator.algebra.dialect import Tree, reference
from orchestrator.frontend.translate.context import Context, not_modelled, same
from orchestrator.frontend.translate.types import COUNTING, type_of, typed


def named_windows(query: exp.Select) -> dict[str, exp.Window]:
    """Return the windows of a WINDOW clause."""
    return {window.this.name: window for window in query.args.get("windows") or []}


def with_named(tree: Tree, named: dict[str, exp.Window]) -> Tree:
    """Return an expression whose windows no longer refer to a WINDOW clause."""

    def spelled_out(node: Tree) -> Tree:
        if not isinstance(node, exp.Window) or not node.args.get("alias"):
            return node
        base = named.get(node.args["alias"].name)
        if base is None:
            raise not_modelled("a window that is not defined", node)
        whole = with_named(base.copy(), named) if base.args.get("alias") else base
        result = node.copy()
        result.set("alias", None)
        for part in ("partition_by", "order", "spec"):
            inherited = whole.args.get(part)
            if inherited and not result.args.get(part):
                copied = (
                    [item.copy() for item in inherited] if part == "partition_by" else inherited
                )
                result.set(part, copied if isinstance(copied, list) else copied.copy())
        return result

    return tree.copy().transform(spelled_out) if named else tree


def windows(
    context: Context,
    rows: Operator,
    scalars: Sequence[Scalar],
    hints: Callable[[Scalar], str],
) -> tuple[Operator, Callable[[Scalar], Scalar]]:
    """Return the rows with all window functions, and a function that rewrites expressions to read
    them.
    """
    calls: list[Scalar] = []
    for item in scalars:
        for tree in _calls(item.tree):
            call = item.part(tree)
            if same(calls, call) is None:
                calls.append(call)
    results: list[Column] = []
    for call in calls:
        rows, column = _window(context, rows, call, hints(call))
        results.append(column)

    def over(scalar: Scalar) -> Scalar:
        def change(node: Tree) -> Tree:
            if not isinstance(node, exp.Window):
                return node
            position = same(calls, scalar.part(node))
            assert position is not None
            return reference(results[position].symbol)

        if not calls:
            return scalar
        return Scalar.of(
            scalar.tree.transform(change, copy=False),
            scalar.columns | set(results),
            scalar.subqueries,
        )

    return rows, over


def _calls(tree: Tree) -> Iterator[Tree]:
    return (node for node in tree.find_all(exp.Window))


def _window(context: Context, rows: Operator, whole: Scalar, hint: str) -> tuple[Operator, Column]:
    tree = whole.tree
    if tree.args.get("first") is not None or tree.args.get("alias"):
        raise not_modelled("this form of OVER", tree)
    rows, partition = _computed(context, rows, [whole.part(t) for t in _list(tree, "partition_by")])
    order = tree.args.get("order")
    ordered = order.expressions if order is not None else []
    rows, columns = _computed(context, rows, [whole.part(item.this) for item in ordered])
    keys = tuple(sort_key(item, column) for item, column in zip(ordered, columns, strict=True))
    frame = None
    if tree.args.get("spec") is not None:
        frame = whole.part(tree.args["spec"])
        if frame.references or frame.subqueries:
            raise not_modelled("a window frame that is not constant", tree)
    aggregate = Aggregate(Column(""), whole.part(tree.this))
    kind = "bigint" if aggregate.function in COUNTING else None
    column = typed(context.symbols.fresh(hint or aggregate.function), kind)
    function = replace(aggregate, column=column)
    if (
        isinstance(rows, Window)
        and (rows.partition, rows.order, rows.frame) == (tuple(partition), keys, frame)
        and not function.call.references & {f.column for f in rows.functions}
    ):
        return replace(rows, functions=(*rows.functions, function)), column
    return Window(rows, (function,), tuple(partition), keys, frame), column


def _list(tree: Tree, name: str) -> list[Tree]:
    return tree.args.get(name) or []


def _computed(
    context: Context, rows: Operator, scalars: Sequence[Scalar]
) -> tuple[Operator, list[Column]]:
    """Return the rows with a column for each expression."""
    items, columns = [], []
    for scalar in scalars:
        column = scalar.as_column
        if column is None or column not in rows.columns:
            column = typed(context.symbols.fresh("key"), type_of(scalar))
            items.append(Item(column, scalar))
        columns.append(column)
    if items:
        rows = Projection(rows, (*(Item.kept(column) for column in rows.columns), *items))
    return rows, columns


def sort_key(item: Tree, column: Column) -> SortKey:
    """Return an item of ORDER BY as a sort key on a column."""
    if not isinstance(item, exp.Ordered) or item.args.get("with_fill"):
        raise not_modelled("this form of ORDER BY", item)
    return SortKey(column, bool(item.args.get("desc")), bool(item.args.get("nulls_first")))
