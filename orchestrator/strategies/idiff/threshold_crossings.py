"""Rows for which a condition turns, because an update changes what it reads.

Which way it may turn is sometimes known without a look at the rows: of those that satisfy `x > total`,
none comes when the total grows, and none goes when it shrinks. And those for which it turned have an x
between the old total and the new one, which an index on x finds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import TRUE, Scalar, conjunction, disjunction, filled, unwrapped
from orchestrator.engine.composer import Composer
from orchestrator.engine.diffs import Delete, Diff, Insert, Update
from orchestrator.strategies.idiff.rules.base import rows_after

_GROWN, _SHRUNK, _MOVED = (f"((later {sign} earlier) IS NOT TRUE)" for sign in ("<=", ">=", "="))
"""Whether a value is another in this way, or was or is NULL."""


@dataclass(frozen=True)
class _Way:
    """How `x > value` and the like become true."""

    how: str
    """How the value must have changed."""
    now: str
    """What is true of x then."""
    before: str
    """What was true of it, unless the value was NULL."""
    becomes_untrue: str
    """How the value must have changed for the opposite."""


@dataclass(frozen=True)
class _Side:
    """A comparison of something with a value that changed."""

    way: _Way
    x: Scalar
    later: Scalar
    earlier: Scalar

    def turns(self, how: str) -> Scalar:
        """Whether the value has changed in a way."""
        return filled(how, later=self.later, earlier=self.earlier)


_WAYS: dict[type, _Way] = {
    exp.GT: _Way(_SHRUNK, "x > later", "x <= earlier", _GROWN),
    exp.GTE: _Way(_SHRUNK, "x >= later", "x < earlier", _GROWN),
    exp.LT: _Way(_GROWN, "x < later", "x >= earlier", _SHRUNK),
    exp.LTE: _Way(_GROWN, "x <= later", "x > earlier", _SHRUNK),
    exp.EQ: _Way(_MOVED, "x = later", "x <> earlier", _MOVED),
}

_TURNED_ROUND: dict[type, type] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
}
"""What `value > x` and the like are called when x comes first."""

_ARITHMETIC = (exp.Column, exp.Literal, exp.Paren, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg)


@dataclass(frozen=True)
class Turn:
    """Rows for which a condition may have turned one way."""

    when: Scalar = TRUE
    """Over the columns that changed alone."""
    among: tuple[Scalar, ...] = (TRUE,)
    """Conditions of which each row satisfies exactly one."""
    by: Column | None = None
    """The column that these compare, for which an index finds the rows."""

    def rows(self, plan: Operator, *parts: Scalar) -> Operator:
        """The rows of a plan that further conditions hold for."""
        selections = [
            Selection(plan, conjunction((self.when, item, *parts))) for item in self.among
        ]
        if len(selections) == 1:
            return selections[0]
        return UnionAll(tuple(Branch(item, plan.columns) for item in selections), plan.columns)


ANY = Turn()


def turned(
    rows: Operator,
    condition: Scalar,
    update: Update,
    composer: Composer,
    comes: Turn = ANY,
    goes: Turn = ANY,
) -> tuple[Diff, ...]:
    """What an update that holds all that a condition reads means for the rows that satisfy it."""
    earlier = condition.substitute(update.as_before)
    held, holds = filled("(x) IS TRUE", x=earlier), filled("(x) IS TRUE", x=condition)
    held_not, holds_not = (filled("(x) IS NOT TRUE", x=c) for c in (earlier, condition))
    entered = replace(update, plan=comes.rows(update.plan, held_not, holds))
    return (
        replace(update, plan=ANY.rows(update.plan, held, holds)),
        Delete(goes.rows(update.plan, held, holds_not), update.ids),
        Insert(rows_after(rows, entered, composer)),
    )


def turns(
    condition: Scalar,
    changed: Collection[Column],
    before: Mapping[Column, Scalar],
    ordered: Callable[[Column], bool],
) -> tuple[Turn, Turn]:
    """The rows for which a condition may become true, and untrue, when some columns change.

    `ordered` says whether the order of a column's type is one that all comparisons with its values
    agree with.

    >>> x, total, old = Column("x"), Column("total"), Column("old")
    >>> above = Scalar.read("(x > total)", [x, total])
    >>> come, go = turns(above, [total], {total: Scalar.column(old)}, lambda column: True)
    >>> come.when, go.when
    (Scalar(((total >= old) IS NOT TRUE)), Scalar(((total <= old) IS NOT TRUE)))
    >>> for one in (*come.among, *go.among):
    ...     print(one)
    x > total AND x <= old
    x > total AND old IS NULL
    x > old AND x <= total
    x > old AND total IS NULL
    """
    sides: list[_Side] = []
    for conjunct in condition.conjuncts:
        if conjunct.references & set(changed):
            side = _side(conjunct, changed, before, ordered)
            if side is None:
                return ANY, ANY
            sides.append(side)
    comes = disjunction(dict.fromkeys(each.turns(each.way.how) for each in sides))
    goes = disjunction(dict.fromkeys(each.turns(each.way.becomes_untrue) for each in sides))
    if len(sides) != 1:
        return Turn(comes), Turn(goes)
    (item,) = sides
    by = item.x.as_column
    return (
        Turn(comes, _between(item.way, item.x, item.later, item.earlier), by),
        Turn(goes, _between(item.way, item.x, item.earlier, item.later), by),
    )


def _between(way: _Way, x: Scalar, later: Scalar, earlier: Scalar) -> tuple[Scalar, ...]:
    """Where x is if the condition is true with one value and not with the other."""
    now = filled(way.now, x=x, later=later)
    unknown = filled("earlier IS NULL", earlier=earlier)
    return (
        conjunction((now, filled(way.before, x=x, earlier=earlier))),
        conjunction((now, unknown)),
    )


def _side(
    conjunct: Scalar,
    changed: Collection[Column],
    before: Mapping[Column, Scalar],
    ordered: Callable[[Column], bool],
) -> _Side | None:
    """A comparison that reads changed columns on one side alone."""
    tree = unwrapped(conjunct.tree)
    kind = type(tree)
    if kind not in _WAYS:
        return None
    x, value = conjunct.part(tree.this), conjunct.part(tree.expression)
    if x.references & set(changed):
        x, value, kind = value, x, _TURNED_ROUND[kind]
    if x.references & set(changed) or not value.references <= set(changed):
        return None
    if not all(map(ordered, value.references)):
        return None
    if not all(isinstance(node, (*_ARITHMETIC, exp.Identifier)) for node in value.tree.walk()):
        return None
    return _Side(_WAYS[kind], x, value, value.substitute(before))
