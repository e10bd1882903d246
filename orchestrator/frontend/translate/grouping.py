"""GROUP BY, HAVING and aggregates, including grouping sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product

from sqlglot import exp

from orchestrator.algebra import (
    Aggregate,
    Column,
    Grouping,
    GroupingSets,
    Item,
    Operator,
    Projection,
    Scalar,
    Window,
)
from orchestrator.algebra.analysis.same_expression import alike
from orchestrator.algebra.canonical import SQL_JSON_AGGREGATES
from orchestrator.algebra.dialect import Tree, reference
from orchestrator.algebra.scalar import unwrapped
from orchestrator.algebra.traversal import walk
from orchestrator.frontend.translate.context import Context, Scope, called, not_modelled, same
from orchestrator.frontend.translate.expressions import scalar
from orchestrator.frontend.translate.set_returning import with_sets
from orchestrator.frontend.translate.types import COUNTING, type_of, typed

Rewriter = Callable[[Scalar], Scalar]


def has_groups(context: Context, query: exp.Select, scalars: Sequence[Scalar]) -> bool:
    """Return whether a query groups its rows."""
    if query.args.get("group") or query.args.get("having"):
        return True
    return any(True for item in scalars for _ in aggregate_calls(context, item))


def group(
    context: Context,
    rows: Operator,
    query: exp.Select,
    scope: Scope,
    scalars: Sequence[Scalar],
    hints: Callable[[Scalar], str],
) -> tuple[Operator, Rewriter]:
    """Return the groups of a query, and a function that rewrites expressions to read the groups.

    `scalars` are all expressions that are evaluated over the groups. `hints` returns a proposed
    name for the column of an aggregate or a grouping expression.
    """
    clause = query.args.get("group")
    if clause is not None and set(_used(clause)) - {"expressions"}:
        raise not_modelled("this form of GROUP BY", clause)
    items = clause.expressions if clause is not None else []
    sets = _Sets(context, scope)
    alternatives = [sets.read(item) for item in items]
    calls = _calls(context, rows, scalars)
    # Set-returning functions in GROUP BY are expanded before grouping, all others after it.
    rows, over_sets = with_sets(context, rows, sets.keys)
    columns, rows = _columns_for(context, rows, sets.keys, over_sets, hints)
    grouped = list(zip(sets.keys, columns, strict=True))
    aggregates = [
        # GROUPING() reads the grouping columns; other aggregates read rows.
        _aggregate(context, _replaced(c, grouped) if _is_grouping(c.tree) else c, hints(c))
        for c in calls
    ]
    results = [(call, aggregate.column) for call, aggregate in zip(calls, aggregates, strict=True)]

    def over_groups(entry: Scalar) -> Scalar:
        return _replaced(_replaced(entry, results), grouped)

    if not sets.several:
        by = tuple(dict.fromkeys(columns))
        remaining = {c for item in scalars for c in over_groups(item).references} & set(
            rows.columns
        )
        # A column that a grouping key determines may be used directly, because it splits no group.
        remaining -= set(by)
        if not rows.dependencies.imply(by, remaining):
            for subquery in (subquery for item in scalars for subquery in item.subqueries):
                require_own_aggregates(context, subquery.plan)
            raise not_modelled("a column that the groups are not known to determine", query)
        by += tuple(column for column in rows.columns if column in remaining)
        return Grouping(rows, by, tuple(aggregates)), over_groups
    _require_plain(sets, scalars[: len(query.expressions)])
    outs = {column: context.column(column.symbol, like=column) for column in columns}
    by_pairs = tuple((out, column) for column, out in outs.items())
    positions = {column: position for position, column in enumerate(outs)}
    combined = [
        tuple(dict.fromkeys(positions[columns[key]] for part in choice for key in part))
        for choice in product(*alternatives)
    ]
    if clause is not None and clause.args.get("all") is False:
        # GROUP BY DISTINCT.
        combined = list({frozenset(set_): set_ for set_ in reversed(combined)}.values())[::-1]
    if len(combined) > _MOST_SETS:
        raise not_modelled("so many grouping sets", query)
    renamed = {column: Scalar.column(out) for column, out in outs.items()}
    grouping_sets = GroupingSets(rows, by_pairs, tuple(combined), tuple(aggregates))
    return grouping_sets, lambda item: over_groups(item).substitute(renamed)


def _require_plain(sets: _Sets, scalars: Sequence[Scalar]) -> None:
    """Reject grouping sets for which PostgreSQL's text does not show which columns are NULL where.

    PostgreSQL distinguishes grouped items of SELECT by their numbers, even if both are printed in
    the same way.
    """
    for key, times in zip(sets.keys, sets.times, strict=True):
        if not key.references:
            raise not_modelled("a constant among grouping sets", str(key))
        if times > 1 and sum(alike(item, key) for item in scalars) > 1:
            raise not_modelled("grouping sets over a column that is shown twice", str(key))


_MOST_SETS = 64


def _used(clause: Tree) -> Iterator[str]:
    return (name for name, value in clause.args.items() if value)


class _Sets:
    """The grouping expressions of a GROUP BY, each once, and the sets of its items."""

    def __init__(self, context: Context, scope: Scope) -> None:
        self.context, self.scope = context, scope
        self.keys: list[Scalar] = []
        self.times: list[int] = []
        """How often each expression is written."""
        self.several = False

    def read(self, item: Tree) -> list[tuple[int, ...]]:
        """Return the alternative sets of an item of GROUP BY."""
        if isinstance(item, exp.GroupingSets):
            self.several = True
            return [set_ for part in item.expressions for set_ in self.read(part)]
        if isinstance(item, exp.Rollup):
            self.several = True
            parts = [self.members(part) for part in item.expressions]
            sizes = range(len(parts), -1, -1)
            return [tuple(k for part in parts[:size] for k in part) for size in sizes]
        if isinstance(item, exp.Cube):
            self.several = True
            parts = [self.members(part) for part in item.expressions]
            if len(parts) > 6:
                raise not_modelled("so many grouping sets", item)
            choices = product(*([part, ()] for part in parts))
            return [tuple(k for part in choice for k in part) for choice in choices]
        return [self.members(item)]

    def members(self, item: Tree) -> tuple[int, ...]:
        """Return the keys of a set, written in parentheses or as a single expression."""
        bare = unwrapped(item)
        parts = bare.expressions if isinstance(bare, exp.Tuple) else [bare]
        return tuple(self.key(part) for part in parts)

    def key(self, item: Tree) -> int:
        expression = scalar(self.context, item, self.scope)
        position = same(self.keys, expression)
        if position is None:
            position = len(self.keys)
            self.keys.append(expression)
            self.times.append(0)
        self.times[position] += 1
        return position


def _columns_for(
    context: Context,
    rows: Operator,
    keys: Sequence[Scalar],
    over_sets: Rewriter,
    hints: Callable[[Scalar], str],
) -> tuple[list[Column], Operator]:
    """Return a column for each grouping expression, and the rows with those that must be computed."""
    columns: list[Column] = []
    computed: list[Item] = []
    for key in keys:
        expression = over_sets(key)
        column = expression.as_column
        if column is None or column not in rows.columns:
            column = typed(context.symbols.fresh(hints(key) or "key"), type_of(key))
            computed.append(Item(column, expression))
        columns.append(column)
    if computed:
        rows = Projection(rows, (*(Item.kept(column) for column in rows.columns), *computed))
    return columns, rows


def aggregate_calls(context: Context, item: Scalar) -> Iterator[Tree]:
    """Yield the calls of aggregate functions in an expression, with FILTER and WITHIN GROUP."""
    pending = [item.tree]
    while pending:
        tree = pending.pop()
        if is_aggregate(context, tree):
            yield tree
            continue
        if isinstance(tree, exp.Window):
            # An aggregate with OVER is a window function, but its arguments and window may contain
            # aggregates.
            inner = tree.this
            while isinstance(inner, exp.Filter | exp.Dot):
                inner = inner.expression if isinstance(inner, exp.Dot) else inner.this
            rest = [value for name, value in tree.args.items() if name != "this"]
            pending += _trees([inner.args.get("expressions"), rest])
            continue
        pending += reversed(_trees(list(tree.args.values())))


def require_own_aggregates(context: Context, plan: Operator) -> None:
    """Reject aggregates that belong to a surrounding query."""
    for operator in walk(plan):
        if not isinstance(operator, Grouping | GroupingSets | Window):
            for item in operator.scalars:
                for tree in aggregate_calls(context, item):
                    raise not_modelled("an aggregate of a query further out", tree)


def is_aggregate(context: Context, tree: Tree) -> bool:
    """Return whether a tree is a call of an aggregate function (without OVER)."""
    core = tree
    while isinstance(core, exp.Filter | exp.WithinGroup):
        core = core.this
    name = called(core)
    if name is None:
        return False
    if _is_grouping(core) or name in _AGGREGATES:
        return True
    if name not in context.facts.aggregates:
        return False
    if name in context.facts.plain_functions:
        raise not_modelled("a name that is both an aggregate and a plain function", tree)
    return True


_AGGREGATES = frozenset(("pg_catalog", name.lower()) for name in SQL_JSON_AGGREGATES)


def _is_grouping(tree: Tree) -> bool:
    return called(tree) == ("pg_catalog", "grouping")


def _trees(value: object) -> list[Tree]:
    if isinstance(value, exp.Expr):
        return [value]
    if isinstance(value, list):
        return [tree for part in value for tree in _trees(part)]
    return []


def _calls(context: Context, rows: Operator, scalars: Sequence[Scalar]) -> list[Scalar]:
    """Return the distinct aggregate calls of a query."""
    result: list[Scalar] = []
    own = set(rows.columns)
    for item in scalars:
        for tree in aggregate_calls(context, item):
            call = item.part(tree)
            if call.references and not call.references & own:
                raise not_modelled("an aggregate of a query further out", tree)
            if same(result, call) is None:
                result.append(call)
    return result


def _aggregate(context: Context, call: Scalar, hint: str) -> Aggregate:
    aggregate = Aggregate(Column(""), call)
    direct = call.tree.find(exp.WithinGroup)
    if direct is not None and direct.this.find(exp.Parameter):
        # The argument has a single value for the group, but would be computed for each row.
        raise not_modelled("a subquery in a direct argument", call.tree)
    kind = "bigint" if aggregate.function in COUNTING else None
    return replace(aggregate, column=typed(context.symbols.fresh(hint or aggregate.function), kind))


def _replaced(item: Scalar, results: Sequence[tuple[Scalar, Column]]) -> Scalar:
    """Return an expression in which some parts are replaced by columns."""
    if not results:
        return item
    wanted = [part for part, _ in results]
    texts = {str(part) for part in wanted}
    used: list[Column] = []

    def change(node: Tree) -> Tree:
        if isinstance(node, _NO_EXPRESSIONS) or _has_window(node):
            return node
        # Different expressions with subqueries may have equal texts. The text alone can only show
        # that an expression is none of them.
        part = item.part(node)
        position = same(wanted, part) if str(part) in texts else None
        if position is None:
            return node
        used.append(results[position][1])
        return reference(results[position][1].symbol)

    tree = item.tree.transform(change, copy=False)
    return Scalar.of(tree, item.columns | set(used), item.subqueries)


_NO_EXPRESSIONS = (exp.Paren, exp.Ordered, exp.Identifier, exp.DataType)
"""Trees that may have the same text as the expression within them."""


def _has_window(node: Tree) -> bool:
    """Return whether a tree is a call that has OVER."""
    above = node.parent
    while isinstance(above, exp.Filter | exp.Dot):
        node, above = above, above.parent
    return isinstance(above, exp.Window) and above.this is node
