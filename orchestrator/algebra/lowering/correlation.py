"""Analysis of correlated plans: separate the conditions on outer columns from the rest.

Conditions that read columns of a surrounding query move above the joins. The plan below them then
reads no outer columns, and is an ordinary relation.
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
    """Return a plan whose conditions on columns of the surrounding query are above its joins.

    >>> from orchestrator.algebra.examples import DEVICES_PARTS, PART, PARTS, PID
    >>> did = Column("outer_did")
    >>> rows = Selection(DEVICES_PARTS, Scalar.read("device = outer_did", [DEVICES_PARTS.columns[0], did]))
    >>> join = Join(rows, PARTS, Scalar.read("part = pid", [PART, PID]))
    >>> plan = risen(join, frozenset({did}))
    >>> plan.label, plan.input.label
    ('σ device = outer_did', '⋈ part = pid')
    """
    if not plan.outer_columns & outer:
        return plan
    if not isinstance(plan, Selection | Join):
        result = plan.with_children(tuple(risen(child, outer) for child in plan.children))
        if isinstance(result, LeftJoin | Semijoin | Antisemijoin):
            left, lifted = _split_selection(result.left, outer)
            return Selection(replace(result, left=left), conjunction(lifted)) if lifted else result
        return result
    inputs, conditions = flattened(plan)
    across: list[Scalar] = [condition for condition in conditions if condition.references & outer]
    inside = [condition for condition in conditions if not condition.references & outer]
    uncorrelated = []
    for input_ in inputs:
        below, more = _split_selection(risen(input_, outer), outer)
        across += more
        uncorrelated.append(below)
    rows: Operator = uncorrelated[0]
    for input_ in uncorrelated[1:]:
        rows = Join(rows, input_)
    if inside:
        rows = Selection(rows, conjunction(inside))
    rows = arrange_joins(Plan(rows, (), ())).root
    return Selection(rows, conjunction(across)) if across else rows


def _split_selection(
    plan: Operator, outer: frozenset[Column]
) -> tuple[Operator, tuple[Scalar, ...]]:
    """Return a plan without the selection on outer columns at its top, and the conditions of that
    selection.
    """
    if isinstance(plan, Projection) and isinstance(plan.input, Selection):
        plan = _selection_on_top(plan, outer)
    if isinstance(plan, Selection) and not plan.input.outer_columns & outer:
        return plan.input, plan.condition.conjuncts
    return plan, ()


def _selection_on_top(plan: Projection, outer: frozenset[Column]) -> Operator:
    """Return π(σ(R)) as σ(π(R)), if only the selection reads columns of the surrounding query."""
    below = plan.input
    assert isinstance(below, Selection)
    if any(item.scalar.references & outer for item in plan.items):
        return plan
    outputs = set(plan.columns)
    needed = below.condition.references & set(below.input.columns) - outputs
    passed = tuple(Item.kept(column) for column in sorted(needed, key=str))
    if {item.column for item in plan.items if not item.is_unchanged} & below.condition.references:
        return plan
    return Selection(Projection(below.input, (*plan.items, *passed)), below.condition)


def separated(plan: Operator, outer: frozenset[Column]) -> tuple[Operator, Scalar] | None:
    """Return a plan π(σ(T)), where T reads no outer columns, as T and the condition of σ.

    T shows the columns of the plan and those that the condition reads. The result is None if the
    plan does not have this form.
    """
    if not plan.outer_columns & outer:
        return plan, TRUE
    if isinstance(plan, Sort):
        return separated(plan.input, outer)
    if isinstance(plan, Projection):
        inner = separated(plan.input, outer)
        if inner is None or any(item.scalar.references & outer for item in plan.items):
            return None
        rows, condition = inner
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
    """Return the parts of a plan that read no outer columns, with the conditions on their rows.

    A row of such a part that does not satisfy its condition does not affect the result of the plan.
    `conditions` are conditions on the rows of the plan itself.
    """
    conditions_of: dict[Operator, list[Scalar]] = {}
    for part, matters in _parts(plan, outer, tuple(conditions)):
        known = outer | set(part.columns)
        plain = [
            matter for matter in matters if not matter.subqueries and matter.references <= known
        ]
        conditions_of.setdefault(part, []).append(conjunction(plain))
    return [
        Watched(part, (TRUE,) if TRUE in matters else tuple(dict.fromkeys(matters)))
        for part, matters in conditions_of.items()
    ]


def alternatives(watched: Watched, not_null: frozenset[Column]) -> Watched:
    """Return `watched` with a separate condition for each case in which a comparison is not false.

    A join on an equality finds its rows by an index; a join on `(x = y) IS NOT FALSE` does not.

    >>> x, y = Column("x"), Column("y")
    >>> part = Watched(None, (Scalar.read("(x = y) IS NOT FALSE", [x, y]),))
    >>> alternatives(part, frozenset({x})).matters
    (Scalar(x = y), Scalar((y) IS NULL))
    """
    never_null_columns = not_null | watched.plan.not_null if watched.plan else not_null
    matters: list[Scalar] = []
    for condition in watched.matters:
        parts = list(condition.conjuncts)
        comparisons = [
            (position, compared)
            for position, part in enumerate(parts)
            if (compared := _compared(part))
        ]
        if len(comparisons) != 1:
            matters.append(condition)
            continue
        [(position, (equal, *sides))] = comparisons
        choices = [equal] + [
            filled("(x) IS NULL", x=s) for s in sides if not never_null(s, never_null_columns)
        ]
        matters += [
            conjunction([*parts[:position], choice, *parts[position + 1 :]]) for choice in choices
        ]
    return Watched(watched.plan, tuple(matters))


def _compared(condition: Scalar) -> tuple[Scalar, Scalar, Scalar] | None:
    """Return x = y, x and y for `(x = y) IS NOT FALSE` and `(x <> y) IS NOT TRUE`."""
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
    """Yield the parts that read no bound columns, and the conditions under which their rows matter."""
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
        yield from _parts(plan.input, bound, tuple(_in_terms_of_input(plan, conditions)))
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
        # A group does not matter if a condition on its grouping columns removes it.
        known = bound | set(plan.by)
        on_groups = tuple(
            condition for condition in conditions if plan.by and condition.references <= known
        )
        yield from _parts(plan.input, bound, on_groups)
    elif isinstance(plan, UnionAll):
        for branch in plan.branches:
            inputs = {new: Scalar.column(old) for old, new in branch.renamed(plan.outputs)}
            yield from _parts(branch.input, bound, tuple(c.substitute(inputs) for c in conditions))
    else:
        for child in plan.children:
            yield from _parts(child, bound, ())


def _reads_tables(operators: Iterable[Operator]) -> bool:
    leaves = (operator for operator in operators if not operator.children)
    return any(not isinstance(leaf, Values | FunctionScan) for leaf in leaves)


def tested_parts(scalar: Scalar, bound: frozenset[Column]) -> Parts:
    """Yield the parts of an expression's subqueries that read no bound columns."""
    for position, subquery in enumerate(scalar.subqueries, 1):
        yield from _parts(subquery.plan, bound, tested(scalar, position, bound))


def _plain(condition: Scalar) -> tuple[Scalar, ...]:
    return tuple(conjunct for conjunct in condition.conjuncts if not conjunct.subqueries)


def _in_terms_of_input(plan: Projection, conditions: Iterable[Scalar]) -> Iterator[Scalar]:
    """Yield conditions on the outputs of a projection in terms of its input."""
    computed = {item.column: item.scalar for item in plan.items if not item.is_unchanged}
    for condition in conditions:
        if not any(
            computed[column].subqueries for column in condition.references & computed.keys()
        ):
            yield condition.substitute(computed)


def tested(scalar: Scalar, position: int, outer: frozenset[Column]) -> tuple[Scalar, ...]:
    """Return the conditions under which a row of a subquery affects the expression around it.

    A row affects `x = ANY` only if the comparison is not false, and `x > ALL` only if it is not
    true.

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
