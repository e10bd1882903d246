"""What a correlated plan has to do with the rows around it.

A plan that reads columns of a query around it is taken apart: conditions that read those columns
rise above the joins, so that what remains below reads none of them, and is a relation of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from sqlglot import exp

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.dependent_join import DependentJoin
from orchestrator.algebra.operators.distinct import Distinct
from orchestrator.algebra.operators.evaluation import Watched
from orchestrator.algebra.operators.function_scan import FunctionScan
from orchestrator.algebra.operators.group import Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.semijoin import Semijoin
from orchestrator.algebra.operators.sort import Sort
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.operators.values import Values
from orchestrator.algebra.passes.push_conditions import arrange_joins, flattened
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.predicates import never_null
from orchestrator.algebra.scalar import TRUE, Scalar, conjunction, filled, unwrapped
from orchestrator.algebra.traversal import walk


def risen(plan: Operator, outer: frozenset[Column]) -> Operator:
    """A plan whose conditions on columns of the query around it stand above its joins.

    >>> from orchestrator.algebra.examples import DEVICES_PARTS, PART, PARTS, PID
    >>> did = Column("outer_did")
    >>> one = Selection(DEVICES_PARTS, Scalar.read("device = outer_did", [DEVICES_PARTS.columns[0], did]))
    >>> join = Join(one, PARTS, Scalar.read("part = pid", [PART, PID]))
    >>> plan = risen(join, frozenset({did}))
    >>> plan.label, plan.input.label
    ('σ device = outer_did', '⋈ part = pid')
    """
    if not plan.outer_columns & outer:
        return plan
    if not isinstance(plan, Selection | Join):
        result = plan.with_children(tuple(risen(child, outer) for child in plan.children))
        if isinstance(result, LeftJoin | Semijoin | Antisemijoin):
            left, lifted = _lifted(result.left, outer)
            return Selection(replace(result, left=left), conjunction(lifted)) if lifted else result
        return result
    inputs, conditions = flattened(plan)
    across: list[Scalar] = [condition for condition in conditions if condition.references & outer]
    inside = [condition for condition in conditions if not condition.references & outer]
    freed = []
    for item in inputs:
        top, more = _lifted(risen(item, outer), outer)
        across += more
        freed.append(top)
    rows: Operator = freed[0]
    for item in freed[1:]:
        rows = Join(rows, item)
    if inside:
        rows = Selection(rows, conjunction(inside))
    rows = arrange_joins(Plan(rows, (), ())).root
    return Selection(rows, conjunction(across)) if across else rows


def _lifted(plan: Operator, outer: frozenset[Column]) -> tuple[Operator, tuple[Scalar, ...]]:
    """A plan without the selection on outer columns at its top, and that selection."""
    if isinstance(plan, Projection) and isinstance(plan.input, Selection):
        plan = _through(plan, outer)
    if isinstance(plan, Selection) and not plan.input.outer_columns & outer:
        return plan.input, plan.condition.conjuncts
    return plan, ()


def _through(plan: Projection, outer: frozenset[Column]) -> Operator:
    """π(σ(R)) as σ(π(R)), where only the selection reads columns of the query around it."""
    below = plan.input
    assert isinstance(below, Selection)
    if any(item.scalar.references & outer for item in plan.items):
        return plan
    shown = set(plan.columns)
    needed = below.condition.references & set(below.input.columns) - shown
    passed = tuple(Item.kept(column) for column in sorted(needed, key=str))
    if {item.column for item in plan.items if not item.is_unchanged} & below.condition.references:
        return plan
    return Selection(Projection(below.input, (*plan.items, *passed)), below.condition)


def separated(plan: Operator, outer: frozenset[Column]) -> tuple[Operator, Scalar] | None:
    """A plan that is π(σ(T)) and T is free of outer columns, as T with its columns and σ's condition.

    T shows what the condition reads, beside the plan's columns.
    """
    if not plan.outer_columns & outer:
        return plan, TRUE
    if isinstance(plan, Sort):
        return separated(plan.input, outer)
    if isinstance(plan, Projection):
        found = separated(plan.input, outer)
        if found is None or any(item.scalar.references & outer for item in plan.items):
            return None
        rows, condition = found
        needed = condition.references & set(rows.columns) - set(plan.columns)
        passed = tuple(Item.kept(column) for column in sorted(needed, key=str))
        return Projection(rows, (*plan.items, *passed)), condition
    if isinstance(plan, Selection) and not plan.input.outer_columns & outer:
        if plan.condition.subqueries:
            return None
        return plan.input, plan.condition
    return None


def watched(
    plan: Operator, outer: frozenset[Column], conditions: Iterable[Scalar] = ()
) -> list[Watched]:
    """The parts of a plan that are free of outer columns, with the conditions on their rows.

    A row of such a part that does not satisfy its condition makes no difference to what the plan
    gives. `conditions` are those on the plan's own rows.
    """
    found: dict[Operator, list[Scalar]] = {}
    for part, matters in _parts(plan, outer, tuple(conditions)):
        known = outer | set(part.columns)
        plain = [
            matter for matter in matters if not matter.subqueries and matter.references <= known
        ]
        found.setdefault(part, []).append(conjunction(plain))
    return [
        Watched(part, (TRUE,) if TRUE in matters else tuple(dict.fromkeys(matters)))
        for part, matters in found.items()
    ]


def alternatives(watched: Watched, not_null: frozenset[Column]) -> Watched:
    """The same, with a condition for each way in which a comparison may fail to be false.

    A join on an equality finds its rows by an index; one on `(x = y) IS NOT FALSE` does not.

    >>> x, y = Column("x"), Column("y")
    >>> one = Watched(None, (Scalar.read("(x = y) IS NOT FALSE", [x, y]),))
    >>> alternatives(one, frozenset({x})).matters
    (Scalar(x = y), Scalar((y) IS NULL))
    """
    known = not_null | watched.plan.not_null if watched.plan else not_null
    matters: list[Scalar] = []
    for condition in watched.matters:
        parts = list(condition.conjuncts)
        open_ = [
            (place, compared) for place, part in enumerate(parts) if (compared := _compared(part))
        ]
        if len(open_) != 1:
            matters.append(condition)
            continue
        [(place, (equal, *sides))] = open_
        choices = [equal] + [filled("(x) IS NULL", x=s) for s in sides if not never_null(s, known)]
        matters += [
            conjunction([*parts[:place], choice, *parts[place + 1 :]]) for choice in choices
        ]
    return Watched(watched.plan, tuple(matters))


def _compared(condition: Scalar) -> tuple[Scalar, Scalar, Scalar] | None:
    """Of `(x = y) IS NOT FALSE` and `(x <> y) IS NOT TRUE`: x = y, x and y."""
    tree = unwrapped(condition.tree)
    if not isinstance(tree, exp.Not) or not isinstance(tree.this, exp.Is):
        return None
    inner, truth = unwrapped(tree.this.this), tree.this.expression
    wanted = False if isinstance(inner, exp.EQ) else True if isinstance(inner, exp.NEQ) else None
    if not isinstance(truth, exp.Boolean) or wanted is not truth.this:
        return None
    equal = exp.EQ(this=inner.this.copy(), expression=inner.expression.copy())
    return condition.part(equal), condition.part(inner.this), condition.part(inner.expression)


Parts: TypeAlias = Iterator[tuple[Operator, tuple[Scalar, ...]]]


def _parts(plan: Operator, bound: frozenset[Column], conditions: tuple[Scalar, ...]) -> Parts:
    """The parts free of bound columns, and what their rows must satisfy to matter."""
    if not plan.outer_columns & bound:
        if _reads_tables(walk(plan, subqueries=False)):
            yield plan, conditions
            return
        if not _reads_tables(walk(plan)):
            return
    own = frozenset(column for child in plan.children for column in child.columns)
    for scalar in plan.scalars:
        yield from tested_parts(scalar, bound | own)
    if isinstance(plan, Selection):
        yield from _parts(plan.input, bound, conditions + _plain(plan.condition))
    elif isinstance(plan, Projection):
        yield from _parts(plan.input, bound, tuple(_before(plan, conditions)))
    elif isinstance(plan, Join):
        for child in plan.children:
            yield from _parts(child, bound, conditions + _plain(plan.condition))
    elif isinstance(plan, LeftJoin | Semijoin | Antisemijoin):
        yield from _parts(plan.left, bound, conditions)
        yield from _parts(plan.right, bound, _plain(plan.condition))
    elif isinstance(plan, DependentJoin):
        yield from _parts(plan.left, bound, conditions)
        yield from _parts(plan.right, bound | set(plan.left.columns), ())
    elif isinstance(plan, Distinct | Sort):
        yield from _parts(plan.input, bound, conditions)
    elif isinstance(plan, Grouping):
        # A group that is filtered away by what it is grouped by makes no difference.
        known = bound | set(plan.by)
        kept = tuple(item for item in conditions if plan.by and item.references <= known)
        yield from _parts(plan.input, bound, kept)
    elif isinstance(plan, UnionAll):
        for branch in plan.branches:
            back = {new: Scalar.column(old) for old, new in branch.renamed(plan.outputs)}
            yield from _parts(branch.input, bound, tuple(c.substitute(back) for c in conditions))
    else:
        for child in plan.children:
            yield from _parts(child, bound, ())


def _reads_tables(operators: Iterable[Operator]) -> bool:
    leaves = (operator for operator in operators if not operator.children)
    return any(not isinstance(leaf, Values | FunctionScan) for leaf in leaves)


def tested_parts(scalar: Scalar, bound: frozenset[Column]) -> Parts:
    """The parts of an expression's subqueries that are free of bound columns."""
    for position, subquery in enumerate(scalar.subqueries, 1):
        yield from _parts(subquery.plan, bound, tested(scalar, position, bound))


def _plain(condition: Scalar) -> tuple[Scalar, ...]:
    return tuple(conjunct for conjunct in condition.conjuncts if not conjunct.subqueries)


def _before(plan: Projection, conditions: Iterable[Scalar]) -> Iterator[Scalar]:
    """Conditions on what a projection shows, in terms of its input."""
    made = {item.column: item.scalar for item in plan.items if not item.is_unchanged}
    for condition in conditions:
        if not any(made[column].subqueries for column in condition.references & made.keys()):
            yield condition.substitute(made)


def tested(scalar: Scalar, position: int, outer: frozenset[Column]) -> tuple[Scalar, ...]:
    """What a subquery's rows must satisfy to matter to the expression that it stands in.

    To `x = ANY` a row matters only if the comparison is not false, to `x > ALL` if it is not true.

    >>> from orchestrator.algebra.examples import DEVICES, DID
    >>> from orchestrator.algebra.scalar import Subquery
    >>> x = Column("x")
    >>> rows = exp.All(this=exp.Parameter(this=exp.Literal.number(1)))
    >>> tree = exp.GT(this=Scalar.column(x).tree, expression=rows)
    >>> tested(Scalar.of(tree, [x], (Subquery(DEVICES, (DID,)),)), 1, frozenset({x}))
    (Scalar((((x) > did)) IS NOT TRUE),)
    """
    subquery = scalar.subqueries[position - 1]
    hole = next(h for h in scalar.tree.find_all(exp.Parameter) if int(h.name) == position)
    above = hole.parent
    while isinstance(above, exp.Subquery | exp.Paren):
        above = above.parent
    operands: Sequence[exp.Expr]
    if isinstance(above, exp.In):
        kind: type[exp.Expr] = exp.EQ
        left, every = unwrapped(above.this), False
        operands = left.expressions if isinstance(left, exp.Tuple) or _is_row(left) else [left]
    elif isinstance(above, exp.Any | exp.All) and isinstance(above.parent, exp.Binary):
        kind, every = type(above.parent), isinstance(above, exp.All)
        operands = [unwrapped(above.parent.this)]
        if kind not in (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE):
            return ()
    else:
        return ()
    parts = [scalar.part(operand) for operand in operands]
    if len(parts) != len(subquery.columns) or any(
        part.subqueries or not part.references <= outer for part in parts
    ):
        return ()
    sides = [
        Scalar.of(
            kind(this=exp.Paren(this=part.tree), expression=Scalar.column(column).tree),
            part.columns | {column},
        )
        for part, column in zip(parts, subquery.columns, strict=True)
    ]
    template = "(c) IS NOT TRUE" if every else "(c) IS NOT FALSE"
    return tuple(filled(template, c=side) for side in sides)


def _is_row(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Anonymous) and str(tree.this).upper() == "ROW"
