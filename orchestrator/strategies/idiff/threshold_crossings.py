"""Rows for which a condition changes its truth value because an update changes what the condition reads.

Often the direction is known without reading rows. If the total in `x > total` grows, no row starts to
satisfy the condition; if it shrinks, no row stops. The rows that cross the threshold have an x between
the old and the new total, so an index on x finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from orchestrator.algebra.columns import Column
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.scalar import TRUE, Scalar, conjunction, disjunction, filled, unwrapped
from orchestrator.engine.composer import Composer
from orchestrator.engine.diffs import Delete, Insert, Update
from orchestrator.strategies.idiff.rules.base import rows_after

_GROWN, _SHRUNK, _MOVED = (f"((later {sign} earlier) IS NOT TRUE)" for sign in ("<=", ">=", "="))
"""The condition that a value grew, shrank or changed, or is or was NULL."""


@dataclass(frozen=True)
class _Comparison:
    """How `x > value` and the like become true."""

    becomes_true: str
    """The change of the value that is necessary for it."""
    now: str
    """The condition on x after the change."""
    before: str
    """The condition on x before the change, unless the value was NULL."""
    becomes_false: str
    """The change of the value that is necessary for the opposite."""


@dataclass(frozen=True)
class _Side:
    """A comparison of an expression with a changed value."""

    comparison: _Comparison
    x: Scalar
    later: Scalar
    earlier: Scalar

    @property
    def entering(self) -> tuple[Scalar, ...]:
        """The conditions on x if the comparison becomes true."""
        return _between(self.comparison, self.x, self.later, self.earlier)

    @property
    def leaving(self) -> tuple[Scalar, ...]:
        """The conditions on x if the comparison becomes false."""
        return _between(self.comparison, self.x, self.earlier, self.later)

    @property
    def if_true(self) -> tuple[Scalar, ...]:
        """The conditions `entering`, with the change of the value that is necessary."""
        necessary = self.changed(self.comparison.becomes_true)
        return tuple(conjunction((necessary, condition)) for condition in self.entering)

    @property
    def if_false(self) -> tuple[Scalar, ...]:
        """The conditions `leaving`, with the change of the value that is necessary."""
        necessary = self.changed(self.comparison.becomes_false)
        return tuple(conjunction((necessary, condition)) for condition in self.leaving)

    def changed(self, condition: str) -> Scalar:
        """Return whether the value changed in the given direction."""
        return filled(condition, later=self.later, earlier=self.earlier)


_COMPARISONS: dict[type, _Comparison] = {
    exp.GT: _Comparison(_SHRUNK, "x > later", "x <= earlier", _GROWN),
    exp.GTE: _Comparison(_SHRUNK, "x >= later", "x < earlier", _GROWN),
    exp.LT: _Comparison(_GROWN, "x < later", "x >= earlier", _SHRUNK),
    exp.LTE: _Comparison(_GROWN, "x <= later", "x > earlier", _SHRUNK),
    exp.EQ: _Comparison(_MOVED, "x = later", "x <> earlier", _MOVED),
}

_MIRRORED: dict[type, type] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
}
"""The comparison with x first that is equivalent to `value > x` and the like."""

_ARITHMETIC = (exp.Column, exp.Literal, exp.Paren, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg)


@dataclass(frozen=True)
class Crossing:
    """Rows for which a condition may have become true, or may have become false."""

    when: Scalar = TRUE
    """A condition on the changed columns alone."""
    among: tuple[Scalar, ...] = (TRUE,)
    """Conditions that exclude each other; together they cover all rows."""
    by: tuple[Column, ...] = ()
    """The columns that these conditions compare, so that indexes on them find the rows."""

    def rows(self, plan: Operator, *parts: Scalar) -> Operator:
        """Return the rows of a plan that may cross and satisfy further conditions."""
        selections = [
            Selection(plan, conjunction((self.when, condition, *parts))) for condition in self.among
        ]
        if len(selections) == 1:
            return selections[0]
        return UnionAll(
            tuple(Branch(selection, plan.columns) for selection in selections), plan.columns
        )


ANY = Crossing()

_MANY = 8
"""No more conditions than these are taken apart, because each is a query of its own."""


def filter_update(
    rows: Operator,
    condition: Scalar,
    update: Update,
    composer: Composer,
    enters: Crossing = ANY,
    leaves: Crossing = ANY,
) -> tuple[Update, Delete, Insert]:
    """Return the diffs of the rows that satisfy a condition, for an update with all columns it reads."""
    earlier = condition.substitute(update.as_before)
    held, holds = filled("(x) IS TRUE", x=earlier), filled("(x) IS TRUE", x=condition)
    held_not, holds_not = (filled("(x) IS NOT TRUE", x=c) for c in (earlier, condition))
    entered = replace(update, plan=enters.rows(update.plan, held_not, holds))
    return (
        replace(update, plan=ANY.rows(update.plan, held, holds)),
        Delete(leaves.rows(update.plan, held, holds_not), update.ids),
        Insert(rows_after(rows, entered, composer)),
    )


def crossings(
    condition: Scalar,
    changed: Collection[Column],
    before: Mapping[Column, Scalar],
    ordered: Callable[[Column], bool],
) -> tuple[Crossing, Crossing]:
    """Return the rows for which a condition may become true, and false, when some columns change.

    `ordered` says whether all comparisons with values of a column's type agree with one order.

    >>> x, total, old = Column("x"), Column("total"), Column("old")
    >>> above = Scalar.read("(x > total)", [x, total])
    >>> enter, leave = crossings(above, [total], {total: Scalar.column(old)}, lambda column: True)
    >>> enter.when, leave.when
    (Scalar(((total >= old) IS NOT TRUE)), Scalar(((total <= old) IS NOT TRUE)))
    >>> for condition in (*enter.among, *leave.among):
    ...     print(condition)
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
                return _any_crossing(condition, changed, before, ordered)
            sides.append(side)
    enters = disjunction(
        dict.fromkeys(side.changed(side.comparison.becomes_true) for side in sides)
    )
    leaves = disjunction(
        dict.fromkeys(side.changed(side.comparison.becomes_false) for side in sides)
    )
    by = tuple(dict.fromkeys(c for side in sides if (c := side.x.as_column) is not None))
    if len(sides) != 1:
        return (
            Crossing(enters, _apart([c for s in sides for c in s.if_true]), by),
            Crossing(leaves, _apart([c for s in sides for c in s.if_false]), by),
        )
    (side,) = sides
    return Crossing(enters, side.entering, by), Crossing(leaves, side.leaving, by)


def _any_crossing(
    condition: Scalar,
    changed: Collection[Column],
    before: Mapping[Column, Scalar],
    ordered: Callable[[Column], bool],
) -> tuple[Crossing, Crossing]:
    """Return the rows for which any comparison within a condition changes, in either direction."""
    sides: list[_Side] = []
    counted: set[int] = set()
    tree = condition.tree
    for node in tree.walk():
        if isinstance(node, tuple(_COMPARISONS)):
            side = _side(condition.part(node), changed, before, ordered)
            if side is not None:
                sides.append(side)
                counted.update(id(part) for part in node.walk())
    names = {column.symbol for column in changed}
    rest = [n for n in tree.find_all(exp.Column) if n.name in names and id(n) not in counted]
    if rest or not sides or any(s.correlated & set(changed) for s in condition.subqueries):
        return ANY, ANY
    by = tuple(dict.fromkeys(c for side in sides if (c := side.x.as_column) is not None))
    moved = _apart([c for side in sides for c in (*side.if_true, *side.if_false)])
    return Crossing(among=moved, by=by), Crossing(among=moved, by=by)


def _apart(conditions: Sequence[Scalar]) -> tuple[Scalar, ...]:
    """Return conditions that exclude each other, for the rows that satisfy any of some conditions.

    Each can use an index, which the planner would not expect of their disjunction.

    >>> x = [Column("x")]
    >>> _apart([Scalar.read("x = 1", x), Scalar.read("x < 3", x)])
    (Scalar(x = 1), Scalar(x < 3 AND ((x = 1) IS NOT TRUE)))
    """
    if len(conditions) > _MANY:
        return (disjunction(conditions),)
    return tuple(
        conjunction([condition, *(filled("x IS NOT TRUE", x=c) for c in conditions[:n])])
        for n, condition in enumerate(conditions)
    )


def _between(
    comparison: _Comparison, x: Scalar, later: Scalar, earlier: Scalar
) -> tuple[Scalar, ...]:
    """Return the conditions on x if a comparison holds with the later value and not with the earlier."""
    now = filled(comparison.now, x=x, later=later)
    unknown = filled("earlier IS NULL", earlier=earlier)
    return (
        conjunction((now, filled(comparison.before, x=x, earlier=earlier))),
        conjunction((now, unknown)),
    )


def _side(
    conjunct: Scalar,
    changed: Collection[Column],
    before: Mapping[Column, Scalar],
    ordered: Callable[[Column], bool],
) -> _Side | None:
    """Return a conjunct as a comparison with changed columns on one side only, or None."""
    tree = unwrapped(conjunct.tree)
    kind = type(tree)
    if kind not in _COMPARISONS:
        return None
    x, value = conjunct.part(tree.this), conjunct.part(tree.expression)
    if x.references & set(changed):
        x, value, kind = value, x, _MIRRORED[kind]
    if x.references & set(changed) or not value.references <= set(changed):
        return None
    if not all(map(ordered, value.references)):
        return None
    if not all(isinstance(node, (*_ARITHMETIC, exp.Identifier)) for node in value.tree.walk()):
        return None
    return _Side(_COMPARISONS[kind], x, value, value.substitute(before))
