"""Subqueries in expressions: rewritten as joins if possible, otherwise evaluated for each row.

`(SELECT max(x) FROM s)` has exactly one row, which joins with every row. An aggregate over the rows
with a certain key is a lookup in the groups by that key. The expression of any other subquery
becomes a column, which is recomputed for the rows that a change affects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from sqlglot import exp

from orchestrator.algebra.analysis.same_expression import alike
from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.copies import copied
from orchestrator.algebra.dialect import Tree, reference
from orchestrator.algebra.lowering.correlation import (
    alternatives,
    risen,
    separated,
    watched,
)
from orchestrator.algebra.lowering.decorrelate import (
    Lookup,
    grouped_lookup,
    peeled,
    single_lookup,
)
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.dependent_join import DependentJoin
from orchestrator.algebra.operators.evaluation import Evaluation, Expansion, replaced
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.joining import Binary
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.project import Item, Projection, over
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.values import Values
from orchestrator.algebra.passes.complete_orders import looks_determined
from orchestrator.algebra.scalar import TRUE, Scalar, Subquery, conjunction, unwrapped
from orchestrator.algebra.traversal import walk

Lower = Callable[[Operator], Operator]
"""A function that lowers a plan without outer columns."""


@dataclass(frozen=True)
class Subqueries:
    """Rewrites lateral joins, and operators whose expressions contain subqueries."""

    symbols: Symbols
    lower: Lower

    def without(self, operator: Operator) -> Operator:
        """Return the operator without subqueries in its expressions, if a rewrite is known."""
        if isinstance(operator, DependentJoin):
            return self._lateral(operator)
        if not any(scalar.subqueries for scalar in operator.scalars):
            return operator
        if isinstance(operator, Selection):
            return self._selection(operator)
        if isinstance(operator, Projection):
            return self._projection(operator)
        if isinstance(operator, Grouping):
            return self._grouping(operator)
        if isinstance(operator, Join):
            bare = replace(operator, condition=TRUE)
            return self._selection(Selection(bare, operator.condition))
        if isinstance(operator, Binary):
            return self._binary(operator)
        return operator

    def _selection(self, operator: Selection) -> Operator:
        rows, conditions = operator.input, []
        for conjunct in operator.condition.conjuncts:
            rows, condition = self._with_value(rows, conjunct, is_condition=True)
            conditions.append(condition)
        return over(Selection(rows, conjunction(conditions)), operator.columns)

    def _projection(self, operator: Projection) -> Operator:
        rows, items = operator.input, []
        for item in operator.items:
            rows, value = self._with_value(rows, item.scalar)
            items.append(replace(item, scalar=value))
        return Projection(rows, tuple(items))

    def _grouping(self, operator: Grouping) -> Operator:
        """Compute arguments and filters below the grouping."""
        rows, calls = operator.input, []
        for aggregate in operator.aggregates:
            rows, call = self._lifted_call(rows, aggregate.call)
            calls.append(Aggregate(aggregate.column, call))
        return replace(operator, input=rows, aggregates=tuple(calls))

    def _lifted_call(self, rows: Operator, call: Scalar) -> tuple[Operator, Scalar]:
        """Return an aggregate call whose arguments have no subqueries, and the rows that it reads."""
        columns = set(call.columns)
        tree = call.tree
        # DISTINCT and ORDER BY of a call must name the same argument.
        computed: list[tuple[Scalar, Column]] = []
        for hole in list(tree.find_all(exp.Parameter)):
            top: Tree = hole
            while top.parent is not None and not isinstance(top.parent, _CALLS):
                top = top.parent
            if top.root() is not tree:
                continue
            part = call.part(top)
            column = next((column for earlier, column in computed if alike(earlier, part)), None)
            if column is None:
                rows, value = self._with_value(rows, part)
                column = value.as_column
                if column is None:
                    column = Column(self.symbols.fresh("argument"))
                    rows = Projection(rows, (*map(Item.kept, rows.columns), Item(column, value)))
                computed.append((part, column))
            columns.add(column)
            top.replace(reference(column.symbol))
        return rows, Scalar.of(tree, columns, call.subqueries)

    def _binary(self, operator: Binary) -> Operator:
        """Compute conditions of outer joins and semijoins that read one side on that side."""
        left, right = operator.left, operator.right
        conditions = []
        for conjunct in operator.condition.conjuncts:
            if not conjunct.subqueries:
                conditions.append(conjunct)
            elif conjunct.references <= set(right.columns):
                right = self._selection(Selection(right, conjunct))
            elif conjunct.references <= set(left.columns):
                left, value = self._with_value(left, conjunct)
                conditions.append(value)
            else:
                return operator
        join = replace(operator, left=left, right=right, condition=conjunction(conditions))
        return over(join, operator.columns)

    def _with_value(
        self, rows: Operator, scalar: Scalar, is_condition: bool = False
    ) -> tuple[Operator, Scalar]:
        """Extend rows so that an expression can be computed from them without its subqueries.

        With `is_condition`, the expression is a condition, so rows for which it is NULL do not matter.
        """
        values: dict[int, Scalar] = {}
        for position, subquery in enumerate(scalar.subqueries, 1):
            if _is_value(scalar, position):
                joined = self._joined(rows, subquery, scalar if is_condition else None, position)
                if joined is not None:
                    rows, values[position] = joined
        scalar = _with_values(scalar, values)
        if not scalar.subqueries:
            return rows, scalar
        column = Column(self.symbols.fresh("value"))
        plan = Projection(Values(((),), ()), (Item(column, scalar),))
        return self._evaluated(rows, plan), Scalar.column(column)

    def _joined(
        self, rows: Operator, subquery: Subquery, condition: Scalar | None, position: int
    ) -> tuple[Operator, Scalar] | None:
        """Return rows joined with the lookup of a scalar subquery, and its value in terms of the
        result.
        """
        outer = frozenset(rows.columns)
        [output] = subquery.columns
        core, values = peeled(subquery.plan)
        if not core.outer_columns & outer:
            if not core.is_never_empty:
                return None
            plan, new_columns = copied(core, self.symbols)
            terms = {old: Scalar.column(new) for old, new in new_columns.items()}
            return Join(rows, self.lower(plan)), values[output].substitute(terms)
        lookup = self._lookup(subquery.plan, outer)
        if lookup is None or not lookup.padded:
            return None
        value = lookup.values[output]
        kind: type[Binary] = LeftJoin
        if condition is not None:
            with_value = _with_values(condition, {position: value})
            if _refuses_null(with_value, frozenset(lookup.plan.columns)):
                kind = Join
        return kind(rows, self.lower(lookup.plan), lookup.condition), value

    def _lookup(self, plan: Operator, outer: frozenset[Column]) -> Lookup | None:
        return grouped_lookup(plan, outer, self.symbols) or single_lookup(plan, outer, self.symbols)

    def _lateral(self, join: DependentJoin) -> Operator:
        rows, plan = join.left, join.right
        outer = frozenset(rows.columns)
        if join.condition != TRUE:
            plan = Selection(plan, join.condition)
        joined: Binary
        parts = separated(risen(plan, outer), outer)
        if parts is not None:
            part, condition = parts
            joined = (LeftJoin if join.outer else Join)(rows, self.lower(part), condition)
            return over(joined, join.columns)
        lookup = grouped_lookup(plan, outer, self.symbols)
        only_columns = lookup is not None and all(v.as_column for v in lookup.values.values())
        if lookup is not None and (lookup.padded or not join.outer or only_columns):
            kind = LeftJoin if lookup.padded or join.outer else Join
            joined = kind(rows, self.lower(lookup.plan), lookup.condition)
            items = [Item(column, value) for column, value in lookup.values.items()]
            return Projection(joined, (*map(Item.kept, rows.columns), *items))
        return self._evaluated(rows, plan, join.outer)

    def _evaluated(self, rows: Operator, plan: Operator, outer: bool = False) -> Operator:
        """Return each row joined with the rows that a plan returns for it."""
        row_columns = frozenset(rows.columns)
        plan = _all_risen(plan, row_columns)
        parts = watched(plan, row_columns)
        lowered = [replace(part, plan=self.lower(part.plan)) for part in parts]
        pairs = [(part.plan, new.plan) for part, new in zip(parts, lowered, strict=True)]
        watched_parts = tuple(alternatives(part, rows.not_null) for part in lowered)
        if not watched_parts:
            return Expansion(rows, replaced(plan, pairs), watched_parts, outer)
        left_open = next(
            (operator.label for operator in walk(plan) if not looks_determined(operator)), None
        )
        return Evaluation(rows, replaced(plan, pairs), watched_parts, outer, left_open)


_CALLS = (exp.Anonymous, exp.Where, exp.Distinct, exp.Ordered, exp.Dot, exp.Operator)
"""The parents of an argument of an aggregate, or of an expression that it computes."""


def _all_risen(plan: Operator, outer: frozenset[Column]) -> Operator:
    """Return a plan with conditions on outer columns above its joins, also in its subqueries."""
    if not plan.outer_columns & outer:
        return plan
    plan = risen(plan, outer)

    def visit(operator: Operator) -> Operator:
        if not operator.outer_columns & outer:
            return operator
        own = frozenset(column for child in operator.children for column in child.columns)

        def in_scalar(scalar: Scalar) -> Scalar:
            subqueries = tuple(
                Subquery(_all_risen(subquery.plan, outer | own), subquery.columns)
                for subquery in scalar.subqueries
            )
            return Scalar.of(scalar.tree, scalar.columns, subqueries)

        rebuilt = operator.with_children(tuple(map(visit, operator.children)))
        return rebuilt.map_scalars(in_scalar)

    return visit(plan)


def _hole(tree: Tree, position: int) -> Tree:
    return next(h for h in tree.find_all(exp.Parameter) if int(h.name) == position)


def _is_value(scalar: Scalar, position: int) -> bool:
    """Return whether a subquery stands for a value, and not for rows or in EXISTS."""
    wrapped = _hole(scalar.tree, position).parent
    if not isinstance(wrapped, exp.Subquery) or len(scalar.subqueries[position - 1].columns) != 1:
        return False
    above = wrapped.parent
    while isinstance(above, exp.Subquery):
        wrapped, above = above, above.parent
    if isinstance(above, exp.In):
        return above.args.get("query") is not wrapped
    return not isinstance(above, exp.Any | exp.All | exp.Exists)


def _with_values(scalar: Scalar, values: dict[int, Scalar]) -> Scalar:
    """Return an expression with some subqueries replaced by expressions."""
    if not values:
        return scalar
    tree = scalar.tree
    replacements = {Column(f"\0{position}"): value for position, value in values.items()}
    for position in values:
        hole = _hole(tree, position)
        wrapped = hole.parent
        assert wrapped is not None
        node = exp.Paren(this=reference(f"\0{position}"))
        if wrapped is tree:
            tree = node
        else:
            wrapped.replace(node)
    return Scalar.of(tree, scalar.columns | replacements.keys(), scalar.subqueries).substitute(
        replacements
    )


def _refuses_null(condition: Scalar, columns: frozenset[Column]) -> bool:
    """Return whether a condition is never true if some columns are NULL."""
    tree = unwrapped(condition.tree)
    if not isinstance(tree, _COMPARISONS):
        return False
    symbols = {column.symbol for column in columns}
    return any(
        node.name in symbols
        for side in (tree.this, tree.expression)
        for node in _strict_columns(side)
    )


_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)


def _strict_columns(tree: Tree) -> Iterable[exp.Column]:
    """Yield columns whose NULL makes an expression NULL."""
    tree = unwrapped(tree)
    if isinstance(tree, exp.Column):
        yield tree
    elif isinstance(tree, exp.Neg):
        yield from _strict_columns(tree.this)
    elif isinstance(tree, exp.Add | exp.Sub | exp.Mul | exp.Div):
        yield from _strict_columns(tree.this)
        yield from _strict_columns(tree.expression)
