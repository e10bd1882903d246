"""Temporal filters: replace comparisons with the current time by comparisons with a row that stores it.

In `ts > now() - interval '1 hour'`, the right side is the same for all rows and changes while no table does. It
becomes a column of a table with one row, the clock of the view. Then the time changes like any other data: a
refresh updates this row, and the rows between the old and the new bound come and go.

Calculations with time zones and months cannot be inverted, so the whole side without columns becomes the column.

Filters of aggregates and computed columns that compare with the time become branches of a union, one for each
filter, or for each outcome of the comparisons. Rows come and go in a branch as they do in a filter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product

from sqlglot import exp

from orchestrator.algebra import dialect
from orchestrator.algebra.columns import Column, Symbols
from orchestrator.algebra.dialect import Tree
from orchestrator.algebra.ids import used_symbols
from orchestrator.algebra.operators.antisemijoin import Antisemijoin
from orchestrator.algebra.operators.base import Operator
from orchestrator.algebra.operators.group import Aggregate, Grouping
from orchestrator.algebra.operators.join import Join
from orchestrator.algebra.operators.joining import Binary
from orchestrator.algebra.operators.left_join import LeftJoin
from orchestrator.algebra.operators.project import Item, Projection
from orchestrator.algebra.operators.scan import Scan, ScanColumn, Table
from orchestrator.algebra.operators.select import Selection
from orchestrator.algebra.operators.semijoin import Semijoin
from orchestrator.algebra.operators.set_operation import Branch
from orchestrator.algebra.operators.union_all import UnionAll
from orchestrator.algebra.plan import Plan
from orchestrator.algebra.predicates import never_null
from orchestrator.algebra.scalar import FALSE, TRUE, Scalar, conjunction, filled, unwrapped
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

_OPPOSITES: dict[type[Tree], type[exp.Binary]] = {
    exp.GT: exp.LTE,
    exp.LTE: exp.GT,
    exp.LT: exp.GTE,
    exp.GTE: exp.LT,
}
"""For each comparison, the one that is true of two times where it is false."""

_NULL = Scalar.read("(NULL)::boolean")

_MANY = 16
"""A computed column is divided into no more branches than this."""

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
        if not any(_reads_time(scalar.tree) for scalar in operator.scalars):
            return operator
        if isinstance(operator, Projection):
            return self._divided_by_outcome(operator)
        if isinstance(operator, Grouping):
            return self._divided_by_filter(self._with_arguments(operator))
        return operator

    def _join(self, operator: Binary, timed: list[Scalar], rest: Scalar) -> Operator:
        left, right = set(operator.left.columns), set(operator.right.columns)
        on_right = [c for c in timed if c.references <= right]
        on_left = [c for c in timed if c.references <= left]
        both = [c for c in timed if c not in on_right and c not in on_left]
        if not isinstance(operator, Join) and (on_left or both):
            if (
                isinstance(operator, Semijoin)
                and not isinstance(operator, Antisemijoin)
                and not both
            ):
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

    def _divided_by_filter(self, grouping: Grouping) -> Operator:
        """Return a grouping of a union that has a branch for each filter that reads the time."""
        filters: dict[Scalar, int] = {}
        numbered: list[tuple[Aggregate, int, Scalar]] = []
        for aggregate in grouping.aggregates:
            timed, rest = self._divided(aggregate.filter or TRUE)
            number = filters.setdefault(conjunction(timed), len(filters) + 1) if timed else 0
            numbered.append((aggregate, number, rest))
        if not filters:
            return grouping
        branches = {
            n: self._beside_clock(grouping.input, list(f.conjuncts)) for f, n in filters.items()
        }
        if grouping.by or any(number == 0 for _, number, _ in numbered):
            branches[0] = grouping.input
        used = grouping.mentions.union(*(scalar.references for scalar in grouping.scalars))
        kept = [column for column in grouping.input.columns if column in used]
        symbol = self.symbols.fresh("branch")
        number_of_branch = Column(symbol, "integer", "integer_ops", exact=True)
        union, outputs = self._union(
            (rows, [*map(Item.kept, kept), Item(number_of_branch, Scalar.read(str(number)))])
            for number, rows in branches.items()
        )
        renamed = {
            column: Scalar.column(output) for column, output in zip(kept, outputs, strict=False)
        }
        renamed[number_of_branch] = Scalar.column(outputs[-1])
        aggregates = []
        for aggregate, number, rest in numbered:
            in_branch = filled(f"b = {number}", b=number_of_branch)
            condition = conjunction([in_branch, rest])
            call = _filtered(aggregate.call, condition).substitute(renamed)
            aggregates.append(replace(aggregate, call=call))
        by = [renamed[column].as_column for column in grouping.by]
        grouped = Grouping(union, tuple(c for c in by if c is not None), tuple(aggregates))
        shown = [Item(column, renamed[column]) for column in grouping.by]
        return Projection(grouped, (*shown, *(Item.kept(a.column) for a in aggregates)))

    def _with_arguments(self, grouping: Grouping) -> Grouping:
        """Return a grouping whose aggregates read the time in filters alone, and columns for the other uses."""
        computed: dict[str, Item] = {}
        aggregates = []
        for aggregate in grouping.aggregates:
            tree = aggregate.call.tree
            clause = tree.find(exp.Filter)
            ignored = {id(node) for node in clause.expression.walk()} if clause else set[int]()
            outside = [
                n for n, _ in self._comparisons(aggregate.call, tree) if id(n) not in ignored
            ]
            for node in outside:
                text = dialect.write(node)
                if text not in computed:
                    column = Column(self.symbols.fresh("compared"), "boolean")
                    computed[text] = Item(column, aggregate.call.part(node))
                node.replace(dialect.reference(computed[text].column.symbol))
            columns = (*aggregate.call.columns, *(item.column for item in computed.values()))
            call = Scalar.of(tree, columns, aggregate.call.subqueries)
            aggregates.append(replace(aggregate, call=call))
        if not computed:
            return grouping
        below = Projection(
            grouping.input, (*map(Item.kept, grouping.input.columns), *computed.values())
        )
        return Grouping(self._divided_by_outcome(below), grouping.by, tuple(aggregates))

    def _divided_by_outcome(self, projection: Projection) -> Operator:
        """Return a union that has a branch for each outcome of the comparisons with the time.

        Comparisons of the same value are NULL together.
        """
        comparisons: dict[str, dict[str, Scalar]] = {}
        values: dict[str, Scalar] = {}
        for scalar in projection.scalars:
            tree = scalar.tree
            for node, side in self._comparisons(scalar, tree):
                if type(node) not in _OPPOSITES:
                    raise _outside(scalar)
                value = node.expression if side is node.this else node.this
                text = dialect.write(value)
                values[text] = scalar.part(value)
                comparisons.setdefault(text, {})[dialect.write(node)] = scalar.part(node)
        choices = [
            list(self._outcomes(values[text], among, projection.input))
            for text, among in comparisons.items()
        ]
        combined = list(product(*choices))
        if len(combined) > _MANY:
            raise NotModelledError(
                f"more than {_MANY} outcomes of comparisons with the current time", projection.label
            )
        branches = []
        for outcomes in combined:
            conditions = [c for outcome in outcomes for c in outcome[0]]
            known = {text: value for outcome in outcomes for text, value in outcome[1].items()}
            items = [Item(i.column, _replaced(i.scalar, known)) for i in projection.items]
            timed, rest = self._divided(conjunction(conditions))
            rows = projection.input if rest == TRUE else Selection(projection.input, rest)
            branches.append((self._beside_clock(rows, timed) if timed else rows, items))
        union, outputs = self._union(branches)
        pairs = zip(projection.items, outputs, strict=True)
        return Projection(union, tuple(Item(item.column, Scalar.column(o)) for item, o in pairs))

    def _outcomes(
        self, value: Scalar, comparisons: dict[str, Scalar], rows: Operator
    ) -> Iterator[tuple[list[Scalar], dict[str, Scalar]]]:
        """Yield the conditions on a row, with the results that the comparisons of a value have then."""
        for results in product((TRUE, FALSE), repeat=len(comparisons)):
            conditions = [
                comparison if result == TRUE else _opposite(comparison)
                for comparison, result in zip(comparisons.values(), results, strict=True)
            ]
            yield conditions, dict(zip(comparisons, results, strict=True))
        if not never_null(value, rows.not_null):
            yield [filled("x IS NULL", x=value)], dict.fromkeys(comparisons, _NULL)

    def _union(
        self, branches: Iterable[tuple[Operator, list[Item]]]
    ) -> tuple[UnionAll, tuple[Column, ...]]:
        """Return the union of the rows of branches, each with its items, and its columns."""
        made = []
        outputs: tuple[Column, ...] = ()
        for rows, items in branches:
            columns = [replace(i.column, symbol=self.symbols.fresh(i.column.symbol)) for i in items]
            shown = tuple(Item(c, i.scalar) for c, i in zip(columns, items, strict=True))
            made.append(Branch(Projection(rows, shown), tuple(columns)))
            outputs = outputs or tuple(
                replace(i.column, symbol=self.symbols.fresh(i.column.symbol)) for i in items
            )
        return UnionAll(tuple(made), outputs), outputs

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
            for _, side in list(self._comparisons(condition, tree)):
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

    def _comparisons(self, condition: Scalar, tree: Tree) -> list[tuple[Tree, Tree]]:
        """Return the comparisons with the time, and their sides that are expressions of the time alone."""
        found: set[int] = set()
        comparisons: list[tuple[Tree, Tree]] = []
        for node in tree.walk():
            if not isinstance(node, _COMPARISONS):
                continue
            pair = (node.this, node.expression)
            for side, other in (pair, pair[::-1]):
                if _reads_time(side) and _is_of_time(side) and not _reads_time(other):
                    if other.find(exp.Column) is None:
                        raise _outside(condition)
                    comparisons.append((node, side))
                    found.update(id(part) for part in side.walk())
        if any(is_time(node) and id(node) not in found for node in tree.walk()):
            raise _outside(condition)
        return comparisons


def _filtered(call: Scalar, condition: Scalar) -> Scalar:
    """Return the call of an aggregate with a condition in place of the one that it has.

    >>> columns = [Column("a"), Column("b")]
    >>> _filtered(Scalar.read("sum(a) FILTER (WHERE a > 1)", columns), Scalar.read("b = 0", columns))
    Scalar(sum(a) FILTER(WHERE b = 0))
    """
    tree = call.tree
    where = exp.Where(this=condition.tree)
    clause = tree.find(exp.Filter)
    if clause is None:
        tree = exp.Filter(this=tree, expression=where)
    else:
        clause.set("expression", where)
    return Scalar.of(tree, call.columns | condition.columns, call.subqueries)


def _opposite(comparison: Scalar) -> Scalar:
    """Return the comparison that is true where a comparison of two times is false.

    >>> _opposite(Scalar.read("(a > now())", [Column("a")]))
    Scalar(a <= now())
    """
    tree = unwrapped(comparison.tree)
    opposite = _OPPOSITES[type(tree)](this=tree.this, expression=tree.expression)
    return Scalar.of(opposite, comparison.columns, comparison.subqueries)


def _replaced(scalar: Scalar, known: dict[str, Scalar]) -> Scalar:
    """Return an expression with comparisons replaced by their results."""

    def result(node: Tree) -> Tree:
        if not isinstance(node, _COMPARISONS):
            return node
        text = dialect.write(node)
        return known[text].tree if text in known else node

    return Scalar.of(scalar.tree.transform(result), scalar.columns, scalar.subqueries)


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
