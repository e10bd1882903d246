"""Rows for which a condition turns, because an update changes what it reads.

Which way it may turn is sometimes known without a look at the rows: of those that satisfy `x > total`,
none comes when the total grows, and none goes when it shrinks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from sqlglot import exp

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.scalar import TRUE, Scalar, conjunction, disjunction, filled, unwrapped
from orchestrator.strategies.idiff.composer import Composer
from orchestrator.strategies.idiff.diffs import Diff, Minus, Plus, Update
from orchestrator.strategies.idiff.rules.base import rows_after

_GROWN, _SHRUNK, _MOVED = (f"((later {sign} earlier) IS NOT TRUE)" for sign in ("<=", ">=", "="))
"""Whether a value is another in this way, or was or is NULL."""

_COMES: dict[type, str] = {
    exp.GT: _SHRUNK,
    exp.GTE: _SHRUNK,
    exp.LT: _GROWN,
    exp.LTE: _GROWN,
    exp.EQ: _MOVED,
}
"""For `x > value` and the like, how the value must have changed for the condition to become true."""

_OTHER_WAY = {_GROWN: _SHRUNK, _SHRUNK: _GROWN, _MOVED: _MOVED}

_ARITHMETIC = (exp.Column, exp.Literal, exp.Paren, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg)


def turned(
    rows: Operator,
    condition: Scalar,
    update: Update,
    composer: Composer,
    comes: Scalar = TRUE,
    goes: Scalar = TRUE,
) -> tuple[Diff, ...]:
    """What an update that holds all that a condition reads means for the rows that satisfy it.

    No row comes unless `comes` is true of it, or goes unless `goes` is.
    """
    earlier = condition.substitute(update.as_before)
    held, holds = filled("(x) IS TRUE", x=earlier), filled("(x) IS TRUE", x=condition)
    held_not, holds_not = (filled("(x) IS NOT TRUE", x=c) for c in (earlier, condition))

    def rows_where(*parts: Scalar) -> Operator:
        return Selection(update.plan, conjunction(parts))

    entered = replace(update, plan=rows_where(comes, held_not, holds))
    return (
        replace(update, plan=rows_where(held, holds)),
        Minus(rows_where(goes, held, holds_not), update.ids),
        Plus(rows_after(rows, entered, composer)),
    )


def turns(
    condition: Scalar,
    changed: Collection[Column],
    before: Mapping[Column, Scalar],
    ordered: Callable[[Column], bool],
) -> tuple[Scalar, Scalar]:
    """What must be for a condition to become true, and to become untrue, when some columns change.

    Both are over these columns alone, before and after. `ordered` says whether the order of a
    column's type is one that all comparisons with its values agree with.

    >>> x, total, old = Column("x"), Column("total"), Column("old")
    >>> above = Scalar.read("(x > total)", [x, total])
    >>> turns(above, [total], {total: Scalar.column(old)}, lambda column: True)
    (Scalar(((total >= old) IS NOT TRUE)), Scalar(((total <= old) IS NOT TRUE)))
    """
    ways = [
        _ways(one, changed, ordered) for one in condition.conjuncts if one.references & set(changed)
    ]
    found = []
    for place in (0, 1):
        either = []
        for one in ways:
            if one is None:
                return TRUE, TRUE
            value, texts = one
            either.append(filled(texts[place], later=value, earlier=value.substitute(before)))
        found.append(disjunction(dict.fromkeys(either)))
    return found[0], found[1]


def _ways(
    conjunct: Scalar, changed: Collection[Column], ordered: Callable[[Column], bool]
) -> tuple[Scalar, tuple[str, str]] | None:
    tree = unwrapped(conjunct.tree)
    comes = _COMES.get(type(tree))
    if comes is None:
        return None
    left, right = conjunct.part(tree.this), conjunct.part(tree.expression)
    value, other = right, left
    if left.references & set(changed):
        value, other, comes = left, right, _OTHER_WAY[comes]
    if other.references & set(changed) or not value.references <= set(changed):
        return None
    if not all(map(ordered, value.references)):
        return None
    if not all(isinstance(node, (*_ARITHMETIC, exp.Identifier)) for node in value.tree.walk()):
        return None
    return value, (comes, _OTHER_WAY[comes])
