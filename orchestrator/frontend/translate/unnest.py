"""WHERE: conditions on the rows, and subqueries that only ask whether a partner exists.

`EXISTS (SELECT ... FROM s WHERE s.a = r.a)` becomes r ⋉ s, NOT EXISTS becomes r ▷ s, and `r.a IN
(SELECT s.a ...)` becomes a semijoin on r.a = s.a. NOT IN becomes an antisemijoin only if neither
side can be NULL. Any other subquery stays in its expression.
"""

from __future__ import annotations

from sqlglot import exp

from orchestrator.algebra import (
    TRUE,
    Antisemijoin,
    Column,
    Distinct,
    DistinctOn,
    Item,
    Limit,
    Operator,
    Projection,
    Scalar,
    Selection,
    Semijoin,
    Sort,
    Subquery,
    conjunction,
)
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.scalar import unwrapped


def where(rows: Operator, condition: Scalar) -> Operator:
    """Return the rows that satisfy a condition."""
    plain: list[Scalar] = []
    partners: list[Scalar] = []
    for conjunct in condition.conjuncts:
        (partners if conjunct.subqueries else plain).append(conjunct)
    if plain:
        rows = Selection(rows, conjunction(plain))
    for conjunct in partners:
        rows = _partner(rows, conjunct) or Selection(rows, conjunct)
    return rows


def _partner(rows: Operator, conjunct: Scalar) -> Operator | None:
    tree = unwrapped(conjunct.tree)
    negated = isinstance(tree, exp.Not)
    if negated:
        tree = unwrapped(tree.this)
    if isinstance(tree, exp.Exists) and isinstance(tree.this, exp.Parameter):
        [subquery] = conjunct.subqueries
        inner, matching = _decorrelated(subquery.plan, set(rows.columns))
    elif isinstance(tree, exp.In) and len(conjunct.subqueries) == 1:
        operands = _operands(conjunct, tree)
        if operands is None:
            return None
        [subquery] = conjunct.subqueries
        if negated and not _has_no_nulls(rows, subquery, operands):
            return None
        inner, matching = _decorrelated(_without_order(subquery.plan), set(rows.columns))
        equal = [
            _equal(operand, column)
            for operand, column in zip(operands, subquery.columns, strict=True)
        ]
        matching = conjunction([*equal, matching])
    else:
        return None
    if inner.outer_columns & set(rows.columns):
        return None
    kind = Antisemijoin if negated else Semijoin
    return kind(rows, inner, matching)


def _operands(conjunct: Scalar, tree: exp.In) -> list[Scalar] | None:
    """Return the values on the left side of IN."""
    if tree.args.get("query") is None:
        return None
    left = unwrapped(tree.this)
    parts = left.expressions if isinstance(left, exp.Tuple) or _is_row(left) else [left]
    operands = [conjunct.part(part) for part in parts]
    same_width = len(operands) == len(conjunct.subqueries[0].columns)
    return operands if same_width and not any(o.subqueries for o in operands) else None


def _is_row(tree: Tree) -> bool:
    return isinstance(tree, exp.Anonymous) and str(tree.this).upper() == "ROW"


def _has_no_nulls(rows: Operator, subquery: Subquery, operands: list[Scalar]) -> bool:
    """Return whether NOT IN cannot meet a NULL."""
    left = [operand.as_column for operand in operands]
    known = set(subquery.columns) <= subquery.plan.not_null
    return known and all(column is not None and column in rows.not_null for column in left)


def _equal(left: Scalar, right: Column) -> Scalar:
    tree = exp.EQ(this=left.tree, expression=Scalar.column(right).tree)
    return Scalar.of(tree, left.columns | {right})


def _without_order(plan: Operator) -> Operator:
    """Return a plan without operators at its top that only order rows or remove duplicates."""
    while isinstance(plan, Sort | Distinct):
        plan = plan.input
    return plan


def bare(plan: Operator) -> Operator:
    """Return a plan without operators at its top that do not affect whether there are rows."""
    while isinstance(plan, Sort | Distinct | DistinctOn | Projection) or _keeps_a_row(plan):
        [plan] = plan.children
    return plan


def _keeps_a_row(plan: Operator) -> bool:
    """Return whether a plan is a LIMIT of at least one row."""
    if not isinstance(plan, Limit) or plan.count is None or plan.offset is not None:
        return False
    count = unwrapped(plan.count.tree)
    return isinstance(count, exp.Literal) and count.name.isdigit() and int(count.name) > 0


def _decorrelated(plan: Operator, outer: set[Column]) -> tuple[Operator, Scalar]:
    """Return the plan without the conditions that read outer columns, and these conditions.

    A projection above the conditions passes on the columns that they read.
    """
    if isinstance(plan, Projection) and plan.outer_columns & outer:
        inner, matching = _decorrelated(plan.input, outer)
        if inner is plan.input or any(s.references & outer for s in plan.scalars):
            return plan, TRUE
        needed = matching.references & (set(inner.columns) - set(plan.columns))
        passed = tuple(Item.kept(column) for column in sorted(needed, key=str))
        return Projection(inner, (*plan.items, *passed)), matching
    if not isinstance(plan, Selection):
        return plan, TRUE
    inner, matching = _decorrelated(plan.input, outer)
    inside: list[Scalar] = []
    across = [matching]
    for conjunct in plan.condition.conjuncts:
        (across if conjunct.references & outer else inside).append(conjunct)
    if any(s.subqueries for s in across):
        return plan, TRUE
    return (Selection(inner, conjunction(inside)) if inside else inner), conjunction(across)
