"""Subqueries in expressions: as joins where that is the same, else evaluated for each row.

`(SELECT max(x) FROM s)` has exactly one row, with which every row joins. An aggregate over the rows
with a certain key is a look into the groups by that key. Whatever else a subquery is, its
expression becomes a column that is recomputed for the rows to which a change matters.
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
from orchestrator.algebra.passes.complete_orders import is_settled
from orchestrator.algebra.scalar import TRUE, Scalar, Subquery, conjunction, unwrapped
from orchestrator.algebra.traversal import walk

Lower = Callable[[Operator], Operator]
"""Lowers a plan that reads no column from outside."""


@dataclass(frozen=True)
class Subqueries:
    """Rewrites operators whose expressions hold subqueries, and lateral joins."""

    symbols: Symbols
    lower: Lower

    def without(self, operator: Operator) -> Operator:
        """The operator with expressions free of subqueries, as far as this is known to be done."""
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
            rows, condition = self._valued(rows, conjunct, refused=True)
            conditions.append(condition)
        return over(Selection(rows, conjunction(conditions)), operator.columns)

    def _projection(self, operator: Projection) -> Operator:
        rows, items = operator.input, []
        for item in operator.items:
            rows, value = self._valued(rows, item.scalar)
            items.append(replace(item, scalar=value))
        return Projection(rows, tuple(items))

    def _grouping(self, operator: Grouping) -> Operator:
        """Arguments and filters are computed below the grouping."""
        rows, calls = operator.input, []
        for aggregate in operator.aggregates:
            rows, call = self._lifted(rows, aggregate.call)
            calls.append(Aggregate(aggregate.column, call))
        return replace(operator, input=rows, aggregates=tuple(calls))

    def _lifted(self, rows: Operator, call: Scalar) -> tuple[Operator, Scalar]:
        """An aggregate call whose arguments have no subqueries."""
        columns = set(call.columns)
        tree = call.tree
        # DISTINCT and ORDER BY in a call must name the same argument.
        computed: list[tuple[Scalar, Column]] = []
        for hole in list(tree.find_all(exp.Parameter)):
            top: Tree = hole
            while top.parent is not None and not isinstance(top.parent, _CALLS):
                top = top.parent
            if top.root() is not tree:
                continue
            part = call.part(top)
            column = next((column for known, column in computed if alike(known, part)), None)
            if column is None:
                rows, value = self._valued(rows, part)
                column = value.as_column
                if column is None:
                    column = Column(self.symbols.fresh("argument"))
                    rows = Projection(rows, (*map(Item.kept, rows.columns), Item(column, value)))
                computed.append((part, column))
            columns.add(column)
            top.replace(reference(column.symbol))
        return rows, Scalar.of(tree, columns, call.subqueries)

    def _binary(self, operator: Binary) -> Operator:
        """Conditions of outer and semijoins on one side are computed there."""
        left, right = operator.left, operator.right
        conditions = []
        for conjunct in operator.condition.conjuncts:
            if not conjunct.subqueries:
                conditions.append(conjunct)
            elif conjunct.references <= set(right.columns):
                right = self._selection(Selection(right, conjunct))
            elif conjunct.references <= set(left.columns):
                left, value = self._valued(left, conjunct)
                conditions.append(value)
            else:
                return operator
        made = replace(operator, left=left, right=right, condition=conjunction(conditions))
        return over(made, operator.columns)

    def _valued(
        self, rows: Operator, scalar: Scalar, refused: bool = False
    ) -> tuple[Operator, Scalar]:
        """The rows with what is needed to compute an expression without its subqueries.

        `refused` says that it is a condition, so that rows for which it is NULL do not matter.
        """
        values: dict[int, Scalar] = {}
        for position, subquery in enumerate(scalar.subqueries, 1):
            if _is_value(scalar, position):
                joined = self._joined(rows, subquery, scalar if refused else None, position)
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
        """The rows joined with what a scalar subquery looks up, and the value in terms of it."""
        outer = frozenset(rows.columns)
        [shown] = subquery.columns
        core, values = peeled(subquery.plan)
        if not core.outer_columns & outer:
            if not (isinstance(core, Grouping) and not core.by):
                return None
            plan, became = copied(core, self.symbols)
            terms = {old: Scalar.column(new) for old, new in became.items()}
            return Join(rows, self.lower(plan)), values[shown].substitute(terms)
        lookup = self._lookup(subquery.plan, outer)
        if lookup is None or not lookup.padded:
            return None
        value = lookup.values[shown]
        kind: type[Binary] = LeftJoin
        if condition is not None:
            tried = _with_values(condition, {position: value})
            if _refuses_null(tried, frozenset(lookup.plan.columns)):
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
        simple = separated(risen(plan, outer), outer)
        if simple is not None:
            part, condition = simple
            joined = (LeftJoin if join.outer else Join)(rows, self.lower(part), condition)
            return over(joined, join.columns)
        found = grouped_lookup(plan, outer, self.symbols)
        bare = found is not None and all(v.as_column for v in found.values.values())
        if found is not None and (found.padded or not join.outer or bare):
            kind = LeftJoin if found.padded or join.outer else Join
            joined = kind(rows, self.lower(found.plan), found.condition)
            items = [Item(column, value) for column, value in found.values.items()]
            return Projection(joined, (*map(Item.kept, rows.columns), *items))
        return self._evaluated(rows, plan, join.outer)

    def _evaluated(self, rows: Operator, plan: Operator, outer: bool = False) -> Operator:
        """Each row with what a plan gives for it."""
        read = frozenset(rows.columns)
        plan = _all_risen(plan, read)
        parts = watched(plan, read)
        lowered = [replace(part, plan=self.lower(part.plan)) for part in parts]
        pairs = [(part.plan, new.plan) for part, new in zip(parts, lowered, strict=True)]
        made = tuple(alternatives(part, rows.not_null) for part in lowered)
        if not made:
            return Expansion(rows, replaced(plan, pairs), made, outer)
        left_open = next(
            (operator.label for operator in walk(plan) if not is_settled(operator)), None
        )
        return Evaluation(rows, replaced(plan, pairs), made, outer, left_open)


_CALLS = (exp.Anonymous, exp.Where, exp.Distinct, exp.Ordered, exp.Dot, exp.Operator)
"""Between these and an argument of an aggregate, or of what it computes, there is nothing else."""


def _all_risen(plan: Operator, outer: frozenset[Column]) -> Operator:
    """A plan with conditions on outer columns above its joins, also in its subqueries."""
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

        made = operator.with_children(tuple(map(visit, operator.children)))
        return made.map_scalars(in_scalar)

    return visit(plan)


def _hole(tree: Tree, position: int) -> Tree:
    return next(h for h in tree.find_all(exp.Parameter) if int(h.name) == position)


def _is_value(scalar: Scalar, position: int) -> bool:
    """Whether a subquery stands where a value is expected, and not rows or the question for any."""
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
    """An expression with some subqueries replaced by expressions."""
    if not values:
        return scalar
    tree = scalar.tree
    places = {Column(f"\0{position}"): value for position, value in values.items()}
    for position in values:
        hole = _hole(tree, position)
        wrapped = hole.parent
        assert wrapped is not None
        node = exp.Paren(this=reference(f"\0{position}"))
        if wrapped is tree:
            tree = node
        else:
            wrapped.replace(node)
    return Scalar.of(tree, scalar.columns | places.keys(), scalar.subqueries).substitute(places)


def _refuses_null(condition: Scalar, columns: frozenset[Column]) -> bool:
    """Whether a condition is not true where some columns are NULL."""
    tree = unwrapped(condition.tree)
    if not isinstance(tree, _COMPARISONS):
        return False
    symbols = {column.symbol for column in columns}
    return any(
        node.name in symbols for side in (tree.this, tree.expression) for node in _strict(side)
    )


_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)


def _strict(tree: Tree) -> Iterable[exp.Column]:
    """The columns whose NULL makes an expression NULL."""
    tree = unwrapped(tree)
    if isinstance(tree, exp.Column):
        yield tree
    elif isinstance(tree, exp.Neg):
        yield from _strict(tree.this)
    elif isinstance(tree, exp.Add | exp.Sub | exp.Mul | exp.Div):
        yield from _strict(tree.this)
        yield from _strict(tree.expression)
