"""Temporal filters: replace comparisons with the current time by comparisons with a row that stores it.

In `ts > now() - interval '1 hour'`, the right side is the same for all rows and changes while no table does. It
becomes a column of a table with one row, the clock of the view. Then the time changes like any other data: a
refresh updates this row, and the rows between the old and the new bound come and go.

Calculations with time zones and months cannot be inverted, so the whole side without columns becomes the column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.ids import used_symbols
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.joining import Binary
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.scan import Scan, ScanColumn, Table
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.semijoin import Semijoin
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.scalar import TRUE, Scalar, conjunction
from orchestrator.algebra.traversal import rewrite, walk
from orchestrator.algebra.unsupported import NotModelledError, Unsupported

TIMES = frozenset(
    (
        *("now()", "transaction_timestamp()", "CURRENT_TIMESTAMP", "CURRENT_DATE"),
        *("LOCALTIMESTAMP", "LOCALTIME", "idivm.clock()"),
    )
)
"""The expressions that stand for the time of the transaction, as PostgreSQL prints them."""

_COMPARISONS = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ)

_PARTS = (
    *(exp.Paren, exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Cast, exp.DataType, exp.Literal),
    *(exp.Identifier, exp.AtTimeZone),
)
"""What an expression of the time may consist of, apart from the time itself and calls of functions."""

_FUNCTIONS = frozenset({"date_trunc", "date_bin", "timezone", "make_interval", "date"})
"""PostgreSQL's functions that an expression of the time may call."""


@dataclass(frozen=True)
class Clocked:
    """A plan that reads the current time from a table with one row."""

    plan: Plan
    expressions: tuple[tuple[str, str], ...]
    """The columns of this table, and the expressions of the time that they store."""


def with_clock(plan: Plan, schema: str, name: str) -> Clocked | Unsupported:
    """Return the plan with the time read from the table `schema.name`, or which use of the time prevents it.

    >>> from orchestrator.algebra.examples import DEVICES, DID
    >>> from orchestrator.algebra.printer import print_plan
    >>> recent = Scalar.read("(did > (CURRENT_DATE - 7)) AND (did < 9)", [DID])
    >>> clocked = with_clock(Plan(Selection(DEVICES, recent), ("did",), (DID,)), "idivm_def", "c1")
    >>> clocked.expressions
    (('e1', '(CURRENT_DATE - 7)'),)
    >>> print(print_plan(clocked.plan, ids=False))
    view did (hidden: category)
    └─ π did, category
       └─ ⋈ did > e1
          ├─ σ did < 9
          │  └─ scan devices
          └─ scan idivm_def.c1 clock
    >>> print(with_clock(Plan(Selection(DEVICES, Scalar.read("did <> now()", [DID])), ("did",), (DID,)), "s", "c"))
    the current time outside a comparison (<, <=, =, >=, >) with values of rows: did <> now()
    """
    rewriting = _Rewriting(schema, name, used_symbols(plan.root))
    try:
        root = rewrite(plan.root, rewriting.change)
    except NotModelledError as error:
        return error.unsupported
    for operator in walk(root):
        for scalar in operator.scalars:
            if _reads_time(scalar.tree):
                return _outside(scalar).unsupported
    return Clocked(
        Plan(root, plan.names, plan.columns), tuple((c, e) for e, c in rewriting.columns.items())
    )


def is_time(node: Tree) -> bool:
    """Return whether a node of an expression stands for the time of the transaction."""
    kinds = (
        exp.Anonymous,
        exp.CurrentDate,
        exp.CurrentTimestamp,
        exp.Localtimestamp,
        exp.Localtime,
        exp.Dot,
    )
    return isinstance(node, kinds) and dialect.write(node) in TIMES


def _reads_time(tree: Tree) -> bool:
    return any(is_time(node) for node in tree.walk())


def _outside(scalar: Scalar) -> NotModelledError:
    words = "the current time outside a comparison (<, <=, =, >=, >) with values of rows"
    return NotModelledError(words, str(scalar))


@dataclass
class _Rewriting:
    """One rewriting, with the columns that the table needs."""

    schema: str
    name: str
    symbols: Symbols
    columns: dict[str, str] = field(default_factory=dict)
    """The names of the columns by the texts of the expressions."""

    def change(self, operator: Operator) -> Operator:
        """Return an operator whose condition no longer calls for the time, if it may."""
        if isinstance(operator, Selection):
            timed, rest = self._divided(operator.condition)
            if not timed:
                return operator
            below = operator.input if rest == TRUE else Selection(operator.input, rest)
            return self._beside_clock(below, timed)
        if isinstance(operator, Join | LeftJoin | Semijoin | Antisemijoin):
            timed, rest = self._divided(operator.condition)
            return self._join(operator, timed, rest) if timed else operator
        return operator

    def _join(self, operator: Binary, timed: list[Scalar], rest: Scalar) -> Operator:
        left, right = set(operator.left.columns), set(operator.right.columns)
        on_right = [c for c in timed if c.references <= right]
        on_left = [c for c in timed if c.references <= left]
        both = [c for c in timed if c not in on_right and c not in on_left]
        if not isinstance(operator, Join) and (on_left or both):
            if isinstance(operator, Semijoin) and not both:
                pass
            else:
                # A row without a partner stays, so that the condition cannot move below.
                raise _outside(conjunction([*on_left, *both]))
        sides = [operator.left, operator.right]
        for n, conditions in enumerate((on_left, on_right)):
            if conditions:
                sides[n] = self._beside_clock(sides[n], conditions)
        joined = type(operator)(sides[0], sides[1], rest)
        return self._beside_clock(joined, both) if both else joined

    def _divided(self, condition: Scalar) -> tuple[list[Scalar], Scalar]:
        """Return the conjuncts that read the time, and the others."""
        parts = condition.conjuncts
        timed = [part for part in parts if _reads_time(part.tree)]
        return timed, conjunction(part for part in parts if part not in timed)

    def _beside_clock(self, rows: Operator, timed: list[Scalar]) -> Operator:
        """Return the rows that satisfy conditions on the time."""
        columns: dict[str, Column] = {}
        conditions = []
        for condition in timed:
            if not condition.references <= set(rows.columns) or condition.subqueries:
                raise _outside(condition)
            tree = condition.tree
            for side in list(self._sides(condition, tree)):
                column = self._column(side, columns)
                side.replace(dialect.reference(column.symbol))
            conditions.append(Scalar.of(tree, (*condition.columns, *columns.values())))
        outputs = tuple(
            ScanColumn(column, number, name)
            for number, (name, column) in enumerate(columns.items(), start=1)
        )
        clock = Scan(
            Table(0, self.schema, self.name, keys=((),)), self.symbols.fresh("clock"), outputs
        )
        joined = Join(rows, clock, conjunction(conditions))
        return Projection(joined, tuple(Item.kept(column) for column in rows.columns))

    def _column(self, side: Tree, columns: dict[str, Column]) -> Column:
        text = dialect.write(side)
        name = self.columns.setdefault(text, f"e{len(self.columns) + 1}")
        if name not in columns:
            columns[name] = Column(self.symbols.fresh(name))
        return columns[name]

    def _sides(self, condition: Scalar, tree: Tree) -> Iterator[Tree]:
        """Yield the sides of comparisons that are expressions of the time alone."""
        found: set[int] = set()
        sides = []
        for node in tree.walk():
            if not isinstance(node, _COMPARISONS):
                continue
            pair = (node.this, node.expression)
            for side, other in (pair, pair[::-1]):
                if _reads_time(side) and _is_of_time(side) and not _reads_time(other):
                    if other.find(exp.Column) is None:
                        raise _outside(condition)
                    sides.append(side)
                    found.update(id(part) for part in side.walk())
        if any(is_time(node) and id(node) not in found for node in tree.walk()):
            raise _outside(condition)
        yield from sides


def _is_of_time(tree: Tree) -> bool:
    """Return whether an expression consists of the time, constants and PostgreSQL's functions of them."""
    if is_time(tree):
        return True
    if isinstance(tree, exp.Anonymous):
        allowed = str(tree.this) in _FUNCTIONS
    elif isinstance(tree, exp.DataType):
        # A user's type has a schema in its name.
        return "." not in dialect.write(tree)
    else:
        allowed = isinstance(tree, _PARTS)
    return allowed and all(_is_of_time(part) for part in tree.iter_expressions())
